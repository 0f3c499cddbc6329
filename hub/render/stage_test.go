package render_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/render"
	"github.com/capstan-cd/capstan/hub/render/rendertest"
	"github.com/capstan-cd/capstan/shared/fault"
)

// stageWorld is everything around a stage, in memory: a queue, a repository,
// a renderer that reads the files of its path, and what was stored.
type stageWorld struct {
	mu        sync.Mutex
	apps      map[hub.ApplicationID]*hub.Refresh
	queue     []hub.WorkItem
	stop      context.CancelFunc
	given     int64
	back      atomic.Int64 // of them, what was given back
	done      []hub.WorkItem
	later     []hub.WorkItem
	dueAt     time.Time // of the last of these
	trees     map[string]*rendertest.Tree
	head      string
	rendered  []hub.Rendered
	unchanged []hub.Unchanged
	failed    []hub.RefreshFailure
	skipped   []hub.ApplicationID
	refreshed []hub.RefreshAck
	renders   int
	permits   error
	resolves  error
	renderErr func(app string) error
	storeErr  error
	loadErr   error

	breaks     error // a render returns it after it has read all
	cfg        render.StageConfig
	stage      *render.Stage // of the last run
	stays      bool          // it is that of the next one too
	takes      time.Duration // of one render
	sourceType string        // empty: a directory
	asks       bool          // a render reads the version of the cluster
	body       string        // of each object; empty: none
}

func newStageWorld(files map[string]string, apps ...string) *stageWorld {
	w := &stageWorld{apps: map[hub.ApplicationID]*hub.Refresh{}, trees: map[string]*rendertest.Tree{}}
	w.push(rendertest.NewTree(files))
	now := time.Now()
	for _, name := range apps {
		spec := fmt.Appendf(nil, `{"source":{"repoURL":"https://git.example.com/r","path":%q},"destination":{"name":"prod"},"syncPolicy":{"automated":{}}}`, name)
		w.apps[hub.ApplicationID(name)] = &hub.Refresh{
			Application: hub.Application{ID: hub.ApplicationID(name), Meta: hub.Meta{Name: name}, Spec: spec, Generation: 1},
			Sources:     []hub.SourceState{{Repository: hub.Repository{ID: "repo", FetchedAt: &now}}},
		}
	}
	return w
}

func (w *stageWorld) push(t *rendertest.Tree) {
	w.head = t.Commit()
	w.trees[w.head] = t
}

// run makes every application due once and lets a stage work until it has
// given all of them back.
func (w *stageWorld) run(ctx context.Context, forced bool) {
	ctx, w.stop = context.WithCancel(ctx)
	defer w.stop()
	w.done, w.later, w.given = nil, nil, 0
	w.back.Store(0)
	for id := range w.apps {
		w.queue = append(w.queue, hub.WorkItem{Kind: hub.WorkRefresh, Tenant: "acme", Key: string(id), Forced: forced})
	}
	permits := func(hub.Refresh, hub.ApplicationSpec) error { return w.permits }
	if w.stage == nil || !w.stays {
		w.stage = render.NewStage(w.cfg, w, w, w, w, permits, slog.New(slog.DiscardHandler))
	}
	_ = w.stage.Run(ctx)
}

