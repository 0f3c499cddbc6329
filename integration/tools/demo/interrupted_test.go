package main

import (
	"errors"
	"testing"
)

// A command that the terminal's Ctrl-C met before it had its own process group
// dies of the signal, and that may be seen before the signal to this program.
func TestInterruptedCommands(t *testing.T) {
	for script, want := range map[string]bool{
		"kill -INT $$":  true,
		"kill -TERM $$": false,
		"exit 130":      false,
		"exit 1":        false,
		"true":          false,
	} {
		err := begin(t.Context(), "a step", "sh", "-c", script).wait()
		if got := interrupted(err); got != want {
			t.Errorf("%s: %v counts as interrupted: %t, want %t", script, err, got, want)
		}
	}
	if interrupted(errors.New("interrupt")) {
		t.Error("an error that is no command's counts as interrupted")
	}
}
