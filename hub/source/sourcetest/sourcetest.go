// Package sourcetest is what every source.Source promises, as one test. A kind
// calls Run with a real server of its own, and adds tests only for what no
// other kind does. It uses the interface and knows no kind.
package sourcetest

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/source"
	"github.com/capstan-cd/capstan/shared/fault"
)

// A Kind is how the test gets at one kind.
type Kind struct {
	// New makes a source that stores everything below a folder and may connect
	// to 127.0.0.1. It looks up credentials with creds.
	New func(tb testing.TB, dir string, creds func(hub.TenantID) hub.Credential) source.Source
	// Origin makes an empty repository on a real server, which ends with the
	// test.
	Origin func(tb testing.TB) Origin
	// Unknown is a commit, in the form of the kind, that no origin has.
	Unknown string
}

// An Origin is a repository on a server.
type Origin interface {
	// Hub is the repository as the hub registers it, with a new id.
	Hub() hub.Repository
	// Publish makes a version of these files and no others. A version that is
	// published stays; its name is a target revision.
	Publish(version string, files map[string]string)
	// Protect makes the server require a credential from now on. Its password
	// is Secret.
	Protect() hub.Credential
	// Stall has the server answer no request until release is called, which is
	// done at the end of the test at the latest; a value comes for each request.
	Stall() (requests <-chan struct{}, release func())
	// Break has the server answer every request with an error of its own.
	Break()
}

// Secret is the password of an Origin, which nothing may print.
const Secret = "c4n4ry-s3cret"

// The tenants of the test. Both register the same repositories.
const (
	tenant = hub.TenantID("018f3c6e-0000-7000-8000-000000000001")
	other  = hub.TenantID("018f3c6e-0000-7000-8000-000000000002")
)

// limit is how long one step may last on a busy machine.
const limit = 2 * time.Minute

// Run tests a kind.
func Run(t *testing.T, k Kind) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, Kind){
		"Resolve finds what there is":                       resolves,
		"Resolve names what it does not find":               resolvesNothing,
		"Fetch again gives the same":                        fetchesAgain,
		"Fetch at the same time gives the same":             fetchesAtOnce,
		"Fetch that fails changes nothing":                  fetchFails,
		"Tree has the files of its commit":                  opensTrees,
		"Tree of what was never fetched is fetched":         fetchesOnDemand,
		"Tree of no commit is refused":                      refusesTrees,
		"Tree is there after a restart, without the server": survives,
		"Remove leaves nothing":                             removes,
		"a context that ends, ends the call":                ends,
		"a tenant reads nothing of another one":             keepsApart,
		"an id leads out of no folder":                      refusesIDs,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, k)
		})
	}
}

// A world is one source and one repository with two versions.
type world struct {
	*testing.T
	kind   Kind
	dir    string
	source source.Source
	origin Origin
	repo   hub.Repository
	cred   hub.Credential
	creds  map[hub.TenantID]hub.Credential // looked up by the source; written before its calls
}

const first, second = "1.0.0", "1.1.0"

func newWorld(t *testing.T, k Kind) *world {
	t.Helper()
	w := &world{T: t, kind: k, dir: t.TempDir(), origin: k.Origin(t), creds: map[hub.TenantID]hub.Credential{}}
	w.origin.Publish(first, map[string]string{"same.yaml": "a: 1\n", "dir/moved.yaml": "b: 1\n", "dir/old.yaml": "c: 1\n"})
	w.origin.Publish(second, map[string]string{"same.yaml": "a: 1\n", "dir/moved.yaml": "b: 2\n"})
	w.repo = w.origin.Hub()
	w.restart()
	return w
}

// restart makes a new source over the same folder.
func (w *world) restart() {
	w.Helper()
	w.source = w.kind.New(w, w.dir, func(t hub.TenantID) hub.Credential { return w.creds[t] })
}

func (w *world) context() context.Context {
	ctx, cancel := context.WithTimeout(w.Context(), limit)
	w.Cleanup(cancel)
	return ctx
}

func (w *world) fetch() []hub.Ref {
	w.Helper()
	refs, err := w.source.Fetch(w.context(), tenant, w.repo, w.cred)
	if err != nil {
		w.Fatalf("Fetch() = %v", err)
	}
	slices.SortFunc(refs, func(a, b hub.Ref) int { return strings.Compare(a.Name, b.Name) })
	return refs
}

func (w *world) resolve(refs []hub.Ref, revision string) string {
	w.Helper()
	commit, err := w.source.Resolve(w.context(), tenant, w.repo, refs, revision, "")
	if err != nil || commit == "" {
		w.Fatalf("Resolve(%q) = %q, %v", revision, commit, err)
	}
	return commit
}

