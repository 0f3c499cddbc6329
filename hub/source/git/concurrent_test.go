package git_test

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/source/git"
	"github.com/capstan-cd/capstan/integration/rigs/gittest"
	"github.com/capstan-cd/capstan/integration/rigs/machine"
	"github.com/capstan-cd/capstan/shared/lifecycle"
)

// TestReadersDuringFetches reads old and new commits while packs come, are
// merged and closed. It is worth most with the race detector.
func TestReadersDuringFetches(t *testing.T) {
	t.Parallel()
	s := gittest.New(t)
	m := gittest.NewMirrors(t, git.Config{MaxPacks: 3})
	origin := s.Repo("app")
	repo := origin.Hub()
	all := gittest.Files{}
	for i := range 60 {
		all[fmt.Sprintf("d%d/f%d", i/10, i)] = strings.Repeat(fmt.Sprintln("line", i), 50)
	}
	first := origin.Commit("refs/heads/main", "base", all)
	gittest.Fetched(t, m, repo)

	ctx, cancel := context.WithCancel(context.Background())
	var readers sync.WaitGroup
	commits := make(chan string, 1)
	commits <- first
	for range 4 {
		readers.Go(func() {
			for ctx.Err() == nil {
				newest := <-commits
				commits <- newest
				for _, c := range []string{first, newest} {
					if err := readAll(ctx, m, repo, c, 60); err != nil && ctx.Err() == nil {
						t.Errorf("read %s: %v", c, err)
						cancel()
					}
				}
			}
		})
	}
	for i := range 15 {
		c := origin.Commit("refs/heads/main", "next", gittest.Files{"d0/f0": strings.Repeat(fmt.Sprintln("line", i), 60)})
		gittest.Fetched(t, m, repo)
		<-commits
		commits <- c
		if i%4 == 3 {
			gittest.CloseMirrors(t, m) // everything is closed under the readers, and opened again
		}
	}
	cancel()
	readers.Wait()
}

func readAll(ctx context.Context, m *git.Mirrors, repo hub.Repository, commit string, want int) error {
	tree, err := m.Tree(ctx, tenant, repo, commit)
	if err != nil {
		return err
	}
	n := 0
	err = fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		n++
		_, err = tree.ReadFile(name)
		return err
	})
	if err == nil && n != want {
		return fmt.Errorf("%d files, want %d", n, want)
	}
	return err
}

func TestOneFetchForManyReaders(t *testing.T) {
	t.Parallel()
	s := gittest.New(t)
	m := gittest.NewMirrors(t, git.Config{})
	origin := s.Repo("app")
	repo := origin.Hub()
	head := origin.Commit("refs/heads/main", "base", gittest.Files{"f": "x"})
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			if got := gittest.Content(t, m, repo, head, "f"); got != "x" {
				t.Errorf("f = %q", got)
			}
		})
	}
	wait.Wait()
	if s.Packs.Load() != 1 {
		t.Errorf("%d transfers for eight readers, want one", s.Packs.Load())
	}
}

func TestTenantsHaveMirrorsOfTheirOwn(t *testing.T) {
	t.Parallel()
	s := gittest.New(t)
	asked := &askedCredentials{}
	m, err := git.New(git.Config{Dir: t.TempDir(), AllowedNetworks: gittest.Loopback()}, asked, lifecycle.System{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { gittest.CloseMirrors(t, m) })
	origin := s.Repo("app")
	repo := origin.Hub()
	head := origin.Commit("refs/heads/main", "base", gittest.Files{"f": "x"})
	gittest.Fetched(t, m, repo)
	s.Set("closed", nil)
	other := hub.TenantID("018f3c6e-0000-7000-8000-000000000002")
	if tree, err := m.Tree(gittest.Context(t), other, repo, head); err == nil {
		t.Errorf("SEC-A4 another tenant reads %v without a credential", tree)
	}
	if got := asked.last(); got != other {
		t.Errorf("the credential of tenant %q was asked for, want that of the caller", got)
	}
}

// askedCredentials records whose credential was requested.
type askedCredentials struct {
	mu     sync.Mutex
	tenant hub.TenantID
}

func (c *askedCredentials) Authorities(context.Context, hub.TenantID, string) (string, error) {
	return "", nil
}

func (c *askedCredentials) HostKeys(context.Context, hub.TenantID) ([]hub.HostKey, error) {
	return nil, nil
}

func (c *askedCredentials) Credential(_ context.Context, tenant hub.TenantID, _ hub.RepositoryID) (hub.Credential, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tenant = tenant
	return hub.Credential{}, nil
}

func (c *askedCredentials) last() hub.TenantID {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tenant
}

func TestIdleMirrorsReleaseFilesAndMemory(t *testing.T) {
	s := gittest.New(t)
	m := gittest.NewMirrors(t, git.Config{})
	origin := s.Repo("app")
	repo := origin.Hub()
	head := origin.Commit("refs/heads/main", "base", gittest.Files{"f": "x"})
	gittest.Fetched(t, m, repo)
	gittest.Content(t, m, repo, head, "f")
	if open := mirrorFiles(t, repo); open == 0 {
		machine.Lacks(t, "open files cannot be listed here")
	}
	gittest.CloseMirrors(t, m)
	if open := mirrorFiles(t, repo); open != 0 {
		t.Errorf("%d files of the mirror are still open", open)
	}
	if got := gittest.Content(t, m, repo, head, "f"); got != "x" {
		t.Errorf("f = %q", got)
	}
	runtime.KeepAlive(m)
}

// mirrorFiles counts the open files of a mirror.
func mirrorFiles(t *testing.T, repo hub.Repository) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	n := 0
	for _, e := range list {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.Contains(to, string(repo.ID)) {
			n++
		}
	}
	return n
}
