package stories_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/integration/rigs/poll"
	"github.com/capstan-cd/capstan/integration/rigs/scmhosts"
)

func TestPullRequestsOfTheGuide(t *testing.T) {
	repo := repository(t, "set-pulls", map[string]string{
		"deploy/Chart.yaml":        "apiVersion: v2\nname: my-app\nversion: 1.0.0\n",
		"deploy/templates/cm.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: v}\ndata: {v: '{{ .Values.ingress.host }}'}\n",
	})
	commit := head(t, repo)
	host := scmhosts.New(t, scmhosts.GitHub)
	pull := func(number int64, labels ...string) scmhosts.Pull {
		return scmhosts.Pull{Number: number, Title: "a change", Source: fmt.Sprintf("branch-%d", number), Target: "main", SHA: commit, Labels: labels, Author: "ann"}
	}
	put := func(pulls ...scmhosts.Pull) {
		host.Put(scmhosts.Repository{ID: 1, Name: "my-app", Default: "main", Branches: []scmhosts.Branch{{Name: "main", SHA: commit}}, Pulls: pulls})
	}
	put(pull(1, "deploy-preview"), pull(2))
	indent := strings.ReplaceAll(strings.TrimSpace(host.CA()), "\n", "\n    ")
	trust := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: argocd-tls-certs-cm, namespace: argocd}\ndata:\n  127.0.0.1: |\n    " + indent + "\n"
	secret := func(url string) string {
		return fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: github-token, namespace: argocd, labels: {argocd.argoproj.io/secret-type: scm-creds}}\n"+
			"stringData: {token: %q, url: %q}\n", host.Token, url)
	}
	for _, text := range []string{trust, secret("https://elsewhere.example.com")} {
		if _, err := s.API.Apply(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if out, err := s.API.CLI(context.WithoutCancel(t.Context()), "", "cert", "rm", "127.0.0.1", "--cert-type", "https", "--yes"); err != nil {
			t.Error(err, out)
		}
	})
	text := strings.NewReplacer("owner: my-org", "owner: acme\n          api: "+host.HTTP.URL, "https://github.com/my-org/my-app.git", repo.URL()).
		Replace(guideFile(t, "13-applicationset-pull-request.yaml"))
	t.Run("SEC-A6 SEC-D11 a token is sent to no host that its Secret or the tenant does not name", func(t *testing.T) {
		if _, err := s.API.Apply(t.Context(), text); err != nil {
			t.Fatal(err)
		}
		setUntil(t, "my-app-previews", func(x shownSet) error {
			if status, message := x.condition("ErrorOccurred"); status != "True" || !strings.Contains(message, "is not for 127.0.0.1") {
				return fmt.Errorf("%+v", x.Status.Conditions)
			}
			return nil
		})
		if calls := host.Calls(); len(calls) > 0 {
			t.Errorf("%+v", calls)
		}
	})
	refresh := func() {
		t.Helper()
		if err := s.API.Do(within(t, waitLimit), "POST", "/api/v1/applicationsets/argocd/my-app-previews/refresh", map[string]any{}, nil); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("AGEN-10 AGEN-11 CRED-04 the guide's set makes an application of each pull request with the label", func(t *testing.T) {
		if _, err := s.API.Apply(t.Context(), secret(host.HTTP.URL)); err != nil {
			t.Fatal(err)
		}
		setUntil(t, "my-app-previews", healthySet(1))
		spec := applied(t, "pr-1-my-app")
		if !strings.Contains(spec, "targetRevision: "+commit) || !strings.Contains(spec, "pr-1.preview.example.com") {
			t.Errorf("%s", spec)
		}
	})
	t.Run("AGEN-10 an application comes and goes with its pull request", func(t *testing.T) {
		put(pull(1, "deploy-preview"), pull(3, "deploy-preview"))
		refresh()
		setUntil(t, "my-app-previews", healthySet(2))
		put()
		refresh()
		absent(t, "pr-1-my-app")
		absent(t, "pr-3-my-app")
	})
	t.Run("FT-G2 ASET-11 a host that fails, or limits requests, deletes nothing", func(t *testing.T) {
		put(pull(4, "deploy-preview"))
		refresh()
		setUntil(t, "my-app-previews", healthySet(1))
		put()
		host.Limit(0, host.Now())
		refresh()
		setUntil(t, "my-app-previews", func(x shownSet) error {
			if status, _ := x.condition("ErrorOccurred"); status != "True" {
				return fmt.Errorf("%+v", x.Status.Conditions)
			}
			return nil
		})
		settledNames(t, "pr-4-my-app")
		host.Limit(-1, host.Now())
		refresh()
		absent(t, "pr-4-my-app")
	})
	if slices.ContainsFunc(host.Calls(), func(c scmhosts.Call) bool { return !strings.Contains(c.Authority, host.Token) }) {
		t.Error("a request carried another token")
	}
	cli(t, "appset", "delete", "my-app-previews", "--yes")
	if err := poll.Until(within(t, waitLimit), func(ctx context.Context) error {
		if _, err := s.API.CLI(ctx, "", "appset", "get", "my-app-previews"); err == nil {
			return fmt.Errorf("the set is still there")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}
