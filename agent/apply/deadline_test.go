package apply

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capstan-cd/capstan/agent/wave"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/manifest"
	"github.com/capstan-cd/capstan/shared/syncwindow"
)

// An unending is a cluster in which a hook never ends, and a person who approves
// at a time.
type unending struct {
	approved time.Time
	saved    *wave.Progress
}

func (s *unending) Apply(context.Context, wave.Item) (wave.Outcome, error) {
	return wave.Outcome{Changed: true}, nil
}

func (s *unending) Delete(context.Context, wave.Item) (wave.Outcome, error) {
	return wave.Outcome{Changed: true}, nil
}

func (s *unending) State(_ context.Context, it wave.Item) (wave.State, error) {
	if it.Prune {
		return wave.State{}, nil
	}
	return wave.State{Found: true, Health: "Progressing", Ours: true}, nil
}

func (s *unending) Changed() <-chan struct{} { return nil }

func (s *unending) Approved() bool { return !time.Now().Before(s.approved) }

func (s *unending) Load() (wave.Progress, bool) {
	if s.saved == nil {
		return wave.Progress{}, false
	}
	return *s.saved, true
}

func (s *unending) Save(_ context.Context, p wave.Progress) error {
	s.saved = &p
	return nil
}

// A wait for a person while windows are closed counts once, and an agent that
// is restarted in the middle of it comes to the same end.
func TestTimeOfAnOperation(t *testing.T) {
	t.Parallel()
	const half = 30 * time.Minute
	set := syncwindow.New([]syncwindow.Window{{Kind: syncwindow.Deny, Schedule: "0 1 * * *", Duration: "2h"}}) // 01:00 to 03:00
	plan := func(operation string) wave.Plan {
		ask, err := wave.Describe(-1, &manifest.Object{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap",
			"metadata": map[string]any{"name": "ask", "annotations": map[string]any{"capstan.dev/sync-options": "Prune=confirm"}},
		}}, "n")
		if err != nil {
			t.Fatal(err)
		}
		hook, err := wave.Describe(0, &manifest.Object{Object: map[string]any{
			"apiVersion": "batch/v1", "kind": "Job",
			"metadata": map[string]any{"name": "h", "annotations": map[string]any{"capstan.dev/hook": "PostSync"}},
		}}, "n")
		if err != nil {
			t.Fatal(err)
		}
		p, err := wave.Build([]wave.Object{hook}, []wave.Object{ask}, wave.Options{Operation: operation, Namespace: "n", Prune: true})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	for name, c := range map[string]struct {
		begins   time.Duration // after midnight
		approved time.Duration
		restarts []time.Duration
		ends     time.Duration // with 50 minutes for the operation, which was asked for at midnight
	}{
		"WIN-09 a step that runs on while closed does not wait, so it counts": {begins: 10 * time.Minute, approved: half, ends: 70 * time.Minute},
		"WIN-09 SYNC-13 approved while closed":                                {begins: 10 * time.Minute, approved: 2 * time.Hour, ends: 3*time.Hour + 40*time.Minute},
		"WIN-09 SYNC-13 approved after they have opened again":                {begins: 10 * time.Minute, approved: 4 * time.Hour, ends: 4*time.Hour + 40*time.Minute},
		"WIN-09 SYNC-13 restarted while a person is asked":                    {begins: 10 * time.Minute, approved: 2 * time.Hour, restarts: []time.Duration{half, 90 * time.Minute}, ends: 3*time.Hour + 40*time.Minute},
		"WIN-09 SYNC-13 restarted after approval while closed":                {begins: 10 * time.Minute, approved: 2 * time.Hour, restarts: []time.Duration{150 * time.Minute}, ends: 3*time.Hour + 40*time.Minute},
		"WIN-09 SYNC-13 restarted at every turn":                              {begins: 10 * time.Minute, approved: 4 * time.Hour, restarts: []time.Duration{half, 2 * time.Hour, 200 * time.Minute, 250 * time.Minute, 270 * time.Minute}, ends: 4*time.Hour + 40*time.Minute},
		"WIN-09 SYNC-13 restarted after they have opened again":               {begins: 10 * time.Minute, approved: 2 * time.Hour, restarts: []time.Duration{200 * time.Minute}, ends: 3*time.Hour + 40*time.Minute},
		"WIN-09 SYNC-13 nobody asked before, approved beforehand":             {begins: 10 * time.Minute, approved: 0, ends: 50 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				created := time.Now() // midnight
				whole := period{created, created.Add(50 * time.Minute)}
				w := &unending{approved: created.Add(c.approved)}
				time.Sleep(c.begins)
				gate := func(ctx context.Context, _ func(string)) error {
					for !set.Continues(syncwindow.Automated, time.Now()) {
						if err := lifecycle.Sleep(ctx, lifecycle.System{}, time.Second); err != nil {
							return err
						}
					}
					return nil
				}
				for i := 0; ; i++ {
					ctx, cancel := t.Context(), context.CancelFunc(func() {})
					if i < len(c.restarts) {
						ctx, cancel = context.WithDeadline(ctx, created.Add(c.restarts[i]))
					}
					p, _ := w.Load()
					now := time.Now()
					ask := asking(p, now)
					deadline := now.Add(left(set, syncwindow.Automated, whole, ask, now) - ask.to.Sub(ask.from))
					res := wave.New(plan("op"), w, w, wave.Config{Poll: time.Second, Deadline: deadline, Gate: gate}).Run(ctx)
					cancel()
					if res.Phase == wave.Running && i < len(c.restarts) {
						continue
					}
					took := time.Since(created)
					if res.Phase != wave.Failed || !res.Terminated || took < c.ends || took > c.ends+time.Minute {
						t.Errorf("it ended after %s as %s (%s), want %s", took, res.Phase, res.Message, c.ends)
					}
					return
				}
			})
		})
	}
	t.Run("WIN-09 time before the start counts only while windows are open", func(t *testing.T) {
		t.Parallel()
		at := func(h, m int) time.Time { return time.Date(2026, 5, 4, h, m, 0, 0, time.UTC) }
		whole := period{at(0, 0), at(2, 0)}
		for moment, want := range map[time.Time]time.Duration{at(0, 0): 2 * time.Hour, at(0, 30): 90 * time.Minute, at(1, 0): time.Hour, at(2, 59): time.Hour, at(3, 30): half, at(4, 30): -half} {
			if got := left(set, syncwindow.Automated, whole, period{}, moment); got != want {
				t.Errorf("at %s %s is left, want %s", fmt.Sprint(moment.Format("15:04")), got, want)
			}
		}
	})
}
