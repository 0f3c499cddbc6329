package git_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/source/git"
	"github.com/capstan-cd/capstan/integration/rigs/gittest"
)

// asked records the requests to a server, in words.
type asked struct {
	mu  sync.Mutex
	all []string
	old bool // the server supports only version 1
}

func (a *asked) see(_ http.ResponseWriter, r *http.Request) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.old {
		r.Header.Del("Git-Protocol")
	}
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	what := "objects"
	switch {
	case r.Method == http.MethodGet && r.Header.Get("Git-Protocol") != "":
		what = "abilities"
	case r.Method == http.MethodGet:
		what = "listing"
	case bytes.Contains(body, []byte("command=ls-refs")):
		what = "one branch"
	case bytes.Contains(body, []byte("want-ref ")):
		what = "objects of a branch"
	}
	a.all = append(a.all, what)
	return false
}

func (a *asked) drain() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := a.all
	a.all = nil
	slices.Sort(out) // some requests are parallel
	return out
}

// A pusher fetches as the loop does after a push event.
type pusher struct {
	t      *testing.T
	origin *gittest.Repo
	repo   hub.Repository
	m      *git.Mirrors
	asked  *asked
}

func newPusher(t *testing.T, branchesByName bool) *pusher {
	t.Helper()
	s := gittest.New(t)
	p := &pusher{t: t, origin: s.Repo("app.git"), m: gittest.NewMirrors(t, git.Config{}), asked: &asked{}}
	p.origin.Git("", "config", "uploadpack.allowRefInWant", fmt.Sprint(branchesByName))
	s.Set("", p.asked.see)
	p.origin.Commit("refs/heads/main", "first", gittest.Files{"a.yaml": "a: 1\n"})
	p.origin.Commit("refs/heads/other", "other", gittest.Files{"o.yaml": "o: 1\n"})
	p.repo = p.origin.Hub()
	p.repo.URL += ".git" // the spelling is known
	gittest.Fetched(t, p.m, p.repo)
	p.asked.drain()
	return p
}

// push fetches for an event and returns the refs.
func (p *pusher) push(ref, commit string) map[string]string {
	p.t.Helper()
	return p.pushed(hub.Pushed{Ref: ref, Commit: commit, At: time.Now()}, time.Now().Add(-time.Hour))
}

func (p *pusher) pushed(what hub.Pushed, since time.Time) map[string]string {
	p.t.Helper()
	list, _, err := p.m.FetchPushed(gittest.Context(p.t), tenant, p.repo, hub.Credential{}, what, since)
	if err != nil {
		p.t.Fatalf("FetchPushed() = %v", err)
	}
	return gittest.ByName(list)
}

func (p *pusher) commit(text string) string {
	p.t.Helper()
	return p.origin.Commit("refs/heads/main", text, gittest.Files{"a.yaml": "a: " + text + "\n"})
}

// there are the branches of the server.
func (p *pusher) there() map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(p.origin.Git("", "for-each-ref", "--format=%(refname) %(objectname)", "refs/heads", "refs/tags")) {
		name, commit, _ := strings.Cut(strings.TrimSpace(line), " ")
		out[name] = commit
	}
	out["HEAD"] = p.origin.Git("", "rev-parse", "HEAD")
	return out
}

func (p *pusher) costs(want ...string) {
	p.t.Helper()
	if diff := cmp.Diff(want, p.asked.drain()); diff != "" {
		p.t.Errorf("what the server was asked (-want +got):\n%s", diff)
	}
}

func (p *pusher) is(got map[string]string) {
	p.t.Helper()
	if diff := cmp.Diff(p.there(), got); diff != "" {
		p.t.Errorf("refs (-server +known):\n%s", diff)
	}
}

