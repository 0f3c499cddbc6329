package lifecycle_test

import (
	"testing"
	"time"

	"github.com/capstan-cd/capstan/shared/lifecycle"
)

func TestReminder(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	r := lifecycle.Reminder{First: time.Minute, Max: 4 * time.Minute}
	reported := func(cause string, seconds int) (n int) {
		for range seconds {
			if due, _ := r.Due(now, cause); due {
				n++
			}
			now = now.Add(time.Second)
		}
		return n
	}
	if n := reported("away", 15*60); n != 5 { // at 0, 1, 3, 7 and 11 minutes
		t.Errorf("one cause is told %d times in 15 minutes, want 5", n)
	}
	if n := reported("refused", 60); n != 1 {
		t.Errorf("another cause is told %d times in a minute, want 1", n)
	}
	if due, before := r.Due(now, ""); due || !before {
		t.Error("that all is well is told, or was not told before")
	}
	if n := reported("refused", 60); n != 1 {
		t.Errorf("a cause that came back is told %d times in a minute, want 1", n)
	}
}
