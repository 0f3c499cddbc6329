package git_test

import (
	"context"
	"log/slog"
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/source/git"
	"github.com/capstan-cd/capstan/integration/rigs/gittest"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
)

// perRepository is a password for each repository.
type perRepository struct {
	gittest.NoCredentials
	of map[hub.RepositoryID]string
}

func (p perRepository) Credential(_ context.Context, _ hub.TenantID, id hub.RepositoryID) (hub.Credential, error) {
	return hub.Credential{Username: "bob", Password: p.of[id]}, nil
}

// Two projects of a tenant name one private URL; one of them may read it.
func TestProjectsShareNoRepository(t *testing.T) {
	t.Parallel()
	s := gittest.New(t)
	s.Set("right", nil)
	origin := s.Repo("app")
	first := origin.Commit("refs/heads/main", "first", gittest.Files{"f": "private"})
	mine, theirs := origin.Hub(), origin.Hub()
	mine.Project = "p"
	if mine.URL != theirs.URL || mine.ID == theirs.ID {
		t.Fatalf("%+v %+v", mine, theirs)
	}
	creds := perRepository{of: map[hub.RepositoryID]string{mine.ID: "right", theirs.ID: "wrong"}}
	m, err := git.New(git.Config{Dir: t.TempDir(), AllowedNetworks: gittest.Loopback(), ListTimeout: gittest.AnswerTimeout}, creds, lifecycle.System{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { gittest.CloseMirrors(t, m) })
	fetch := func(repo hub.Repository) ([]hub.Ref, error) {
		cred, _ := creds.Credential(t.Context(), tenant, repo.ID)
		return m.Fetch(gittest.Context(t), tenant, repo, cred)
	}
	refs, err := fetch(mine)
	if err != nil || gittest.ByName(refs)["HEAD"] != first {
		t.Fatalf("CRED-15 the project with a good credential: %v, %v", refs, err)
	}
	if got := gittest.Content(t, m, mine, first, "f"); got != "private" {
		t.Errorf("f = %q", got)
	}
	t.Run("CRED-15(refused) what one project has fetched another one cannot read, though it knows URL and commit", func(t *testing.T) {
		if refs, err := fetch(theirs); fault.KindOf(err) != fault.Invalid || len(refs) > 0 {
			t.Errorf("Fetch() = %v, %v", refs, err)
		}
		if tree, err := m.Tree(gittest.Context(t), tenant, theirs, first); err == nil {
			t.Errorf("it reads %v", tree)
		}
		if c, err := m.Commit(gittest.Context(t), tenant, theirs, first); err == nil {
			t.Errorf("it reads of the commit %+v", c)
		}
		for _, revision := range []string{first, first[:8], "main"} {
			if commit, err := m.Resolve(gittest.Context(t), tenant, theirs, nil, revision, ""); err == nil {
				t.Errorf("it resolves %s to %s", revision, commit)
			}
		}
	})
}