func TestFetchPushed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		named bool
		each  []string
	}{
		"one request where the server gives branches by name":      {true, []string{"objects of a branch"}},
		"the objects and the branch alone, asked at the same time": {false, []string{"objects", "one branch"}},
	} {
		t.Run("HOOKW-02 a push costs "+name+", and no listing", func(t *testing.T) {
			t.Parallel()
			p := newPusher(t, c.named)
			p.is(p.push("refs/heads/main", p.commit("2")))
			p.costs(append([]string{"abilities"}, c.each...)...) // capabilities are read once
			for i := range 3 {
				commit := p.commit(fmt.Sprint(3 + i))
				p.is(p.push("refs/heads/main", commit))
				p.costs(c.each...)
				if got := gittest.Content(t, p.m, p.repo, commit, "a.yaml"); got != fmt.Sprintf("a: %d\n", 3+i) {
					t.Errorf("content %q", got)
				}
			}
			p.is(p.push("refs/heads/new", p.origin.CommitOn("refs/heads/new", "refs/heads/main", "new", gittest.Files{"n": "n"})))
			p.costs(c.each...)
			gittest.CloseMirrors(t, p.m) // all is on disk now
			p.is(p.push("refs/heads/main", p.commit("9")))
			p.costs(c.each...)
			p.is(gittest.Fetched(t, p.m, p.repo)) // and nothing is missing
			p.costs("listing")
			rewritten := p.origin.CommitOn("refs/heads/main", "none", "rewritten", gittest.Files{"a.yaml": "a: 0\n"})
			p.is(p.push("refs/heads/main", rewritten))
			p.costs(c.each...)
		})
	}
	t.Run("a server without other capabilities is listed, and its capabilities are not read again", func(t *testing.T) {
		t.Parallel()
		p := newPusher(t, false)
		p.asked.old = true
		p.is(p.push("refs/heads/main", p.commit("2")))
		p.costs("listing", "listing", "objects")
		p.is(p.push("refs/heads/main", p.commit("3")))
		p.costs("listing", "objects")
	})
	t.Run("a listing that is due is not put off by pushes", func(t *testing.T) {
		t.Parallel()
		p := newPusher(t, true)
		p.is(p.pushed(hub.Pushed{Ref: "refs/heads/main", Commit: p.commit("2"), At: time.Now()}, time.Now().Add(time.Hour)))
		p.costs("listing", "objects")
	})
}

// Anyone who can reach the hub can send an event, or replay one. The deployed
// commit is the one that the server reports for the branch.
func TestFetchPushedVerifiesEverything(t *testing.T) {
	t.Parallel()
	for _, named := range []bool{true, false} {
		start := func(t *testing.T) *pusher {
			t.Helper()
			t.Parallel()
			p := newPusher(t, named)
			p.is(p.push("refs/heads/main", p.commit("2")))
			p.asked.drain()
			return p
		}
		does := func(name string, do func(t *testing.T)) { t.Run(fmt.Sprintf("FT-G4 %s, by name %v", name, named), do) }
		does("a commit of a pull request does not become a branch", func(t *testing.T) {
			p := start(t)
			evil := p.origin.CommitOn("refs/pull/7/head", "refs/heads/main", "evil", gittest.Files{"a.yaml": "evil"})
			p.is(p.push("refs/heads/main", evil))
			p.is(p.push("refs/pull/7/head", evil))
		})
		does("an event that is sent again rewinds nothing", func(t *testing.T) {
			p := start(t)
			old := p.there()["refs/heads/main"]
			p.is(p.push("refs/heads/main", p.commit("3")))
			p.is(p.push("refs/heads/main", old))
			// Nor does one of a push that the hub never saw, and that was
			// reverted.
			kept := p.there()["refs/heads/main"]
			taken := p.commit("taken back")
			p.origin.Git("", "update-ref", "refs/heads/main", kept)
			p.origin.Git("", "update-ref", "refs/heads/kept", taken)
			got := p.push("refs/heads/main", taken)
			if got["refs/heads/main"] != kept {
				t.Errorf("main is at %s, on the server at %s", got["refs/heads/main"], kept)
			}
		})
		does("events in another order end where the server is", func(t *testing.T) {
			p := start(t)
			first, second := p.commit("3"), p.commit("4")
			p.is(p.push("refs/heads/main", second))
			p.is(p.push("refs/heads/main", first))
			p.is(p.push("refs/heads/main", second))
		})
		does("what is not there, and what is no branch, is a reason to list", func(t *testing.T) {
			p := start(t)
			newest := p.commit("3")
			for ref, commit := range map[string]string{
				"refs/heads/main": strings.Repeat("ab", 20), "refs/heads/gone": newest, "refs/heads/": newest, "refs/tags/v1": newest, "HEAD": newest,
				"refs/heads/../pull/7/head": newest, "refs/heads/main\nwant 1": newest, "refs/heads/a b": newest, "": newest,
				"refs/heads/other": "main", "refs/heads/x": strings.Repeat("0", 40),
			} {
				p.is(p.push(ref, commit))
			}
		})
		does("an old event is a reason to list", func(t *testing.T) {
			p := start(t)
			p.is(p.pushed(hub.Pushed{Ref: "refs/heads/main", Commit: p.commit("3"), At: time.Now().Add(-time.Minute)}, time.Now().Add(-time.Hour)))
			p.costs("listing", "objects")
		})
		does("a flood of forged events costs a listing each, as before", func(t *testing.T) {
			p := start(t)
			forged := func(i int) { p.is(p.push("refs/heads/gone", fmt.Sprintf("%040x", 77+i))) }
			forged(0)
			p.asked.drain()
			for i := range 5 {
				forged(1 + i)
				p.costs("listing")
			}
		})
	}
}