func (w *world) tree(commit string) hub.Tree {
	w.Helper()
	t, err := w.source.Tree(w.context(), tenant, w.repo, commit)
	if err != nil {
		w.Fatalf("Tree(%q) = %v", commit, err)
	}
	return t
}

func (w *world) reads(t hub.Tree, name, want string) {
	w.Helper()
	if data, err := t.ReadFile(name); err != nil || string(data) != want {
		w.Errorf("ReadFile(%q) = %q, %v; want %q", name, data, err, want)
	}
}

// explained reports an error that is not a sentence about the repository, or
// has a secret in it.
func (w *world) explained(what string, err error, kinds ...fault.Kind) {
	w.Helper()
	host := strings.TrimPrefix(w.repo.URL, "http://")
	switch {
	case err == nil:
		w.Errorf("%s: no error", what)
	case len(kinds) > 0 && !slices.Contains(kinds, fault.KindOf(err)), fault.KindOf(err) == fault.Internal:
		w.Errorf("%s: %v is of kind %q, want %q", what, err, fault.KindOf(err), kinds)
	case !strings.Contains(fault.Sentence(err), host):
		w.Errorf("%s: %q does not name the repository", what, fault.Sentence(err))
	case strings.Contains(err.Error(), Secret), strings.Contains(fault.Sentence(err), Secret):
		w.Errorf("%s: the secret is in the error", what)
	}
}

// files lists what is stored below the folder.
func (w *world) files() (all []string) {
	w.Helper()
	err := filepath.WalkDir(w.dir, func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			all = append(all, name)
		}
		return err
	})
	if err != nil {
		w.Fatal(err)
	}
	return all
}

func resolves(t *testing.T, k Kind) {
	w := newWorld(t, k)
	refs := w.fetch()
	one, two := w.resolve(refs, first), w.resolve(refs, second)
	if one == two {
		t.Errorf("%s and %s are both %q", first, second, one)
	}
	if again := w.resolve(refs, first); again != one {
		t.Errorf("Resolve(%q) = %q, and then %q", first, one, again)
	}
	if c := w.resolve(refs, "1.*"); c != two {
		t.Errorf("the highest version is %q, want %q", c, two)
	}
	if c := w.resolve(refs, one); c != one {
		t.Errorf("the commit %q stands for %q", one, c)
	}
	w.origin.Publish("2.0.0", map[string]string{"new.yaml": "d: 1\n"})
	w.reads(w.tree(w.resolve(w.fetch(), "2.0.0")), "new.yaml", "d: 1\n")
}

func resolvesNothing(t *testing.T, k Kind) {
	w := newWorld(t, k)
	refs := w.fetch()
	for _, revision := range []string{"1.0.1", "no-such-name", "9.*", strings.Repeat("x", 10_000), "a\x00b", "../../etc"} {
		got, err := w.source.Resolve(w.context(), tenant, w.repo, refs, revision, "")
		if got != "" {
			t.Errorf("Resolve(%q) = %q", revision, got)
		}
		w.explained("Resolve", err, fault.Missing)
		if err != nil && len(fault.Sentence(err)) > 1000 {
			t.Errorf("Resolve says it in %d bytes", len(fault.Sentence(err)))
		}
	}
}

func fetchesAgain(t *testing.T, k Kind) {
	w := newWorld(t, k)
	refs, kept := w.fetch(), w.files()
	if again := w.fetch(); !slices.Equal(again, refs) {
		t.Errorf("Fetch() = %v, and then %v", refs, again)
	}
	if again := w.files(); !slices.Equal(again, kept) {
		t.Errorf("a second Fetch of the same keeps %d files, want %d", len(again), len(kept))
	}
	for _, r := range refs {
		if r.Name == "" || r.Commit == "" {
			t.Errorf("ref %+v", r)
		}
	}
}

func fetchesAtOnce(t *testing.T, k Kind) {
	w := newWorld(t, k)
	ctx := w.context()
	var all sync.WaitGroup
	got, failed := make([][]hub.Ref, 8), make([]error, 8)
	for i := range got {
		all.Go(func() {
			got[i], failed[i] = w.source.Fetch(ctx, tenant, w.repo, w.cred)
			if failed[i] == nil {
				_, failed[i] = readOf(ctx, w, got[i])
			}
		})
	}
	all.Wait()
	if err := errors.Join(failed...); err != nil {
		t.Fatal(err)
	}
	for _, refs := range got[1:] {
		if len(refs) != len(got[0]) {
			t.Errorf("Fetch() = %v, and beside it %v", got[0], refs)
		}
	}
}

