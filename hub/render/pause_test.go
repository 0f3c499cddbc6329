package render_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/render"
	"github.com/capstan-cd/capstan/hub/render/rendertest"
	"github.com/capstan-cd/capstan/shared/fault"
)

// failingWorld is an application whose render fails after it has read all, and
// has failed three times.
func failingWorld(t *testing.T) (w *stageWorld, push func(name, text string)) {
	t.Helper()
	files := map[string]string{"a/x.yaml": "0", "README": "0"}
	w = newStageWorld(files, "a")
	w.stays = true
	w.breaks = fault.With(fault.New(fault.Invalid, "x.yaml is no object"), "", "write one")
	push = func(name, text string) {
		files[name] = text
		w.push(rendertest.NewTree(files))
	}
	for i := range 3 {
		push("README", fmt.Sprint("attempt ", i))
		w.run(t.Context(), false)
		if w.renders != i+1 || strings.Contains(w.message(), "cached") {
			t.Fatalf("attempt %d: %d renders, %q", i+1, w.renders, w.message())
		}
	}
	return w, push
}

// message is that of the last failure.
func (w *stageWorld) message() string {
	if len(w.failed) == 0 {
		return ""
	}
	return w.failed[len(w.failed)-1].Message
}

func TestFailingRendersArePaused(t *testing.T) {
	t.Parallel()
	does := func(name string, do func(t *testing.T, w *stageWorld, push func(name, text string))) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, push := failingWorld(t)
				do(t, w, push)
			})
		})
	}
	renders := func(t *testing.T, w *stageWorld, forced bool, want int) {
		t.Helper()
		before := w.renders
		w.run(t.Context(), forced)
		if w.renders-before != want {
			t.Fatalf("%d renders, want %d; %q", w.renders-before, want, w.message())
		}
	}
	does("REPO-05 after three failures with the same inputs the cached error is the answer, and the message says so", func(t *testing.T, w *stageWorld, push func(name, text string)) {
		for i := range 5 {
			push("README", fmt.Sprint("later ", i))
			renders(t, w, false, 0)
			for _, says := range []string{"x.yaml is no object (write one)", "cached error of 3 attempts", "hard refresh", time.Now().Add(time.Hour).UTC().Format("2006-01-02T15:")} {
				if !strings.Contains(w.message(), says) {
					t.Errorf("the message does not say %q: %s", says, w.message())
				}
			}
		}
		if first := w.failed[3].Message; first != w.message() {
			t.Errorf("the message changes: %q, %q", first, w.message())
		}
		if c := w.stage.Counts(); c.Paused != 5 || c.Failed != 8 {
			t.Errorf("counts %+v", c)
		}
	})
	does("REPO-05 it is tried again when the pause ends, once each", func(t *testing.T, w *stageWorld, push func(name, text string)) {
		if len(w.later) != 1 || time.Until(w.dueAt).Round(time.Minute) != time.Hour {
			t.Errorf("after the third failure it is due at %v, %v", w.dueAt, w.later)
		}
		renders(t, w, false, 0)
		if len(w.later) != 1 || time.Until(w.dueAt).Round(time.Minute) != time.Hour {
			t.Errorf("while it is paused it is due at %v, %v", w.dueAt, w.later)
		}
		time.Sleep(59 * time.Minute)
		renders(t, w, false, 0)
		time.Sleep(time.Minute)
		renders(t, w, false, 1)
		renders(t, w, false, 0)
		if !strings.Contains(w.message(), "of 4 attempts") {
			t.Errorf("the message is %q", w.message())
		}
		time.Sleep(time.Hour)
		w.breaks = nil
		renders(t, w, false, 1)
		if len(w.rendered) != 1 || len(w.later) != 0 {
			t.Errorf("%d results, later %v", len(w.rendered), w.later)
		}
	})
	does("REPO-05 another input ends the pause", func(t *testing.T, w *stageWorld, push func(name, text string)) {
		renders(t, w, false, 0)
		push("a/x.yaml", "1")
		renders(t, w, false, 1)
		if strings.Contains(w.message(), "cached") {
			t.Errorf("the message is %q", w.message())
		}
		push("README", "another commit")
		renders(t, w, false, 1) // the second failure with these inputs
		w.breaks = nil
		push("a/x.yaml", "2")
		renders(t, w, false, 1)
		if len(w.rendered) != 1 {
			t.Error("it is not rendered")
		}
	})
	does("REPO-05 another parameter of the application ends it", func(t *testing.T, w *stageWorld, _ func(name, text string)) {
		a := &w.apps["a"].Application
		a.Spec = []byte(strings.Replace(string(a.Spec), `"path":"a"`, `"path":"a","directory":{"include":"*"}`, 1))
		renders(t, w, false, 1)
	})
	does("REPO-05 a hard refresh ends it", func(t *testing.T, w *stageWorld, push func(name, text string)) {
		renders(t, w, false, 0)
		renders(t, w, true, 1)
		if strings.Contains(w.message(), "cached") {
			t.Errorf("the message is %q", w.message())
		}
		renders(t, w, false, 1)
		renders(t, w, false, 1)
		renders(t, w, false, 0)
	})
	does("REPO-05 a success in between begins from anew", func(t *testing.T, w *stageWorld, push func(name, text string)) {
		broken := w.breaks
		w.breaks = nil
		renders(t, w, true, 1)
		w.breaks = broken
		push("a/x.yaml", "3")
		for range 3 {
			renders(t, w, false, 1)
		}
		renders(t, w, false, 0)
	})
	does("SEC-D2 INV-7 the error of one application is the answer for no other", func(t *testing.T, w *stageWorld, _ func(name, text string)) {
		other := *w.apps["a"]
		other.Application.ID, other.Application.Status = "b", hub.ApplicationStatus{}
		w.apps["b"] = &other
		renders(t, w, false, 1)
	})
}

func TestFailuresThatAreNotPaused(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{
		"REPO-05 a cause that passes is retried soon, and not paused": fault.New(fault.Offline, "the renderer was killed"),
		"REPO-05 our own defects are not cached":                      fmt.Errorf("a defect"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newStageWorld(map[string]string{"a/x.yaml": "0"}, "a")
			w.stays, w.breaks = true, err
			for i := range 6 {
				w.run(t.Context(), false)
				if w.renders != i+1 || strings.Contains(w.message(), "cached") {
					t.Fatalf("%d renders in %d refreshes, %q", w.renders, i+1, w.message())
				}
			}
		})
	}
	t.Run("REPO-05 an error that depends on more than what was recorded is not paused", func(t *testing.T) {
		t.Parallel()
		w := newStageWorld(map[string]string{"a/x.yaml": "0"}, "a")
		w.stays, w.renderErr = true, always(fault.New(fault.Invalid, "a remote file is not there"))
		for i := range 6 {
			if w.run(t.Context(), false); w.renders != i+1 {
				t.Fatalf("%d renders in %d refreshes", w.renders, i+1)
			}
		}
	})
	t.Run("REPO-05 the operator sets after how many failures, and for how long", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newStageWorld(map[string]string{"a/x.yaml": "0"}, "a")
			w.stays, w.breaks, w.cfg = true, fault.New(fault.Exceeded, "too slow"), render.StageConfig{PauseAfter: 1, Pause: time.Minute}
			run := func(want int) {
				t.Helper()
				before := w.renders
				if w.run(context.Background(), false); w.renders-before != want {
					t.Errorf("%d renders, want %d", w.renders-before, want)
				}
			}
			run(1)
			run(0)
			time.Sleep(time.Minute)
			run(1)
		})
	})
}
