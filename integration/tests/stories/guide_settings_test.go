package stories_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/capstan-cd/capstan/integration/rigs/stack"
)

// guideSettings are the manifests of the guide about settings, access and
// sign-ins, in the order in which an organisation applies them.
var guideSettings = []string{
	"01-argocd-cm.yaml", "07-repositories.yaml", "14-cluster-secret.yaml", "15-appproject.yaml", "16-argocd-rbac-cm.yaml", "17-sso.yaml", "18-webhook-secret.yaml", "23-cmd-params.yaml",
}

// organisation makes a tenant of its own and signs its first admin in.
func organisation(t *testing.T, name string) *stack.API {
	t.Helper()
	out, err := s.API.CLI(within(t, waitLimit), "", "tenant", "create", name, "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	var made struct {
		SetupToken string `json:"setupToken"`
	}
	if err := json.Unmarshal([]byte(out), &made); err != nil {
		t.Fatal(err)
	}
	admin, err := s.SecondAdmin(within(t, waitLimit), t.TempDir(), made.SetupToken)
	if err != nil {
		t.Fatal(err)
	}
	return admin
}

// manifests parses YAML documents.
func manifests(t *testing.T, text string) []unstructured.Unstructured {
	t.Helper()
	var out []unstructured.Unstructured
	for _, doc := range strings.Split(text, "\n---\n") {
		var object map[string]any
		if err := yaml.Unmarshal([]byte(doc), &object); err != nil {
			t.Fatal(err)
		}
		if len(object) > 0 {
			out = append(out, unstructured.Unstructured{Object: object})
		}
	}
	return out
}