// Claim returns all work at once, and stops the stage when all is given back.
func (w *stageWorld) Claim(ctx context.Context, _ int, _ func() []hub.TenantID, freed <-chan struct{}) ([]hub.WorkItem, error) {
	for len(w.queue) == 0 && w.back.Load() < w.given {
		select {
		case <-freed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if len(w.queue) == 0 {
		w.stop()
		return nil, ctx.Err()
	}
	items := w.queue
	w.queue, w.given = nil, w.given+int64(len(items))
	return items, nil
}

func (w *stageWorld) Load(_ context.Context, _ hub.TenantID, ids []hub.ApplicationID) ([]hub.Refresh, error) {
	if w.loadErr != nil {
		return nil, w.loadErr
	}
	var out []hub.Refresh
	for _, id := range ids {
		out = append(out, *w.apps[id])
	}
	return out, nil
}

func (w *stageWorld) Done(_ context.Context, items []hub.WorkItem) error {
	w.done = append(w.done, items...)
	w.back.Add(int64(len(items)))
	return nil
}

func (w *stageWorld) Later(_ context.Context, items []hub.WorkItem, due time.Time) error {
	w.later, w.dueAt = append(w.later, items...), due
	w.back.Add(int64(len(items)))
	return nil
}

func (w *stageWorld) Resolve(context.Context, hub.TenantID, hub.Repository, []hub.Ref, string, string) (string, error) {
	return w.head, w.resolves
}

func (w *stageWorld) Tree(_ context.Context, _ hub.TenantID, _ hub.Repository, commit string) (hub.Tree, error) {
	return w.trees[commit].With(nil), nil
}

// Render reads the list of its path and each file in it, as a renderer would.
func (w *stageWorld) Render(_ context.Context, r render.Request) (render.Result, error) {
	time.Sleep(w.takes)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.renders++
	if w.renderErr != nil {
		if err := w.renderErr(r.Application); err != nil {
			return render.Result{}, err
		}
	}
	dir, tree := r.Sources[0].Path, r.Trees[0]
	res := render.Result{SourceType: cmp.Or(w.sourceType, render.TypeDirectory)}
	if w.asks {
		res.Inputs = append(res.Inputs, hub.Input{Kind: hub.InputFact, Path: render.FactKubeVersion, Hash: r.KubeVersion})
	}
	note := func(kind hub.InputKind, name string) error {
		in, err := tree.Input(kind, name)
		res.Inputs = append(res.Inputs, in)
		return err
	}
	if err := note(hub.InputList, dir); err != nil {
		return res, err
	}
	entries, err := tree.ReadDir(dir)
	if err != nil {
		return res, fault.New(fault.Invalid, "there is no path %s", dir)
	}
	own := path.Join(dir, ".argocd-source-"+r.Application+".yaml")
	if _, err := tree.Stat(own); err != nil {
		res.Inputs = append(res.Inputs, hub.Input{Kind: hub.InputMissing, Path: own})
	} else if err := note(hub.InputFile, own); err != nil {
		return res, err
	}
	for _, e := range entries {
		if err := note(hub.InputFile, path.Join(dir, e.Name())); err != nil {
			return res, err
		}
		res.Objects = append(res.Objects, render.Object{Ref: hub.ObjectRef{Kind: "ConfigMap", Name: e.Name()}, JSON: []byte(cmp.Or(w.body, `{}`))})
	}
	return res, w.breaks
}

func (w *stageWorld) Unchanged(_ context.Context, _ hub.TenantID, apps []hub.Unchanged) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.storeErr != nil {
		return w.storeErr
	}
	w.unchanged = append(w.unchanged, apps...)
	for _, u := range apps {
		w.apps[u.Application].Application.Status.Revisions = u.Revisions
	}
	return nil
}

// Rendered makes the snapshot the target, as dispatch does.
func (w *stageWorld) Rendered(_ context.Context, _ hub.TenantID, results []hub.Rendered) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.storeErr != nil {
		return w.storeErr
	}
	for _, r := range results {
		a := w.apps[r.Application]
		if !r.Reused {
			r.Snapshot.ID = hub.NewID[hub.SnapshotID]()
			a.Recent = append([]hub.Snapshot{r.Snapshot}, a.Recent...)
		}
		st := &a.Application.Status
		st.Target, st.Accepted, st.Revisions, st.PlannedGeneration, st.Conditions = r.Snapshot.ID, r.Snapshot.ID, r.Revisions, 1, nil
		w.rendered = append(w.rendered, r)
	}
	return nil
}

func (w *stageWorld) Skipped(_ context.Context, _ hub.TenantID, apps []hub.ApplicationID) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.skipped = append(w.skipped, apps...)
	return w.storeErr
}

func (w *stageWorld) AcknowledgeRefresh(_ context.Context, _ hub.TenantID, done []hub.RefreshAck) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refreshed = append(w.refreshed, done...)
	return w.storeErr
}

func (w *stageWorld) Failed(_ context.Context, _ hub.TenantID, failures []hub.RefreshFailure) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.storeErr != nil {
		return w.storeErr
	}
	w.failed = append(w.failed, failures...)
	for _, f := range failures {
		w.apps[f.Application].Application.Status.Conditions = []hub.Condition{{Type: f.Condition, Message: f.Message}}
	}
	return nil
}

