package helmrepo_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/source/charts/chartstest"
	"github.com/capstan-cd/capstan/shared/fault"
)

const tenant = hub.TenantID("018f3c6e-0000-7000-8000-000000000001")

func nobody(hub.TenantID) hub.Credential { return hub.Credential{} }

// following is a repository with the targets of one chart.
func following(s *chartstest.Server, revisions ...string) hub.Repository {
	repo := hub.Repository{ID: hub.NewID[hub.RepositoryID](), URL: s.URL, Type: hub.HelmRepository}
	repo.Use.Target.Chart = "web"
	for _, r := range revisions {
		repo.Use.Targets = append(repo.Use.Targets, hub.Target{Chart: "web", Revision: r})
	}
	return repo
}

func started(t *testing.T) *chartstest.Server {
	t.Helper()
	s := chartstest.NewRepository()
	t.Cleanup(s.Close)
	return s
}

func TestRanges(t *testing.T) {
	t.Parallel()
	server := started(t)
	for _, v := range []string{"1.0.0", "1.2.0", "2.0.0-rc.1"} {
		server.Publish("web", v, nil)
	}
	server.Publish("other", "9.0.0", nil)
	dir := t.TempDir()
	s := newSource(t, dir, secrets{nobody})
	repo := following(server, "^1", "1.0.0", "", "^9")
	refs, err := s.Fetch(t.Context(), tenant, repo, hub.Credential{})
	if err != nil {
		t.Fatal(err)
	}
	for asked, want := range map[string]string{"^1": "1.2.0", "1.0.0": "1.0.0", "": "1.2.0", ">=2.0.0-0": "2.0.0-rc.1"} {
		t.Run("HELM-17 SRC-02 the revision "+asked, func(t *testing.T) {
			if got, err := s.Resolve(t.Context(), tenant, repo, refs, asked, ""); err != nil || got != want {
				t.Errorf("Resolve(%q) = %q, %v; want %q", asked, got, err, want)
			}
		})
	}
	t.Run("HELM-17 another fetch costs one conditional request, also after a restart, and gives the same", func(t *testing.T) {
		before := server.Requests()
		repo.Use.Known = refs
		again, err := newSource(t, dir, secrets{nobody}).Fetch(t.Context(), tenant, repo, hub.Credential{})
		if err != nil || len(again) != len(refs) || server.Requests() != before+1 || server.NotModified() == 0 {
			t.Errorf("%v, %v; %d requests, %d not modified", again, err, server.Requests()-before, server.NotModified())
		}
	})
	t.Run("HELM-17 a version of another chart, and one outside of the range, change no ref", func(t *testing.T) {
		server.Publish("other", "9.1.0", nil)
		server.Publish("web", "3.0.0-rc.1", nil)
		again, err := s.Fetch(t.Context(), tenant, repo, hub.Credential{})
		if err != nil || fmt.Sprint(again) != fmt.Sprint(refs) {
			t.Errorf("%v, %v; want %v", again, err, refs)
		}
	})
	t.Run("HELM-17 a new version within the range does", func(t *testing.T) {
		server.Publish("web", "1.3.0", nil)
		again, err := s.Fetch(t.Context(), tenant, repo, hub.Credential{})
		if err != nil || fmt.Sprint(again) == fmt.Sprint(refs) {
			t.Errorf("%v, %v", again, err)
		}
		if got, err := s.Resolve(t.Context(), tenant, repo, again, "^1", ""); err != nil || got != "1.3.0" {
			t.Errorf("Resolve() = %q, %v", got, err)
		}
	})
	t.Run("API-13 what a Chart.yaml says is known of its revision", func(t *testing.T) {
		server.Publish("web", "1.3.1", map[string]string{"Chart.yaml": "apiVersion: v2\nname: web\nversion: 1.3.1\nappVersion: '7'\ndescription: Serves.\nhome: https://example.com\nmaintainers: [{name: Ann, email: ann@example.com}]\n"})
		if _, err := s.Fetch(t.Context(), tenant, repo, hub.Credential{}); err != nil {
			t.Fatal(err)
		}
		tree, err := s.Tree(t.Context(), tenant, repo, "1.3.1")
		if err != nil {
			t.Fatal(err)
		}
		if c := tree.Info().Chart; c == nil || c.Description != "Serves." || c.Home != "https://example.com" || c.AppVersion != "7" || fmt.Sprint(c.Maintainers) != "[Ann <ann@example.com>]" {
			t.Errorf("%+v", c)
		}
	})
}

