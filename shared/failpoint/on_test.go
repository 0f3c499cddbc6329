//go:build failpoints

package failpoint

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestPointsAreListed(t *testing.T) {
	text, err := os.ReadFile("failpoint.go")
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), `= "hub.`) + strings.Count(string(text), `= "agent.`); n != len(Points()) {
		t.Errorf("%d constants, %d points in the list", n, len(Points()))
	}
	if got := len(Of("hub")) + len(Of("agent")); got != len(Points()) {
		t.Errorf("%d points belong to a process, of %d", got, len(Points()))
	}
}

func TestParse(t *testing.T) {
	good := map[string]term{
		"hub.dispatch.after-rows=exit":          {action: "exit", at: 1},
		"hub.dispatch.after-rows=panic:3":       {action: "panic", at: 3},
		"hub.dispatch.after-rows=sleep(20ms):*": {action: "sleep", length: 20 * time.Millisecond},
		"hub.dispatch.after-rows=pause":         {action: "pause", at: 1},
	}
	for text, want := range good {
		point, got, err := parseTerm(text)
		if err != nil || point != "hub.dispatch.after-rows" || got != want {
			t.Errorf("%s is %s %+v, %v", text, point, got, err)
		}
	}
	for _, text := range []string{"x", "hub.nothing=exit", "hub.dispatch.after-rows=", "hub.dispatch.after-rows=burn", "hub.dispatch.after-rows=exit:0", "hub.dispatch.after-rows=exit:x", "hub.dispatch.after-rows=sleep(x)"} {
		if _, _, err := parseTerm(text); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
}

func TestHits(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	log, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "points")
	x := &table{log: log, file: file, hits: map[string]int{}, fixed: parse(HubRowsAfter + "=error:2")}
	var got []bool
	for range 3 {
		got = append(got, x.hit(HubRowsAfter) != nil)
	}
	if diff := cmp.Diff([]bool{false, true, false}, got); diff != "" {
		t.Error(diff)
	}
	if err := os.WriteFile(file, []byte(HubAckAfter+"=error:*\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if x.hit(HubAckAfter) == nil {
		t.Error("a running process was not armed")
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if x.hit(HubAckAfter) != nil {
		t.Error("a running process was not disarmed")
	}
	var after []bool
	for i := range 4 {
		if i == 1 { // it has come by already, and what was armed elsewhere goes on counting
			if err := os.WriteFile(file, []byte(HubAckAfter+"=error:2\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		after = append(after, x.hit(HubAckAfter) != nil)
	}
	if diff := cmp.Diff([]bool{false, false, true, false}, after); diff != "" {
		t.Errorf("armed at the second hit from now on: %s", diff)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var words []string
	for line := range strings.Lines(string(text)) {
		words = append(words, strings.Join(strings.Fields(line)[:3], " "))
	}
	if want := []string{HubRowsAfter + " 1 -", HubRowsAfter + " 2 error", HubRowsAfter + " 3 -", HubAckAfter + " 1 error", HubAckAfter + " 2 -",
		HubAckAfter + " 3 -", HubAckAfter + " 4 -", HubAckAfter + " 5 error", HubAckAfter + " 6 -"}; !slices.Equal(words, want) {
		t.Errorf("log %q", words)
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		x.fixed = parse(HubTargetsAfter + "=panic")
		_ = x.hit(HubTargetsAfter)
	}()
}