// For any commit: a change of what an application did not read costs no render,
// and of what it did read costs one. What is stored is the state of the commit.
func TestStageRendersOnlyWhatChanged(t *testing.T) {
	t.Parallel()
	names := []string{"a/x.yaml", "a/y.yaml", "b/x.yaml", "b/z.yaml", "README", "docs/a/x.yaml"}
	rapid.Check(t, func(rt *rapid.T) {
		files := map[string]string{"a/x.yaml": "0", "b/x.yaml": "0", "README": "0"}
		w := newStageWorld(files, "a", "b")
		w.run(t.Context(), false)
		if w.renders != 2 || len(w.rendered) != 2 {
			rt.Fatalf("%d renders of two new applications", w.renders)
		}
		seen := map[string][]string{"a": {w.trees[w.head].Commit()}, "b": {w.trees[w.head].Commit()}}
		states := map[string]map[string]bool{"a": {}, "b": {}}
		states["a"][state(files, "a")], states["b"][state(files, "b")] = true, true
		for range rapid.IntRange(1, 8).Draw(rt, "commits") {
			for _, n := range rapid.SliceOfNDistinct(rapid.SampledFrom(names), 1, 3, rapid.ID).Draw(rt, "touched") {
				files[n] = rapid.SampledFrom([]string{"0", "1", "2"}).Draw(rt, n)
			}
			w.push(rendertest.NewTree(files))
			want := 0
			for _, app := range []string{"a", "b"} {
				if s := state(files, app); !states[app][s] {
					states[app][s] = true
					want++
				}
			}
			w.renders = 0
			w.run(t.Context(), false)
			if w.renders != want {
				rt.Fatalf("%d renders, want %d, for %v", w.renders, want, files)
			}
			for _, app := range []string{"a", "b"} {
				if got := w.apps[hub.ApplicationID(app)].Application.Status.Revisions; len(got) != 1 || got[0] != w.head {
					rt.Fatalf("%s stands at %v, not at %s (%v)", app, got, w.head, seen)
				}
			}
			if len(w.failed) != 0 || len(w.later) != 0 || len(w.done) != 2 {
				rt.Fatalf("failed %v, later %v, done %v", w.failed, w.later, w.done)
			}
		}
	})
}

// state is what an application reads of a tree.
func state(files map[string]string, app string) string {
	mine := map[string]string{}
	for n, c := range files {
		if path.Dir(n) == app {
			mine[n] = c
		}
	}
	b, _ := json.Marshal(mine) // maps of strings always marshal, in order
	return string(b)
}

func TestStageFailures(t *testing.T) {
	t.Parallel()
	broken := errors.New("the database is gone")
	cases := map[string]struct {
		why       string
		change    func(*stageWorld)
		condition string // empty: none is stored
		again     bool   // the work is tried again
	}{
		"INV-3 a render that fails":                 {"what is desired stays", func(w *stageWorld) { w.renderErr = always(fault.New(fault.Invalid, "bad template")) }, hub.ComparisonError, false},
		"INV-3 a render that fails without a cause": {"the sentence is neutral", func(w *stageWorld) { w.renderErr = always(errors.New("secret detail")) }, hub.ComparisonError, true},
		"FT-H4 a renderer that is away":             {"nothing else would look again", func(w *stageWorld) { w.renderErr = always(fault.New(fault.Offline, "no worker")) }, hub.ComparisonError, true},
		"REPO-04 a revision that does not exist":    {"nothing to compare with", func(w *stageWorld) { w.resolves = fault.New(fault.Missing, "no such branch") }, hub.ComparisonError, false},
		"CMPR-06 a project that forbids it":         {"nothing is rendered", func(w *stageWorld) { w.permits = fault.New(fault.Invalid, "denied") }, hub.InvalidSpecError, false},
		"APP-01 a spec that cannot be read":         {"a person must mend it", func(w *stageWorld) { w.apps["a"].Application.Spec = []byte(`[]`) }, hub.InvalidSpecError, false},
		"a repository that failed to fetch": {"its sentence is shown", func(w *stageWorld) {
			w.apps["a"].Sources[0].Repository = hub.Repository{Error: "authentication failed"}
		}, hub.ComparisonError, false},
		"a repository that is being fetched": {"the fetch enqueues it again; there is no problem to show", func(w *stageWorld) {
			w.apps["a"].Sources[0].Repository = hub.Repository{}
		}, "", false},
		"INV-1 a database that is lost while results are stored": {"the work must not be lost", func(w *stageWorld) { w.storeErr = broken }, "", true},
		"INV-1 a database that is lost while work is loaded":     {"the work must not be lost", func(w *stageWorld) { w.loadErr = broken }, "", true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newStageWorld(map[string]string{"a/x.yaml": "0"}, "a")
			w.run(t.Context(), false)
			before := w.apps["a"].Application.Status
			w.push(rendertest.NewTree(map[string]string{"a/x.yaml": "1"}))
			c.change(w)
			w.rendered = nil
			w.run(t.Context(), false)
			if len(w.rendered) != 0 || w.apps["a"].Application.Status.Target != before.Target {
				t.Errorf("%s: desired state moved: %v", c.why, w.rendered)
			}
			if (len(w.later) == 1) != c.again || len(w.later)+len(w.done) != 1 {
				t.Errorf("%s: done %v, later %v", c.why, w.done, w.later)
			}
			if c.condition == "" && len(w.failed) != 0 || c.condition != "" && (len(w.failed) != 1 || w.failed[0].Condition != c.condition) {
				t.Fatalf("%s: failures %v", c.why, w.failed)
			}
			for _, f := range w.failed {
				if f.Message == "secret detail" || f.Message == "" {
					t.Errorf("message %q", f.Message)
				}
			}
		})
	}
}