// readOf reads a file of the first version as another goroutine than the
// test's may.
func readOf(ctx context.Context, w *world, refs []hub.Ref) ([]byte, error) {
	commit, err := w.source.Resolve(ctx, tenant, w.repo, refs, first, "")
	if err != nil {
		return nil, err
	}
	t, err := w.source.Tree(ctx, tenant, w.repo, commit)
	if err != nil {
		return nil, err
	}
	return t.ReadFile("dir/old.yaml")
}

func fetchFails(t *testing.T, k Kind) {
	w := newWorld(t, k)
	commit := w.resolve(w.fetch(), first)
	w.origin.Break()
	refs, err := w.source.Fetch(w.context(), tenant, w.repo, w.cred)
	if refs != nil {
		t.Errorf("Fetch() = %v of a server that answers with errors", refs)
	}
	w.explained("Fetch", err)
	w.reads(w.tree(commit), "dir/old.yaml", "c: 1\n")
}

func opensTrees(t *testing.T, k Kind) {
	w := newWorld(t, k)
	refs := w.fetch()
	commit := w.resolve(refs, first)
	one, two := w.tree(commit), w.tree(w.resolve(refs, second))
	if err := fstest.TestFS(one, "same.yaml", "dir/moved.yaml", "dir/old.yaml"); err != nil {
		t.Error(err)
	}
	if one.Commit() != commit {
		t.Errorf("Commit() = %q, want %q", one.Commit(), commit)
	}
	w.reads(one, "dir/moved.yaml", "b: 1\n")
	w.reads(two, "dir/moved.yaml", "b: 2\n")
	if _, err := two.ReadFile("dir/old.yaml"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file of an earlier version: %v", err)
	}
	for _, name := range []string{"../same.yaml", "/etc/passwd", "dir/../../x", ""} {
		if _, err := one.ReadFile(name); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("ReadFile(%q) = %v", name, err)
		}
	}
	inputs(t, one, two)
}

// inputs checks what a render records: equal for what is the same in both
// versions, and for nothing else.
func inputs(t *testing.T, one, two hub.Tree) {
	t.Helper()
	for _, c := range []struct {
		kind   hub.InputKind
		name   string
		same   bool
		second hub.InputKind
	}{
		{hub.InputFile, "same.yaml", true, hub.InputFile},
		{hub.InputFile, "dir/moved.yaml", false, hub.InputFile},
		{hub.InputFile, "dir/old.yaml", false, hub.InputMissing},
		{hub.InputFile, "nothing", true, hub.InputMissing},
		{hub.InputList, ".", true, hub.InputList},
		{hub.InputList, "dir", false, hub.InputList},
		{hub.InputTree, "dir", false, hub.InputTree},
	} {
		a, errA := one.Input(c.kind, c.name)
		b, errB := two.Input(c.kind, c.name)
		if errA != nil || errB != nil || (a == b) != c.same || b.Kind != c.second {
			t.Errorf("Input(%s, %q) = %+v, %v; and later %+v, %v", c.kind, c.name, a, errA, b, errB)
		}
	}
	if !one.Linkless("dir", 2) || one.Linkless("dir", 1) || one.Linkless("same.yaml", 2) || one.Linkless("nothing", 2) {
		t.Error("Linkless is not true of a directory without links alone, or does not count entries")
	}
}

func fetchesOnDemand(t *testing.T, k Kind) {
	w := newWorld(t, k)
	refs := w.fetch()
	if err := w.source.Remove(w.context(), tenant, w.repo.ID); err != nil {
		t.Fatal(err)
	}
	w.cred = w.origin.Protect()
	w.creds[tenant] = w.cred
	w.reads(w.tree(w.resolve(refs, first)), "dir/old.yaml", "c: 1\n")
}

func refusesTrees(t *testing.T, k Kind) {
	w := newWorld(t, k)
	w.fetch()
	_, err := w.source.Tree(w.context(), tenant, w.repo, k.Unknown)
	w.explained("Tree of a commit that is not there", err, fault.Missing)
	for _, commit := range []string{"", "../../etc/passwd", "-x", "a\x00b", strings.Repeat("x", 10_000)} {
		if _, err := w.source.Tree(w.context(), tenant, w.repo, commit); fault.KindOf(err) != fault.Invalid && fault.KindOf(err) != fault.Missing {
			t.Errorf("Tree(%q) = %v", commit, err)
		}
	}
}

func survives(t *testing.T, k Kind) {
	w := newWorld(t, k)
	commit := w.resolve(w.fetch(), first)
	w.restart()
	w.origin.Break()
	w.reads(w.tree(commit), "dir/old.yaml", "c: 1\n")
}