func TestGuideOfSettings(t *testing.T) {
	admin := organisation(t, "guide-settings")
	capstan := func(t *testing.T, args ...string) string {
		t.Helper()
		out, err := admin.CLI(within(t, waitLimit), "", args...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	contains := func(t *testing.T, text string, all ...string) {
		t.Helper()
		for _, want := range all {
			if !strings.Contains(text, want) {
				t.Errorf("%q is missing in\n%s", want, text)
			}
		}
	}
	answers := map[string]string{}
	t.Run("CFG-01 UX-CLI-10 guide/01, 07, 14, 15, 16, 17, 18 and 23 are applied as written", func(t *testing.T) {
		for _, file := range guideSettings {
			answers[file] = capstan(t, "apply", "-f", filepath.Join("..", "..", "testdata", "guide", file), "-o", "json")
			if strings.Contains(answers[file], `"error"`) || strings.Contains(answers[file], "ghp_xxx") {
				t.Errorf("%s: %s", file, answers[file])
			}
			if file == "07-repositories.yaml" {
				continue // passwords are stored again
			}
			again := capstan(t, "apply", "-f", filepath.Join("..", "..", "testdata", "guide", file))
			if strings.Contains(again, "created") || strings.Contains(again, "configured") {
				t.Errorf("%s again: %s", file, again)
			}
		}
	})
	t.Run("CFG-01 guide/01: settings are kept, and one without effect says so", func(t *testing.T) {
		contains(t, answers["01-argocd-cm.yaml"], "server.enable.server.side.diff of argocd-cm is stored without effect")
		if got := answers["01-argocd-cm.yaml"]; strings.Contains(got, "not used yet") {
			t.Errorf("badges and terminals have an effect:\n%s", got)
		}
		contains(t, capstan(t, "settings", "get"), "statusbadge.enabled", "exec.enabled", "resource.exclusions", "kustomize.buildOptions")
	})
	t.Run("CRED-01 guide/07: repository and credential template are there, without their passwords", func(t *testing.T) {
		out := capstan(t, "repo", "list", "-o", "json") + capstan(t, "repocreds", "list", "-o", "json")
		contains(t, out, "https://github.com/my-org/my-private-repo", `"https://github.com/my-org"`)
		if strings.Contains(out, "ghp_") {
			t.Error("a password is shown")
		}
	})
	t.Run("CLU-01 guide/14: the cluster is registered, and its credentials are not stored", func(t *testing.T) {
		contains(t, answers["14-cluster-secret.yaml"], "bearerToken and tlsClientConfig were not stored")
		contains(t, capstan(t, "cluster", "get", "production-cluster", "-o", "json"), "https://production.k8s.example.com", `"environment"`)
	})
	t.Run("PROJ-12 WIN-01 guide/15: the role of the project has its rights, and the window is listed", func(t *testing.T) {
		can := func(who ...string) string {
			return strings.TrimSpace(capstan(t, append([]string{"account", "can-i", "sync", "applications", "team-backend/web", "--user", "jane"}, who...)...))
		}
		if got := can("--groups", "my-org:backend-developers"); got != "yes" {
			t.Errorf("a member of the role's group: %s", got)
		}
		if got := can("--groups", "my-org:frontend-developers"); got != "no" {
			t.Errorf("a member of another group: %s", got)
		}
		contains(t, capstan(t, "project", "windows", "list", "team-backend"), "0 6-22 * * 1-5")
	})
	t.Run("RBAC-03 guide/16: its roles and its default decide", func(t *testing.T) {
		for _, c := range []struct{ action, resource, object, groups, want string }{
			{"get", "applications", "other/web", "nobody", "yes"}, // the default role
			{"sync", "applications", "other/web", "nobody", "no"},
			{"sync", "applications", "other/web", "my-org:developers", "yes"},
			{"delete", "applications", "other/web", "my-org:developers", "no"},
			{"delete", "applications", "other/web", "my-org:sre-team", "yes"},
			{"create", "clusters", "x", "my-org:sre-team", "no"},
			{"create", "clusters", "x", "my-org:platform-team", "yes"},
		} {
			if got := strings.TrimSpace(capstan(t, "account", "can-i", c.action, c.resource, c.object, "--user", "jane", "--groups", c.groups)); got != c.want {
				t.Errorf("%s %s %s for %s: %s", c.action, c.resource, c.object, c.groups, got)
			}
		}
	})
	t.Run("AUTH-07 AUTH-08 guide/17: the providers are offered, and local accounts sign in no more", func(t *testing.T) {
		contains(t, answers["17-sso.yaml"], "$dex.github.clientID")
		var offered struct{ Items []struct{ Name string } }
		if err := s.API.Do(t.Context(), http.MethodGet, "/api/v1/login/providers?tenant=guide-settings", nil, &offered); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(offered.Items); !strings.Contains(got, "Okta") {
			t.Errorf("the providers are %s", got)
		}
		capstan(t, "app", "list") // the admin who did it stays signed in
	})
	t.Run("HOOKW-03 guide/18: an event with the secret is accepted, and one without is refused", func(t *testing.T) {
		body := []byte(`{"ref":"refs/heads/main","repository":{"html_url":"https://github.com/my-org/my-private-repo","default_branch":"main"}}`)
		for secret, accepted := range map[string]bool{"my-github-webhook-secret": true, "guessed": false} {
			if status := pushEvent(t, secret, body); (status < 300) != accepted {
				t.Errorf("with the secret %q the answer is %d", secret, status)
			}
		}
	})
	t.Run("CFG-20 guide/23: the parameters are kept", func(t *testing.T) {
		contains(t, capstan(t, "settings", "get"), "controller.status.processors", "reposerver.parallelism.limit")
	})
	t.Run("CFG-01 an unknown setting is refused by name, and nothing of its map is stored", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "odd.yaml")
		if err := os.WriteFile(file, []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: argocd-cm}\ndata: {statusbadge.enabeld: 'true', url: 'https://odd.example.com'}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := admin.CLI(within(t, waitLimit), "", "apply", "-f", file)
		var failed *stack.CLIError
		if !errors.As(err, &failed) || failed.Code != 2 || !strings.Contains(out, "statusbadge.enabeld") || !strings.Contains(out, "statusbadge.enabled") {
			t.Errorf("%v: %s", err, out)
		}
		if strings.Contains(capstan(t, "settings", "get"), "odd.example.com") {
			t.Error("a part of it is stored")
		}
	})
	t.Run("CLI-13 UX-CLI-10 all of it comes back by an export, but for values of secrets", func(t *testing.T) {
		exported := map[string]unstructured.Unstructured{}
		for _, m := range manifests(t, capstan(t, "export")) {
			exported[m.GetKind()+" "+m.GetName()] = m
		}
		compareExport(t, exported)
	})
}

