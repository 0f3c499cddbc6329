package git_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/source/git"
	"github.com/capstan-cd/capstan/integration/rigs/gittest"
)

// There is no working copy that one revision could occupy, so none waits for
// another one.
func TestRevisionsSideBySide(t *testing.T) {
	t.Parallel()
	const revisions = 8
	s := gittest.New(t)
	dir := t.TempDir()
	m := gittest.NewMirrors(t, git.Config{Dir: dir})
	origin := s.Repo("app")
	var commits []string
	for i := range revisions {
		commits = append(commits, origin.Commit("refs/heads/main", fmt.Sprint(i), gittest.Files{"app/a.yaml": fmt.Sprintf("v: %d\n", i), "app/b.yaml": fmt.Sprintf("w: %d\n", i)}))
	}
	repo := origin.Hub()
	gittest.Fetched(t, m, repo)
	t.Run("REPO-07 REPO-08 readers of different revisions of one repository go on at the same time, and beside a fetch", func(t *testing.T) {
		ctx := gittest.Context(t)
		var inside sync.WaitGroup // all have read their first file and hold their tree
		inside.Add(revisions)
		var all sync.WaitGroup
		errs := make(chan error, revisions)
		for i, commit := range commits {
			all.Go(func() {
				read := func(tree fs.FS, name, want string) {
					if got, err := fs.ReadFile(tree, name); err != nil || string(got) != want {
						errs <- fmt.Errorf("%s of revision %d is %q, %w", name, i, got, err)
					}
				}
				tree, err := m.Tree(ctx, gittest.Tenant, repo, commit)
				if err != nil {
					errs <- err
					inside.Done()
					return
				}
				read(tree, "app/a.yaml", fmt.Sprintf("v: %d\n", i))
				inside.Done()
				inside.Wait()
				if i == 0 {
					origin.Commit("refs/heads/main", "newer", gittest.Files{"app/a.yaml": "v: new\n"})
					if _, err := m.Fetch(ctx, gittest.Tenant, repo, hub.Credential{}); err != nil {
						errs <- err
					}
				}
				read(tree, "app/b.yaml", fmt.Sprintf("w: %d\n", i))
			})
		}
		all.Wait()
		close(errs)
		for err := range errs {
			t.Error(err)
		}
	})
	t.Run("REPO-07 REPO-08 no file of a revision, and no lock, is on the disk", func(t *testing.T) {
		gittest.CloseMirrors(t, m)
		files := 0
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			files++
			if name := d.Name(); strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".lock") {
				t.Errorf("%s is on the disk", path)
			}
			text, err := os.ReadFile(path)
			if strings.Contains(string(text), "v: 1\n") {
				t.Errorf("%s has the content of a file", path)
			}
			return err
		})
		if err != nil || files == 0 {
			t.Errorf("%d files, %v", files, err)
		}
	})
}
