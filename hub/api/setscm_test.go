package api_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/integration/rigs/canary"
	"github.com/capstan-cd/capstan/integration/rigs/scmhosts"
)

// previews is a set as of guide 13, whose pull requests a server of the test has.
func previews(api string) string {
	return fmt.Sprintf(`apiVersion: argoproj.io/v1alpha1
kind: ApplicationSet
metadata: {name: previews, namespace: argocd}
spec:
  goTemplate: true
  generators:
    - pullRequest:
        github: {owner: acme, repo: shop, api: %q, tokenRef: {secretName: github-token, key: token}, labels: [deploy-preview]}
        requeueAfterSeconds: 60
  template:
    metadata: {name: 'pr-{{.number}}-{{.branch_slug}}'}
    spec:
      project: default
      source: {repoURL: https://git.test/shop.git, targetRevision: '{{.head_sha}}', path: deploy}
      destination: {name: prod, namespace: 'pr-{{.number}}'}
`, api)
}

// A set lists the pull requests of a server, with a Secret of the tenant.
func TestSetsOfGitHosts(t *testing.T) {
	t.Parallel()
	s, host, secrets := newSetHub(t), scmhosts.New(t, scmhosts.GitHub), canary.New()
	host.Token = secrets.Plant("token")
	pull := func(numbers ...int64) {
		r := scmhosts.Repository{ID: 1, Name: "shop", Default: "main", Branches: []scmhosts.Branch{{Name: "main", SHA: scmhosts.SHA("main")}}}
		for _, n := range numbers {
			r.Pulls = append(r.Pulls, scmhosts.Pull{Number: n, Title: "Add", Source: fmt.Sprintf("feature/%d_x", n), Target: "main", SHA: scmhosts.SHA(fmt.Sprint(n)), Author: "ana", Labels: []string{"deploy-preview"}})
		}
		host.Put(r)
	}
	pull(3, 4)
	s.in(func(ctx context.Context, tx *store.Tenant) error {
		if err := tx.LockSettings(ctx); err != nil {
			return err
		}
		return tx.ChangeSettings(ctx, []hub.Setting{{Map: hub.CertificatesMap, Key: "127.0.0.1", Value: host.CA(), UpdatedAt: time.Now(), UpdatedBy: "ann"}}, nil)
	})
	secret := func(url string) {
		s.apply("apiVersion: v1\nkind: Secret\nmetadata: {name: github-token, namespace: argocd, labels: {argocd.argoproj.io/secret-type: scm-creds}}\nstringData: {token: " + host.Token + url + "}\n")
	}
	refresh := func(forced bool) hub.ApplicationSet {
		t.Helper()
		if _, err := s.Catalog.ReconcileApplicationSet(t.Context(), s.tenant, s.set("previews").ID, forced); err != nil {
			t.Fatal(err)
		}
		return s.set("previews")
	}
	failed := func(set hub.ApplicationSet) string {
		for _, c := range set.Status.Conditions {
			if c.Type == hub.SetErrorOccurred && c.Status == hub.ConditionTrue {
				return c.Message
			}
		}
		return ""
	}
	s.apply(previews(host.HTTP.URL))
	t.Run("CRED-04 without the Secret, or with one for another host, nothing is sent", func(t *testing.T) {
		if m := failed(refresh(true)); !strings.Contains(m, "github-token") {
			t.Errorf("without a Secret: %q", m)
		}
		secret(", url: https://github.example.com")
		if m := failed(refresh(true)); !strings.Contains(m, "not for 127.0.0.1") || len(host.Calls()) > 0 {
			t.Errorf("a Secret of another host: %q, %v", m, host.Calls())
		}
	})
	t.Run("AGEN-10 AGEN-11 an application for each pull request", func(t *testing.T) {
		secret(", url: '" + host.HTTP.URL + "'")
		set := refresh(true)
		if got := s.apps(); failed(set) != "" || !slices.Equal(got, []string{"pr-3-feature-3-x", "pr-4-feature-4-x"}) {
			t.Errorf("%v, %q", got, failed(set))
		}
	})
	t.Run("pain 41 the next reconcile asks nothing, and one that is forced does (part)", func(t *testing.T) {
		pull(3, 4, 5, 6, 7, 8, 9)
		host.Forget()
		if refresh(false); len(host.Calls()) > 0 {
			t.Errorf("requests %v", host.Calls())
		}
		if refresh(true); len(s.apps()) != 7 || len(host.Calls()) != 1 {
			t.Errorf("%v after %v", s.apps(), host.Calls())
		}
	})
	t.Run("ANY-05 settings say which hosts generators may ask, and Secrets always need their label", func(t *testing.T) {
		param := func(key, value string) {
			t.Helper()
			s.apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: argocd-cmd-params-cm, namespace: argocd}\ndata: {applicationsetcontroller.enable.tokenref.strict.mode: 'false', " + key + ": '" + value + "'}\n")
		}
		host.Forget()
		secret("")
		param(hub.SetAllowedHostsKey, "https://git.example.com")
		if m := failed(refresh(true)); !strings.Contains(m, "may not be sent to 127.0.0.1") {
			t.Errorf("a host that is not listed: %q", m)
		}
		param(hub.SetHostsKey, "false")
		if m := failed(refresh(true)); !strings.Contains(m, "may not ask Git hosts") || len(host.Calls()) > 0 {
			t.Errorf("hosts switched off: %q, %v", m, host.Calls())
		}
		param(hub.SetHostsKey, "true")
		param(hub.SetAllowedHostsKey, "https://git.example.com,"+host.HTTP.URL)
		if m := failed(refresh(true)); m != "" || len(s.apps()) != 7 {
			t.Errorf("a host that is listed: %q, %v", m, s.apps())
		}
	})
	t.Run("FT-G2 FT-G3 a host that fails changes and deletes nothing", func(t *testing.T) {
		var broken atomic.Pointer[func(http.ResponseWriter)]
		host.Override = func(w http.ResponseWriter, _ *http.Request) bool {
			if fail := broken.Load(); fail != nil {
				(*fail)(w)
				return true
			}
			return false
		}
		pull()
		for name, fail := range map[string]func(http.ResponseWriter){
			"status 500":    func(w http.ResponseWriter) { w.WriteHeader(http.StatusInternalServerError) },
			"HTML with 200": func(w http.ResponseWriter) { _, _ = w.Write([]byte("<html></html>")) },
			"status 404 of a proxy": func(w http.ResponseWriter) {
				w.WriteHeader(http.StatusNotFound)
			},
			"half an answer": func(w http.ResponseWriter) {
				w.Header().Set("Content-Type", "application/json")
				w.Header().Set("Content-Length", "100")
				_, _ = w.Write([]byte("["))
			},
		} {
			broken.Store(&fail)
			if m := failed(refresh(true)); m == "" || len(s.apps()) != 7 {
				t.Errorf("%s: %q, %v", name, m, s.apps())
			}
		}
		broken.Store(nil)
		if set := refresh(true); failed(set) != "" || set.Status.Held == nil || len(s.apps()) != 7 {
			t.Errorf("an empty list is held: %+v, %v", set.Status.Held, s.apps())
		}
	})
	t.Run("AGEN-17 the set is found by the place of its repository", func(t *testing.T) {
		targets, err := s.DB.System().WebhookTargets(t.Context(), nil, []string{"127.0.0.1/acme/shop"})
		if err != nil || len(targets) != 1 || !slices.Equal(targets[0].Sets, []hub.ApplicationSetID{s.set("previews").ID}) {
			t.Errorf("%+v, %v", targets, err)
		}
	})
	t.Run("SEC-D16 no status and no log has the token", func(t *testing.T) {
		for _, leak := range append(secrets.Find("the log", []byte(s.Log.String())), secrets.Find("the set", fmt.Appendf(nil, "%+v", s.set("previews")))...) {
			t.Error(leak)
		}
	})
}
