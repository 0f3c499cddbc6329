package source_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/source"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
)

// noted is a source that records its calls. Its methods are
// those of a second kind, which the hub does not have yet.
type noted struct {
	asked chan string
	fail  error
}

func newNoted() *noted { return &noted{asked: make(chan string, 10)} }

func (n *noted) Resolve(_ context.Context, _ hub.TenantID, _ hub.Repository, _ []hub.Ref, revision, _ string) (string, error) {
	n.asked <- "resolve " + revision
	return "commit", n.fail
}

func (n *noted) Fetch(context.Context, hub.TenantID, hub.Repository, hub.Credential) ([]hub.Ref, error) {
	n.asked <- "fetch"
	return []hub.Ref{{Name: "HEAD", Commit: "whole"}}, n.fail
}

func (n *noted) Tree(_ context.Context, _ hub.TenantID, _ hub.Repository, commit string) (hub.Tree, error) {
	n.asked <- "tree " + commit
	return nil, n.fail
}

func (n *noted) Remove(_ context.Context, _ hub.TenantID, repo hub.RepositoryID) error {
	n.asked <- "remove " + string(repo)
	return n.fail
}

// pushable is a noted source that accepts pushes.
type pushable struct{ *noted }

func (p pushable) FetchPushed(_ context.Context, _ hub.TenantID, _ hub.Repository, _ hub.Credential, pushed hub.Pushed, since time.Time) ([]hub.Ref, time.Time, error) {
	p.asked <- "fetch pushed " + pushed.Ref
	return []hub.Ref{{Name: "HEAD", Commit: "pushed"}}, since, p.fail
}

func TestRegistry(t *testing.T) {
	t.Parallel()
	n := newNoted()
	r := registry(t, n)
	repo := hub.Repository{ID: hub.NewID[hub.RepositoryID](), URL: "https://git.example.com/app"}
	for _, kind := range []hub.RepositoryKind{"", hub.GitRepository, hub.HelmRepository, hub.OCIRepository} {
		repo.Type = kind
		if _, err := r.Resolve(t.Context(), tenant, repo, nil, "main", ""); err != nil || <-n.asked != "resolve main" {
			t.Errorf("type %q: Resolve() = %v", kind, err)
		}
		if _, err := r.Fetch(t.Context(), tenant, repo, hub.Credential{}); err != nil || <-n.asked != "fetch" {
			t.Errorf("type %q: Fetch() = %v", kind, err)
		}
		if _, err := r.Tree(t.Context(), tenant, repo, "commit"); err != nil || <-n.asked != "tree commit" {
			t.Errorf("type %q: Tree() = %v", kind, err)
		}
	}
	if err := r.Remove(t.Context(), tenant, repo.ID); err != nil {
		t.Errorf("Remove() = %v", err)
	}
	for range hub.ServedKinds() { // its kind is not known any more
		if asked := <-n.asked; asked != "remove "+string(repo.ID) {
			t.Errorf("asked to %s", asked)
		}
	}
	if n.fail = errors.New("disk full"); !errors.Is(r.Remove(t.Context(), tenant, repo.ID), n.fail) {
		t.Error("the error of a removal is lost")
	}
}

func TestRegistryOfAnotherType(t *testing.T) {
	t.Parallel()
	r := registry(t, newNoted())
	repo := hub.Repository{ID: hub.NewID[hub.RepositoryID](), URL: "https://bob:" + secret + "@charts.example.com", Type: "svn"}
	_, fetch := r.Fetch(t.Context(), tenant, repo, hub.Credential{})
	_, resolve := r.Resolve(t.Context(), tenant, repo, nil, "1.0.0", "")
	_, tree := r.Tree(t.Context(), tenant, repo, "1.0.0")
	for what, err := range map[string]error{"Fetch": fetch, "Resolve": resolve, "Tree": tree} {
		says := fault.Sentence(err)
		if fault.KindOf(err) != fault.Invalid || !strings.Contains(says, `"svn" are not supported`) || !strings.Contains(says, "charts.example.com") || strings.Contains(says, secret) {
			t.Errorf("%s() = %v", what, err)
		}
	}
}

func TestRegistryHasWhatIsServed(t *testing.T) {
	t.Parallel()
	one := newNoted()
	for name, kinds := range map[string]map[hub.RepositoryKind]source.Source{
		"none":            {},
		"one too few":     {hub.GitRepository: one, hub.HelmRepository: one},
		"another one":     {hub.OCIRepository: one},
		"one of no name":  {"": one},
		"an unknown kind": {hub.GitRepository: one, hub.HelmRepository: one, hub.OCIRepository: one, "svn": one},
	} {
		if _, err := source.NewRegistry(kinds); err == nil {
			t.Errorf("a registry of %s is taken", name)
		}
	}
}

func TestLoopCallsTheKind(t *testing.T) {
	t.Parallel()
	now := time.Now()
	item := func(w *fakeWork) hub.WorkItem {
		repo := hub.Repository{ID: hub.NewID[hub.RepositoryID]()}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.repos[string(repo.ID)] = repo
		return hub.WorkItem{Kind: hub.WorkFetch, Tenant: tenant, Key: string(repo.ID), Pushed: hub.Pushed{Ref: "refs/heads/main", Commit: "c", At: now}}
	}
	for name, c := range map[string]struct {
		kind  func(*noted) source.Source
		force bool
		asked string
		got   string
	}{
		"a push is fetched by its name":           {func(n *noted) source.Source { return pushable{n} }, false, "fetch pushed refs/heads/main", "pushed"},
		"one that a person asks for is not":       {func(n *noted) source.Source { return pushable{n} }, true, "fetch", "whole"},
		"a kind without pushes is fetched wholly": {func(n *noted) source.Source { return n }, false, "fetch", "whole"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, w := newNoted(), newFakeWork()
			startLoop(t, source.LoopConfig{}, w, c.kind(n), lifecycle.System{})
			i := item(w)
			i.Forced = c.force
			w.due <- i
			if got := w.result(t); got.what != "fetched" || got.refs["HEAD"] != c.got {
				t.Errorf("outcome %+v", got)
			}
			if asked := <-n.asked; asked != c.asked {
				t.Errorf("asked to %s", asked)
			}
		})
	}
}

func TestLoopWarnsOfImpostors(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer // read after the loop has ended
	n, w := newNoted(), newFakeWork()
	n.fail = fault.Wrap(fault.Invalid, fmt.Errorf("handshake: %w", source.ErrImpostor), "the host key has changed")
	ctx, cancel := context.WithCancel(t.Context())
	loop := source.NewLoop(source.LoopConfig{}, w, registry(t, n), lifecycle.System{}, slog.New(slog.NewTextHandler(&log, nil)))
	ended := make(chan error, 1)
	go func() { ended <- loop.Run(ctx) }()
	w.add(tenant, hub.Repository{ID: hub.NewID[hub.RepositoryID]()}, hub.Credential{})
	if got := w.result(t); got.what != "failed" || !strings.Contains(got.sentence, "the host key has changed") {
		t.Errorf("outcome %+v", got)
	}
	cancel()
	if err := <-ended; err != nil || !strings.Contains(log.String(), "level=WARN") {
		t.Errorf("Run() = %v, log %s", err, log.String())
	}
}