func always(err error) func(string) error { return func(string) error { return err } }

func TestStage(t *testing.T) {
	t.Parallel()
	files := map[string]string{"a/x.yaml": "0", "b/x.yaml": "0"}
	t.Run("REPO-04 a hard refresh renders though nothing changed", func(t *testing.T) {
		t.Parallel()
		w := newStageWorld(files, "a")
		w.run(t.Context(), false)
		w.run(t.Context(), true)
		if w.renders != 2 {
			t.Errorf("%d renders", w.renders)
		}
	})
	t.Run("INV-6 a target whose inputs were forgotten is rendered again, once, and is never said to be unchanged", func(t *testing.T) {
		t.Parallel()
		w := newStageWorld(map[string]string{"a/x.yaml": "0"}, "a")
		w.stays = true
		w.run(t.Context(), false)
		w.run(t.Context(), false)
		if w.renders != 1 || len(w.unchanged) != 1 {
			t.Fatalf("%d renders, %d unchanged before they were forgotten", w.renders, len(w.unchanged))
		}
		w.apps["a"].Recent[0].Inputs = hub.ForgottenInputs()
		w.run(t.Context(), false)
		if w.renders != 2 || len(w.unchanged) != 1 || len(w.failed) != 0 {
			t.Errorf("%d renders, want 2; %d unchanged, want 1; failed %v", w.renders, len(w.unchanged), w.failed)
		}
		w.run(t.Context(), false)
		if w.renders != 2 || len(w.unchanged) != 2 {
			t.Errorf("%d renders, want 2; %d unchanged, want 2", w.renders, len(w.unchanged))
		}
	})
	t.Run("B03 applications of one folder share a render, but not with one that has settings of its own", func(t *testing.T) {
		t.Parallel()
		names := []string{"one", "two", "three", "own"}
		w := newStageWorld(map[string]string{"web/x.yaml": "0", "web/.argocd-source-own.yaml": "own"}, names...)
		for _, name := range names {
			w.apps[hub.ApplicationID(name)].Application.Spec = []byte(`{"source":{"repoURL":"https://git.example.com/r","path":"web"},"destination":{"name":"prod"}}`)
		}
		w.run(t.Context(), false)
		if len(w.rendered) != len(names) {
			t.Fatalf("%d of %d applications", len(w.rendered), len(names))
		}
		for _, r := range w.rendered {
			for _, in := range r.Snapshot.Inputs {
				own := "web/.argocd-source-" + string(r.Application) + ".yaml"
				if strings.Contains(in.Path, "argocd-source") && in.Path != own && in.Path != "web/.argocd-source-own.yaml" {
					t.Errorf("%s was rendered from %s", r.Application, in.Path)
				}
				if in.Path == own && (in.Kind == hub.InputMissing) == (r.Application == "own") {
					t.Errorf("%s has the input %+v", r.Application, in)
				}
			}
		}
		if w.renders < 2 || w.renders > 3 { // two may begin beside each other
			t.Errorf("%d renders", w.renders)
		}
		w.renders = 0
		w.run(t.Context(), true)
		if w.renders != len(names) {
			t.Errorf("%d renders where each was asked for", w.renders)
		}
	})
	t.Run("B03 a caller waits for a running render that it can share, and for no other", func(t *testing.T) {
		t.Parallel()
		for kind, want := range map[string]struct {
			renders int
			within  time.Duration
		}{render.TypeDirectory: {1, time.Minute}, render.TypeHelm: {3, 2 * time.Minute}} {
			synctest.Test(t, func(t *testing.T) {
				names := []string{"one", "two", "three"}
				w := newStageWorld(map[string]string{"web/x.yaml": "0"}, names...)
				for _, name := range names {
					w.apps[hub.ApplicationID(name)].Application.Spec = []byte(`{"source":{"repoURL":"https://git.example.com/r","path":"web"},"destination":{"name":"prod"}}`)
				}
				w.takes, w.sourceType = time.Minute, kind
				begin := time.Now()
				w.run(t.Context(), false)
				if w.renders != want.renders || len(w.rendered) != len(names) {
					t.Errorf("%s: %d renders of %d applications, want %d", kind, w.renders, len(w.rendered), want.renders)
				}
				if took := time.Since(begin); took != want.within {
					t.Errorf("%s: renders of a minute took %s, want %s", kind, took, want.within)
				}
			})
		}
	})
	t.Run("INV-13 one application that fails does not stop its neighbours", func(t *testing.T) {
		t.Parallel()
		w := newStageWorld(files, "a", "b", "gone")
		w.renderErr = func(app string) error {
			if app == "a" {
				return fault.New(fault.Invalid, "bad template")
			}
			return nil
		}
		w.run(t.Context(), false)
		if len(w.rendered) != 1 || w.rendered[0].Application != "b" || len(w.failed) != 2 {
			t.Errorf("rendered %v, failed %v", w.rendered, w.failed)
		}
	})
	t.Run("CMPR-01 a successful refresh removes the condition", func(t *testing.T) {
		t.Parallel()
		w := newStageWorld(files, "a")
		w.run(t.Context(), false)
		w.resolves = fault.New(fault.Offline, "the host is away")
		w.run(t.Context(), false)
		w.resolves = nil
		w.run(t.Context(), false)
		if c := w.apps["a"].Application.Status.Conditions; len(c) != 0 || w.renders != 1 {
			t.Errorf("conditions %v after %d renders", c, w.renders)
		}
	})
	t.Run("AUTO-01 a change of policy reaches the plan without a render", func(t *testing.T) {
		t.Parallel()
		w := newStageWorld(files, "a")
		w.run(t.Context(), false)
		w.apps["a"].Application.Generation = 2
		w.rendered = nil
		w.run(t.Context(), false)
		if w.renders != 1 || len(w.rendered) != 1 || !w.rendered[0].Reused || w.rendered[0].Generation != 2 {
			t.Errorf("%d renders, %v", w.renders, w.rendered)
		}
	})
	t.Run("REPO-02 other parameters are another render", func(t *testing.T) {
		t.Parallel()
		w := newStageWorld(files, "a")
		w.run(t.Context(), false)
		w.apps["a"].Application.Spec = []byte(`{"source":{"repoURL":"https://git.example.com/r","path":"a","directory":{"recurse":true}},"destination":{"name":"prod"}}`)
		w.run(t.Context(), false)
		if w.renders != 2 {
			t.Errorf("%d renders", w.renders)
		}
	})
	t.Run("INV-1 a stage that is stopped releases its work", func(t *testing.T) {
		t.Parallel()
		w := newStageWorld(files, "a", "b")
		w.renderErr = func(string) error { w.stop(); return context.Canceled }
		w.run(t.Context(), false)
		if len(w.later) != 2 || len(w.failed) != 0 || len(w.rendered) != 0 {
			t.Errorf("later %v, failed %v, rendered %v", w.later, w.failed, w.rendered)
		}
	})
}