func TestRepublished(t *testing.T) {
	t.Parallel()
	server := started(t)
	server.Publish("web", "1.0.0", map[string]string{"values.yaml": "a: 1\n"})
	repo := following(server, "1.0.0")
	s := newSource(t, t.TempDir(), secrets{nobody})
	refs, err := s.Fetch(t.Context(), tenant, repo, hub.Credential{})
	if err != nil {
		t.Fatal(err)
	}
	server.Republish("web", "1.0.0", map[string]string{"values.yaml": "a: 2\n"})
	fresh := newSource(t, t.TempDir(), secrets{nobody}) // another replica, which knows the refs alone
	repo.Use.Known = refs
	t.Run("FT-G7 other contents under a version are an error, on every replica", func(t *testing.T) {
		for _, each := range []struct {
			fetch func() ([]hub.Ref, error)
		}{{func() ([]hub.Ref, error) { return s.Fetch(t.Context(), tenant, repo, hub.Credential{}) }}, {func() ([]hub.Ref, error) { return fresh.Fetch(t.Context(), tenant, repo, hub.Credential{}) }}} {
			now, err := each.fetch()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Resolve(t.Context(), tenant, repo, now, "1.0.0", ""); fault.KindOf(err) != fault.Invalid || !strings.Contains(fault.Sentence(err), "published again with other contents") {
				t.Errorf("Resolve() = %v", err)
			}
		}
		if _, err := fresh.Tree(t.Context(), tenant, repo, "1.0.0"); !strings.Contains(fault.Sentence(err), "published again") {
			t.Errorf("Tree() = %v", err)
		}
	})
	t.Run("FT-G7 what is stored stays what it was", func(t *testing.T) {
		reads(t, s, repo, "a: 1\n")
	})
	t.Run("FT-G7 accepted contents are taken", func(t *testing.T) {
		repo.Use.Known = []hub.Ref{{Name: refs[0].Name, Commit: "1.0.0 " + hub.AcceptedContents}}
		now, err := s.Fetch(t.Context(), tenant, repo, hub.Credential{})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := s.Resolve(t.Context(), tenant, repo, now, "1.0.0", ""); err != nil || got != "1.0.0" {
			t.Errorf("Resolve() = %q, %v", got, err)
		}
		reads(t, s, repo, "a: 2\n")
	})
}

func reads(t *testing.T, s interface {
	Tree(ctx context.Context, tenant hub.TenantID, repo hub.Repository, commit string) (hub.Tree, error)
}, repo hub.Repository, want string) {
	t.Helper()
	tree, err := s.Tree(t.Context(), tenant, repo, "1.0.0")
	if err != nil {
		t.Fatal(err)
	}
	if text, err := tree.ReadFile("values.yaml"); err != nil || string(text) != want {
		t.Errorf("values.yaml is %q, %v; want %q", text, err, want)
	}
}