func removes(t *testing.T, k Kind) {
	w := newWorld(t, k)
	w.fetch()
	alone := w.files()
	neighbour, repo := w.origin.Hub(), w.repo
	w.repo = neighbour
	commit := w.resolve(w.fetch(), first)
	for range 2 { // of the second time nothing is left to remove
		if err := w.source.Remove(w.context(), tenant, repo.ID); err != nil {
			t.Fatalf("Remove() = %v", err)
		}
		for _, name := range w.files() {
			if slices.Contains(alone, name) {
				t.Errorf("%s is left", name)
			}
		}
		w.reads(w.tree(commit), "dir/old.yaml", "c: 1\n")
	}
	w.repo = repo
	w.reads(w.tree(w.resolve(w.fetch(), first)), "dir/old.yaml", "c: 1\n")
	for _, id := range []hub.RepositoryID{repo.ID, neighbour.ID, hub.NewID[hub.RepositoryID]()} {
		if err := w.source.Remove(w.context(), tenant, id); err != nil {
			t.Errorf("Remove() = %v", err)
		}
	}
	if left := w.files(); len(left) > 0 {
		t.Errorf("left after all were removed: %v", left)
	}
}

func ends(t *testing.T, k Kind) {
	w := newWorld(t, k)
	refs := w.fetch()
	never := w.origin.Hub() // not fetched yet, so that every call needs the server
	requests, release := w.origin.Stall()
	for name, call := range map[string]func(context.Context) error{
		"Fetch": func(ctx context.Context) error {
			_, err := w.source.Fetch(ctx, tenant, never, w.cred)
			return err
		},
		"Resolve": func(ctx context.Context) error {
			_, err := w.source.Resolve(ctx, tenant, never, refs, k.Unknown, "")
			return err
		},
		"Tree": func(ctx context.Context) error {
			_, err := w.source.Tree(ctx, tenant, never, k.Unknown)
			return err
		},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- call(ctx) }()
		select {
		case <-requests:
		case err := <-ended:
			t.Fatalf("%s() = %v without a request", name, err)
		}
		cancel()
		select {
		case err := <-ended:
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%s() = %v", name, err)
			}
		case <-w.context().Done():
			t.Fatalf("%s goes on after its context", name)
		}
	}
	release()
	w.repo = never // what was given up is no failure that is remembered
	w.reads(w.tree(w.resolve(w.fetch(), first)), "dir/old.yaml", "c: 1\n")
}

func keepsApart(t *testing.T, k Kind) {
	w := newWorld(t, k)
	w.cred = w.origin.Protect()
	w.creds[tenant] = w.cred
	refs := w.fetch()
	commit := w.resolve(refs, first)
	w.tree(commit)
	// The other tenant knows everything but the credential.
	_, err := w.source.Fetch(w.context(), other, w.repo, hub.Credential{})
	w.explained("Fetch of another tenant", err)
	_, err = w.source.Tree(w.context(), other, w.repo, commit)
	w.explained("Tree of another tenant", err)
	_, err = w.source.Resolve(w.context(), other, w.repo, nil, commit, "")
	w.explained("Resolve of another tenant", err)
	if err := w.source.Remove(w.context(), other, w.repo.ID); err != nil {
		t.Errorf("Remove() = %v", err)
	}
	w.origin.Break()
	w.reads(w.tree(commit), "dir/old.yaml", "c: 1\n")
}

func refusesIDs(t *testing.T, k Kind) {
	w := newWorld(t, k)
	outside := filepath.Join(w.dir, "outside")
	if err := os.Mkdir(outside, 0o700); err != nil {
		t.Fatal(err)
	}
	w.dir = filepath.Join(w.dir, "inside")
	if err := os.Mkdir(w.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	w.restart()
	for _, bad := range []string{"", ".", "..", "../outside", "../../outside", "a/b", "018f3c6e-0000-7000-8000-00000000000G"} {
		repo := w.repo
		repo.ID = hub.RepositoryID(bad)
		_, fetch := w.source.Fetch(w.context(), tenant, repo, w.cred)
		_, fetchAs := w.source.Fetch(w.context(), hub.TenantID(bad), w.repo, w.cred)
		remove := w.source.Remove(w.context(), tenant, repo.ID)
		for what, err := range map[string]error{"Fetch": fetch, "Fetch as a tenant": fetchAs, "Remove": remove} {
			if fault.KindOf(err) != fault.Invalid {
				t.Errorf("%s of %q = %v", what, bad, err)
			}
		}
	}
	if _, err := os.Stat(outside); err != nil || len(w.files()) > 0 {
		t.Errorf("something was written or removed: %v, %v", w.files(), err)
	}
}
