package scm_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/hub/generate/scm"
	"github.com/capstan-cd/capstan/integration/rigs/scmhosts"
	"github.com/capstan-cd/capstan/shared/fault"
)

func TestProviders(t *testing.T) {
	t.Parallel()
	for _, kind := range repositoryKinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			host := scmhosts.New(t, kind)
			host.Most = 2
			var all []scmhosts.Repository
			for i, name := range []string{"shop", "cart", "billing", "api", "web"} {
				r := shop(int64(i+1), name)
				r.Topics = []string{"team-" + name, "prod"}
				all = append(all, r)
			}
			all = append(all, scmhosts.Repository{ID: 6, Name: "empty", Default: "main"})
			host.Put(all...)
			list := func(t *testing.T, extra, rest string) []scm.Repository {
				t.Helper()
				got, err := providerOf(t, host, extra, rest).Repositories(t.Context(), newAccess(host, nil))
				if err != nil {
					t.Fatal(err)
				}
				return got
			}
			t.Run("AGEN-07 repositories of all pages, by their default branch or all ("+kind+")", func(t *testing.T) {
				if got, want := listed(list(t, "", "")), []string{"shop@main", "cart@main", "billing@main", "api@main", "web@main"}; !slices.Equal(got, want) {
					t.Errorf("got %v, want %v", got, want)
				}
				if got := listed(list(t, `,"allBranches":true`, "")); len(got) != 10 || got[1] != "shop@release/1.0" {
					t.Errorf("all branches: %v", got)
				}
				overSSH, overHTTPS := list(t, "", "")[0].URL, list(t, "", `,"cloneProtocol":"https"`)[0].URL
				if !strings.HasPrefix(overHTTPS, "https://") || kind != scmhosts.AzureDevOps && overSSH == overHTTPS {
					t.Errorf("URLs %q and %q", overSSH, overHTTPS)
				}
			})
			t.Run("AGEN-08 fields of a filter are AND, filters are OR ("+kind+")", func(t *testing.T) {
				for filters, want := range map[string][]string{
					`[{"repositoryMatch":"^(shop|api)$"}]`:                                            {"shop@main", "shop@release/1.0", "api@main", "api@release/1.0"},
					`[{"repositoryMatch":"^shop$","branchMatch":"^release/"}]`:                        {"shop@release/1.0"},
					`[{"repositoryMatch":"^shop$","pathsExist":["deploy"]}]`:                          {"shop@main"},
					`[{"repositoryMatch":"^shop$","pathsExist":["deploy/app.yaml","nothing"]}]`:       nil,
					`[{"repositoryMatch":"^shop$","pathsDoNotExist":["kustomization.yaml"]}]`:         {"shop@release/1.0"},
					`[{"repositoryMatch":"^shop$","branchMatch":"^main$"},{"repositoryMatch":"web"}]`: {"shop@main", "web@main", "web@release/1.0"},
				} {
					if got := listed(list(t, `,"allBranches":true`, `,"filters":`+filters)); !slices.Equal(got, want) {
						t.Errorf("%s: %v, want %v", filters, got, want)
					}
				}
				if labels := kind == scmhosts.GitHub || kind == scmhosts.GitLab || kind == scmhosts.Gitea; labels {
					if got := listed(list(t, "", `,"filters":[{"labelMatch":"^team-cart$"}]`)); !slices.Equal(got, []string{"cart@main"}) {
						t.Errorf("labels: %v", got)
					}
				}
			})
		})
	}
}

func TestProviderParams(t *testing.T) {
	t.Parallel()
	host := scmhosts.New(t, scmhosts.GitHub)
	host.Put(scmhosts.Repository{
		ID: 12, Name: "shop", Default: "Feature/Über_x.1", Topics: []string{"a", "b"}, Branches: []scmhosts.Branch{{Name: "Feature/Über_x.1", SHA: "0123456789abcdef0123456789abcdef01234567"}},
	})
	t.Run("AGEN-09 parameters of a repository", func(t *testing.T) {
		t.Parallel()
		got, err := providerOf(t, host, "", `,"values":{"team":"{{ organization }}"}`).Repositories(t.Context(), newAccess(host, nil))
		if err != nil || len(got) != 1 {
			t.Fatal(got, err)
		}
		want := map[string]any{
			"organization": "acme", "repository": "shop", "repository_id": int64(12), "url": "git@github.example:acme/shop.git", "branch": "Feature/Über_x.1",
			"branchNormalized": "feature--ber-x.1", "sha": "0123456789abcdef0123456789abcdef01234567", "short_sha": "01234567", "short_sha_7": "0123456", "labels": "a,b",
		}
		if diff := cmp.Diff(want, got[0].Params()); diff != "" {
			t.Error(diff)
		}
		if p := providerOf(t, host, "", `,"values":{"team":"x"},"requeueAfterSeconds":60`); p.Values["team"] != "x" || p.RequeueAfter.Seconds() != 60 {
			t.Errorf("values %v, requeue %v", p.Values, p.RequeueAfter)
		}
	})
}