func TestPassedCredentials(t *testing.T) {
	t.Parallel()
	far, server := started(t), started(t)
	server.Protect("bob", "s3cret")
	archive := chartstest.Pack("web", "1.0.0", nil)
	sent := make(chan string, 10)
	far.Answer("/web-1.0.0.tgz", func(w http.ResponseWriter, r *http.Request) {
		_, password, _ := r.BasicAuth()
		sent <- password
		_, _ = w.Write(archive)
	})
	server.Answer("/index.yaml", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, "apiVersion: v1\nentries:\n  web:\n  - version: 1.0.0\n    urls: [%q]\n", far.URL+"/web-1.0.0.tgz")
	})
	cred := hub.Credential{Username: "bob", Password: "s3cret"}
	for name, passes := range map[string]bool{"HELM-12 SEC-A5 by default no other host gets the credential": false, "HELM-12 passCredentials sends it to the host of the archive": true} {
		t.Run(name, func(t *testing.T) {
			s := newSource(t, t.TempDir(), secrets{func(hub.TenantID) hub.Credential { return cred }})
			repo := following(server)
			repo.Use.Targets = []hub.Target{{Chart: "web", Revision: "1.0.0", PassCredentials: passes}}
			if refs, err := s.Fetch(t.Context(), tenant, repo, cred); err != nil || len(refs) != 1 {
				t.Fatalf("%v, %v", refs, err)
			}
			if got := <-sent; (got == "s3cret") != passes {
				t.Errorf("the other host was sent %q", got)
			}
		})
	}
}

func TestHostileCharts(t *testing.T) {
	t.Parallel()
	server := started(t)
	server.Publish("web", "1.0.0", nil)
	entry := func(digest string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprintf(w, "entries:\n  web:\n  - version: 1.0.0\n    digest: %s\n    urls: [a.tgz]\n", digest)
		}
	}
	for path, archive := range map[string][]byte{
		"/page": []byte("<html>not found</html>"), "/empty": chartstest.Tar(nil), "/another": chartstest.Pack("db", "1.0.0", nil),
		"/none": chartstest.Tar(map[string]string{"web/values.yaml": "a: 1"}), "/yaml": chartstest.Pack("web", "1.0.0", map[string]string{"Chart.yaml": "name: [\n"}),
	} {
		server.Answer(path+"/index.yaml", entry("''"))
		server.Answer(path+"/a.tgz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(archive) })
	}
	server.Answer("/digest/index.yaml", entry(strings.Repeat("a", 64)))
	server.Answer("/digest/a.tgz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(chartstest.Pack("web", "1.0.0", nil)) })
	for path, c := range map[string]struct{ name, says string }{
		"/page":    {"FT-G2 SEC-B7 a page instead of an archive", "no complete tar"},
		"/empty":   {"SEC-B3 an empty archive", "has no Chart.yaml"},
		"/another": {"FT-G7 the archive of another chart", `holds the chart "db"`},
		"/none":    {"SEC-B3 an archive without a Chart.yaml", "has no Chart.yaml"},
		"/yaml":    {"SEC-B1 a Chart.yaml that is none", "cannot be read"},
		"/digest":  {"FT-G7 a digest that is not that of the archive", "another digest"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newSource(t, t.TempDir(), secrets{nobody})
			repo := following(server, "1.0.0")
			repo.URL += path
			refs, err := s.Fetch(t.Context(), tenant, repo, hub.Credential{})
			if fault.KindOf(err) != fault.Invalid || !strings.Contains(fault.Sentence(err), c.says) || len(refs) > 0 {
				t.Errorf("Fetch() = %v, %v; want %q", refs, fault.Sentence(err), c.says)
			}
		})
	}
	t.Run("FT-G5 a damaged archive is fetched again", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		s := newSource(t, dir, secrets{nobody})
		other := started(t)
		other.Publish("web", "1.0.0", map[string]string{"values.yaml": "a: 1\n"})
		repo := following(other, "1.0.0")
		if _, err := s.Fetch(t.Context(), tenant, repo, hub.Credential{}); err != nil {
			t.Fatal(err)
		}
		stored, err := filepath.Glob(filepath.Join(dir, string(tenant), string(repo.ID), "*.data"))
		if err != nil || len(stored) != 1 {
			t.Fatalf("%v, %v", stored, err)
		}
		if err := os.WriteFile(stored[0], []byte("nonsense of some length that is not the archive's, and more of it"), 0o600); err != nil {
			t.Fatal(err)
		}
		tree, err := s.Tree(t.Context(), tenant, repo, "1.0.0")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tree.ReadFile("values.yaml"); fault.KindOf(err) != fault.Offline {
			t.Errorf("damaged bytes: %v", err)
		}
		reads(t, s, repo, "a: 1\n")
	})
}
