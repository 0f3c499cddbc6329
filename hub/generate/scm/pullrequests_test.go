package scm_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/hub/generate/scm"
	"github.com/capstan-cd/capstan/integration/rigs/scmhosts"
	"github.com/capstan-cd/capstan/shared/fault"
)

func withPulls() scmhosts.Repository {
	r := shop(1, "shop")
	for i, title := range []string{"Add cart", "Fix typo", "WIP cart"} {
		n := int64(i + 7)
		r.Pulls = append(r.Pulls, scmhosts.Pull{
			Number: n, Title: title, Source: "feature/" + strings.ToLower(strings.Fields(title)[0]), Target: "main", SHA: scmhosts.SHA(title), Author: "ana",
			Labels: []string{"preview", title},
		})
	}
	r.Pulls[2].Target = "release/1.0"
	return r
}

func numbers(all []scm.PullRequest) []int64 {
	var out []int64
	for _, p := range all {
		out = append(out, p.Number)
	}
	return out
}

func TestPullRequests(t *testing.T) {
	t.Parallel()
	for _, kind := range scmhosts.Kinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			host := scmhosts.New(t, kind)
			if kind != scmhosts.AzureDevOps {
				host.Most = 2
			}
			host.Put(withPulls())
			list := func(t *testing.T, repo, extra, rest string) ([]scm.PullRequest, error) {
				t.Helper()
				return pullsOf(t, host, repo, extra, rest).List(t.Context(), newAccess(host, nil))
			}
			t.Run("AGEN-10 pull requests of all pages, with filters ("+kind+")", func(t *testing.T) {
				for filters, want := range map[string][]int64{
					"": {7, 8, 9}, `,"filters":[{"branchMatch":"add|fix"}]`: {7, 8}, `,"filters":[{"targetBranchMatch":"^release/"}]`: {9},
					`,"filters":[{"titleMatch":"cart$","targetBranchMatch":"main"}]`: {7}, `,"filters":[{"titleMatch":"typo"},{"titleMatch":"^WIP"}]`: {8, 9},
				} {
					if got, err := list(t, "shop", "", filters); err != nil || !slices.Equal(numbers(got), want) {
						t.Errorf("%s: %v, want %v: %v", filters, numbers(got), want, err)
					}
				}
			})
			if kind != scmhosts.Bitbucket && kind != scmhosts.BitbucketServer {
				t.Run("AGEN-10 labels ("+kind+")", func(t *testing.T) {
					if got, err := list(t, "shop", `,"labels":["preview","Fix typo"]`, ""); err != nil || !slices.Equal(numbers(got), []int64{8}) {
						t.Errorf("%v: %v", numbers(got), err)
					}
				})
			}
			t.Run("AGEN-10 continueOnRepoNotFoundError ("+kind+")", func(t *testing.T) {
				if got, err := list(t, "gone", "", ""); fault.KindOf(err) != fault.Invalid || got != nil {
					t.Errorf("a repository that is not there: %v, %v", got, err)
				}
				if got, err := list(t, "gone", "", `,"continueOnRepoNotFoundError":true`); err != nil || len(got) != 0 {
					t.Errorf("where the generator continues: %v, %v", got, err)
				}
			})
			t.Run("AGEN-11 parameters of a pull request ("+kind+")", func(t *testing.T) {
				got, err := list(t, "shop", "", "")
				if err != nil {
					t.Fatal(err)
				}
				sha := scmhosts.SHA("Add cart")
				want := map[string]any{
					"number": "7", "title": "Add cart", "branch": "feature/add", "branch_slug": "feature-add", "target_branch": "main", "target_branch_slug": "main",
					"head_sha": sha, "head_short_sha": sha[:8], "head_short_sha_7": sha[:7], "author": "ana", "labels": []string{"preview", "Add cart"},
				}
				switch kind {
				case scmhosts.Bitbucket:
					want["head_sha"], want["labels"] = sha[:12], []string(nil)
				case scmhosts.BitbucketServer:
					want["labels"] = []string{}
				}
				if diff := cmp.Diff(want, got[0].Params(true)); diff != "" {
					t.Error(diff)
				}
				delete(want, "labels")
				if diff := cmp.Diff(want, got[0].Params(false)); diff != "" {
					t.Error("without Go templates", diff)
				}
			})
		})
	}
}

func TestPullRequestState(t *testing.T) {
	t.Parallel()
	t.Run("AGEN-10 pullRequestState of GitLab", func(t *testing.T) {
		t.Parallel()
		host := scmhosts.New(t, scmhosts.GitLab)
		host.Put(withPulls())
		if _, err := pullsOf(t, host, "shop", `,"pullRequestState":"opened"`, "").List(t.Context(), newAccess(host, nil)); err != nil {
			t.Fatal(err)
		}
		if q := host.Calls()[0].Query; !strings.Contains(q, "state=opened") {
			t.Errorf("query %q", q)
		}
		if _, err := scm.ParsePullRequests(json.RawMessage(`{"gitlab":{"project":"acme/shop","pullRequestState":"open"}}`)); fault.KindOf(err) != fault.Invalid {
			t.Errorf("a state that does not exist: %v", err)
		}
	})
	t.Run("AGEN-10 the default poll is 30 minutes", func(t *testing.T) {
		t.Parallel()
		p, err := scm.ParsePullRequests(json.RawMessage(`{"github":{"owner":"acme","repo":"shop"}}`))
		if err != nil || p.RequeueAfter.Minutes() != 30 {
			t.Errorf("%v, %v", p.RequeueAfter, err)
		}
	})
}

// TestSlugs has names of branches with the slugs that Argo CD makes of them.
func TestSlugs(t *testing.T) {
	t.Parallel()
	for branch, want := range map[string]string{
		"main": "main", "feature/JIRA-12_add cart": "feature-jira-12-add-cart", "fix/über-größe": "fix-uber-grosse", "a&b@c": "aandbatc",
		"dependabot/npm_and_yarn/web/typescript-eslint/parser-8.1.0-long-name": "dependabot-npm-and-yarn-web-typescript-eslint",
		"--x--": "x",
	} {
		p := scm.PullRequest{Branch: branch, TargetBranch: branch, HeadSHA: "abc"}.Params(true)
		if p["branch_slug"] != want || p["target_branch_slug"] != want || p["head_short_sha"] != "abc" {
			t.Errorf("AGEN-11 %q: %q, want %q", branch, p["branch_slug"], want)
		}
	}
}