func TestProviderSwitches(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{scmhosts.GitHub, scmhosts.GitLab, scmhosts.Gitea} {
		t.Run("AGEN-07 switches for archived, shared and nested repositories ("+kind+")", func(t *testing.T) {
			t.Parallel()
			host := scmhosts.New(t, kind)
			old, nested, shared := shop(2, "old"), shop(3, "nested"), shop(4, "shared")
			old.Archived, nested.Group, shared.Shared, shared.Topics = true, "sub", true, []string{"wanted"}
			host.Put(shop(1, "shop"), old)
			cases := map[string][]string{"": {"shop@main", "old@main"}, `,"excludeArchivedRepos":true`: {"shop@main"}}
			if kind == scmhosts.GitLab {
				host.Put(nested, shared)
				cases = map[string][]string{
					"": {"shop@main", "shared@main"}, `,"includeSubgroups":true`: {"shop@main", "nested@main", "shared@main"}, `,"includeSharedProjects":false`: {"shop@main"},
					`,"includeArchivedRepos":true`: {"shop@main", "shared@main", "old@main"}, `,"topic":"wanted"`: {"shared@main"},
				}
			}
			for extra, want := range cases {
				got, err := providerOf(t, host, extra, "").Repositories(t.Context(), newAccess(host, nil))
				if err != nil || !slices.Equal(listed(got), want) {
					t.Errorf("%s: %v, want %v: %v", extra, listed(got), want, err)
				}
			}
		})
	}
	t.Run("AGEN-07 an owner of Gitea may be a user", func(t *testing.T) {
		t.Parallel()
		host := scmhosts.New(t, scmhosts.Gitea)
		host.Put(shop(1, "shop"))
		p, err := scm.ParseProvider(json.RawMessage(`{"gitea":{"owner":"robot","api":"` + host.HTTP.URL + `","tokenRef":{"secretName":"creds","key":"token"}}}`))
		if err != nil {
			t.Fatal(err)
		}
		if _, err = p.Repositories(t.Context(), newAccess(host, nil)); fault.KindOf(err) != fault.Invalid {
			t.Errorf("the branches are the user's, who has none: %v", err)
		}
		if !slices.ContainsFunc(host.Calls(), func(c scmhosts.Call) bool { return c.Path == "/api/v1/users/robot/repos" && c.Status == http.StatusOK }) {
			t.Errorf("requests: %v", host.Calls())
		}
	})
}

// TestBitbucketCloud sends what goes to Bitbucket Cloud to a server of the rig.
func TestBitbucketCloud(t *testing.T) {
	t.Parallel()
	host := scmhosts.New(t, scmhosts.Bitbucket)
	host.Most = 2
	host.Put(shop(1, "shop"), shop(2, "cart"), shop(3, "web"), scmhosts.Repository{ID: 4, Name: "empty"})
	list := func(t *testing.T, extra, rest string) []scm.Repository {
		t.Helper()
		p, err := scm.ParseProvider(json.RawMessage(`{"bitbucket":{"owner":"acme","user":"robot","appPasswordRef":{"secretName":"creds","key":"token"}` + extra + `}` + rest + `}`))
		if err != nil {
			t.Fatal(err)
		}
		got, err := p.Repositories(t.Context(), redirected{newAccess(host, nil), host})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	t.Run("AGEN-07 repositories of all pages, by their default branch or all (part: bitbucket)", func(t *testing.T) {
		got := list(t, "", `,"cloneProtocol":"https"`)
		if names := listed(got); !slices.Equal(names, []string{"shop@main", "cart@main", "web@main"}) || got[0].URL != "https://robot@bitbucket.example/acme/shop.git" || got[0].ID != "{00000001-0000-4000-8000-000000000000}" {
			t.Errorf("%v %+v", names, got[0])
		}
		if names := listed(list(t, `,"allBranches":true`, `,"filters":[{"pathsExist":["README.md"]}]`)); !slices.Equal(names, []string{"shop@release/1.0", "cart@release/1.0", "web@release/1.0"}) {
			t.Errorf("filtered: %v", names)
		}
	})
}

// redirected connects to a server instead of the public host.
type redirected struct {
	*access
	host *scmhosts.Server
}

// Client connects to the server, whatever the address is.
func (r redirected) Client(ctx context.Context, use scm.ClientUse) (*http.Client, error) {
	c, err := r.access.Client(ctx, use)
	if err != nil {
		return nil, err
	}
	to, err := url.Parse(r.host.HTTP.URL)
	c.Transport = rewrite{c.Transport, to}
	return c, err
}

// RoundTrip sends a request to the server.
func (r rewrite) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.URL.Host, req.Host = r.to.Host, ""
	return r.next.RoundTrip(req)
}

type rewrite struct {
	next http.RoundTripper
	to   *url.URL
}

func TestRefusedGenerators(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ spec, want string }{
		"AGEN-07 awsCodeCommit (part: refused)": {`{"awsCodeCommit":{"region":"eu-central-1"}}`, "awsCodeCommit is not supported"},
		"AGEN-07 no host":                       {`{"requeueAfterSeconds":3}`, "names no host"},
		"AGEN-07 another protocol":              {`{"cloneProtocol":"git","github":{"organization":"acme"}}`, "cloneProtocol"},
		"AGEN-07 no organisation":               {`{"github":{}}`, "organization is empty"},
		"AGEN-08 no regular expression":         {`{"github":{"organization":"acme"},"filters":[{"branchMatch":"("}]}`, "filters.branchMatch"},
		"AGEN-16 no token for Azure":            {`{"azureDevOps":{"organization":"acme","teamProject":"team"}}`, "accessTokenRef is empty"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := scm.ParseProvider(json.RawMessage(c.spec))
			if fault.KindOf(err) != fault.Invalid || !strings.Contains(fault.Sentence(err), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}
