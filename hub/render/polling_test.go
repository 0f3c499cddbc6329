package render_test

import (
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/render"
)

func TestNextPoll(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	const interval = 3 * time.Minute
	t.Run("KUST-10 the bases that one repository names are looked at together, once an interval", func(t *testing.T) {
		t.Parallel()
		first := render.NextPoll("a", begin, interval)
		for now := begin; now.Before(first); now = now.Add(time.Second) {
			if next := render.NextPoll("a", now, interval); !next.Equal(first) {
				t.Fatalf("at %s it is %s, not %s", now, next, first)
			}
		}
		if next := render.NextPoll("a", first, interval); !next.Equal(first.Add(interval)) {
			t.Errorf("after %s comes %s", first, next)
		}
	})
	t.Run("KUST-10 those of other repositories at other times, and never without an interval", func(t *testing.T) {
		t.Parallel()
		times := map[time.Time]bool{}
		for _, id := range []hub.RepositoryID{"a", "b", "c", "d", "e"} {
			times[render.NextPoll(id, begin, interval)] = true
		}
		if len(times) < 4 || !render.NextPoll("a", begin, 0).IsZero() {
			t.Errorf("%v", times)
		}
	})
}
