package process

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Children are all processes below one.
func Children(pid int) []int {
	var out []int
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, path := range tasks {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		for _, word := range strings.Fields(string(text)) {
			var child int
			if _, err := fmt.Sscan(word, &child); err == nil {
				out = append(append(out, child), Children(child)...)
			}
		}
	}
	return out
}