// compareExport checks that each manifest of the guide is in an export. The data
// of a ConfigMap that two files write is that of both.
func compareExport(t *testing.T, exported map[string]unstructured.Unstructured) {
	t.Helper()
	last := map[string]string{}
	for _, file := range guideSettings {
		for _, m := range manifests(t, guideFile(t, file)) {
			data, _, _ := unstructured.NestedStringMap(m.Object, "data")
			for key, value := range data {
				last[m.GetName()+" "+key] = strings.TrimSpace(value)
			}
			got, there := find(exported, m)
			if !there {
				t.Errorf("%s: %s %s is missing", file, m.GetKind(), m.GetName())
				continue
			}
			secrets, _, _ := unstructured.NestedStringMap(m.Object, "stringData")
			for key, value := range secrets {
				shown, _, _ := unstructured.NestedString(got.Object, "stringData", key)
				hidden := key == "password" || strings.HasPrefix(key, "webhook.")
				switch {
				case hidden && !strings.Contains(shown, "not exported"):
					t.Errorf("%s: %s is shown as %q", file, key, shown)
				case !hidden && key != "config" && strings.TrimSuffix(shown, ".git") != strings.TrimSuffix(value, ".git"):
					t.Errorf("%s: %s comes back as %q, want %q", file, key, shown, value)
				}
			}
			if m.GetKind() == "AppProject" {
				want, is := normal(t, m.Object).(map[string]any)["spec"], normal(t, got.Object)
				if object, ok := is.(map[string]any); !ok || fmt.Sprint(object["spec"]) != fmt.Sprint(want) {
					t.Errorf("%s comes back as %v, want %v", file, is, want)
				}
			}
		}
	}
	for name, value := range last {
		of, key, _ := strings.Cut(name, " ")
		got, _, _ := unstructured.NestedStringMap(exported["ConfigMap "+of].Object, "data")
		if strings.TrimSpace(got[key]) != value {
			t.Errorf("%s of %s comes back as %q, want %q", key, of, got[key], value)
		}
	}
}

// find returns an exported object. Secrets of repositories and clusters have
// names of their own: they are found by what they are about.
func find(exported map[string]unstructured.Unstructured, m unstructured.Unstructured) (unstructured.Unstructured, bool) {
	const kind = "argocd.argoproj.io/secret-type"
	if got, there := exported[m.GetKind()+" "+m.GetName()]; there || m.GetLabels()[kind] == "" {
		return got, there
	}
	about := func(o unstructured.Unstructured) string {
		url, _, _ := unstructured.NestedString(o.Object, "stringData", "url")
		server, _, _ := unstructured.NestedString(o.Object, "stringData", "server")
		return strings.TrimSuffix(url, ".git") + server
	}
	for _, o := range exported {
		if o.GetLabels()[kind] == m.GetLabels()[kind] && about(o) == about(m) {
			return o, true
		}
	}
	return m, false
}

// pushEvent sends a push of GitHub, signed by a secret, and returns the status.
func pushEvent(t *testing.T, secret string, body []byte) int {
	t.Helper()
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL()+"/api/webhook", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-GitHub-Event", "push")
	r.Header.Set("X-GitHub-Delivery", fmt.Sprint(time.Now().UnixNano()))
	r.Header.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(mac.Sum(nil)))
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}
