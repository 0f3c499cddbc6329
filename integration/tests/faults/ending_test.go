package faults_test

import (
	"os"
	"path/filepath"
	"testing"
)

func TestEndingOfAProcess(t *testing.T) {
	t.Parallel()
	v := &victim{hitLog: filepath.Join(t.TempDir(), "hits"), armed: map[string]string{"a": "exit:*", "c": "exit:*"}}
	const log = "a 1 - 7\nb 1 exit 7\na 1 - 8\na 2 exit 8\nb 2 - 8\nc 1 exit 8\nb 3 - 8\nc 1 exit 9\n"
	if err := os.WriteFile(v.hitLog, []byte(log), 0o600); err != nil {
		t.Fatal(err)
	}
	for pid, want := range map[int]string{6: "", 7: "", 8: "a", 9: "c"} { // b was disarmed when 7 had died
		if got, known := v.ending(pid); got != want || known != (want != "") {
			t.Errorf("process %d ended at %q, %v; want %q", pid, got, known, want)
		}
	}
}
