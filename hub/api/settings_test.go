package api_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
)

type settings struct {
	Version  int64
	Warnings []string
	Items    []struct {
		Map, Key, Value string
		Secret, Used    bool
		UpdatedBy       string
	}
	Known []struct{ Map, Key, About, Sample string }
}

func (s settings) lines() (out []string) {
	for _, i := range s.Items {
		out = append(out, i.Map+"/"+i.Key+"="+i.Value)
	}
	return out
}

// patch is the body of a change of argocd-cm.
func patch(values map[string]any) map[string]any {
	return map[string]any{"values": map[string]any{"argocd-cm": values}}
}

func TestSettings(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin, other, reader := w.Admin("acme"), w.Admin("bolt"), w.User("acme", "reader", hub.RoleReadOnly)
	get := func(secret string) (s settings) {
		w.call(secret, "GET", "/api/v1/settings", nil).ok(200).into(&s)
		return s
	}
	t.Run("CFG-03 keys are merged, and only an explicit null removes one", func(t *testing.T) {
		apply := func(data string) (result, warnings string) {
			var out struct {
				Results []struct {
					Result   string
					Warnings []string
				}
			}
			w.call(admin, "POST", "/api/v1/apply", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: argocd-cm, namespace: argocd}\ndata: "+data+"\n").ok(200).into(&out)
			return out.Results[0].Result, strings.Join(out.Results[0].Warnings, ";")
		}
		result, warnings := apply(`{commit.author.name: "https://a", resource.exclusions: "- kinds: [A]"}`)
		if result != "created" || !strings.Contains(warnings, "commit.author.name of argocd-cm is stored, but not used yet") || strings.Contains(warnings, "exclusions") {
			t.Errorf("%s: %s", result, warnings)
		}
		if result, _ := apply(`{commit.author.name: "https://b"}`); result != "configured" {
			t.Errorf("a change is %s", result)
		}
		if result, _ := apply(`{commit.author.name: "https://b"}`); result != "unchanged" {
			t.Errorf("no change is %s", result)
		}
		if got := get(admin).lines(); !slices.Equal(got, []string{"argocd-cm/commit.author.name=https://b", "argocd-cm/resource.exclusions=- kinds: [A]"}) {
			t.Errorf("%q", got)
		}
		apply(`{commit.author.name: null, never.there: null}`)
		if s := get(admin); !slices.Equal(s.lines(), []string{"argocd-cm/resource.exclusions=- kinds: [A]"}) || s.Version != 3 || s.Items[0].UpdatedBy == "" || len(s.Known) == 0 {
			t.Errorf("%+v", s)
		}
	})
	t.Run("ISO-6 settings are a tenant's own", func(t *testing.T) {
		if s := get(other); len(s.Items) != 0 || s.Version != 0 {
			t.Errorf("%+v", s)
		}
		w.call(reader, "GET", "/api/v1/settings", nil).fails(403)
		w.call(reader, "PATCH", "/api/v1/settings", patch(map[string]any{"url": "https://x.example.com"})).fails(403)
	})
	t.Run("CFG-03 a bad value changes nothing, and names ConfigMap, key and line", func(t *testing.T) {
		before := get(admin)
		p := w.call(admin, "PATCH", "/api/v1/settings", patch(map[string]any{"url": "https://c", "resource.inclusions": "- apiGroups: [a]\n  kind: [b]\n"})).fails(400)
		for _, word := range []string{"argocd-cm", "resource.inclusions", "line 2"} {
			if !strings.Contains(p.Message, word) {
				t.Errorf("%q does not say %q", p.Message, word)
			}
		}
		w.call(admin, "PATCH", "/api/v1/settings", map[string]any{"values": map[string]any{"kube-root-ca.crt": map[string]any{"a": "b"}}}).fails(400)
		w.call(admin, "PATCH", "/api/v1/settings", map[string]any{"values": map[string]any{}}).fails(400)
		if after := get(admin); after.Version != before.Version || !slices.Equal(after.lines(), before.lines()) {
			t.Errorf("%+v", after)
		}
	})
	t.Run("a dry run changes nothing", func(t *testing.T) {
		before := get(admin).Version
		w.call(admin, "PATCH", "/api/v1/settings?dryRun=true", patch(map[string]any{"url": "https://d"})).ok(200)
		if v := get(admin).Version; v != before {
			t.Errorf("version %d", v)
		}
	})
	t.Run("a change of what someone else has changed is refused", func(t *testing.T) {
		tag := w.call(admin, "GET", "/api/v1/settings", nil).ok(200).header.Get("ETag")
		w.call(admin, "PATCH", "/api/v1/settings", patch(map[string]any{"url": "https://e"}), header("If-Match", tag)).ok(200)
		w.call(admin, "PATCH", "/api/v1/settings", patch(map[string]any{"url": "https://f"}), header("If-Match", tag)).fails(412)
	})
	t.Run("SEC-C1 values of Secrets are in no answer and no record", func(t *testing.T) {
		const canary = "hunter2-canary"
		text := "apiVersion: v1\nkind: Secret\nmetadata: {name: argocd-secret, namespace: argocd}\nstringData: {webhook.github.secret: " + canary + "}\n"
		for _, want := range []string{"configured", "unchanged"} {
			if body := string(w.call(admin, "POST", "/api/v1/apply", text).ok(200).body); !strings.Contains(body, `"result":"`+want+`"`) || strings.Contains(body, canary) {
				t.Errorf("want %s: %s", want, body)
			}
		}
		// People write passwords into the ConfigMap, too.
		w.call(admin, "PATCH", "/api/v1/settings", patch(map[string]any{"oidc.config": "issuer: https://idp.example.com\nclientID: x\nclientSecret: " + canary})).ok(200)
		w.call(admin, "PATCH", "/api/v1/settings", patch(map[string]any{"oidc.config": nil})).ok(200)
		for _, path := range []string{"/api/v1/settings", "/api/v1/audit?limit=500"} {
			if body := string(w.call(admin, "GET", path, nil).ok(200).body); strings.Contains(body, canary) {
				t.Errorf("%s has the secret", path)
			}
		}
		listed := false
		for _, i := range get(admin).Items {
			listed = listed || i.Key == "webhook.github.secret" && i.Secret
		}
		if !listed {
			t.Error("the secret is not listed")
		}
	})
	t.Run("INV-11 changes are in the audit log", func(t *testing.T) {
		body := string(w.call(admin, "GET", "/api/v1/audit?limit=500", nil).ok(200).body)
		for _, word := range []string{"argocd-cm/resource.exclusions", "argocd-secret/webhook.github.secret", "- kinds: [A]"} {
			quoted, _ := json.Marshal(word)
			if !strings.Contains(body, strings.Trim(string(quoted), `"`)) {
				t.Errorf("the audit log does not have %q", word)
			}
		}
	})
}

// Settings for agents travel in the log of each cluster.
func TestSettingsReachClusters(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin := w.Admin("acme")
	enroll := func(name, server string) {
		body := map[string]any{"name": name}
		if server != "" {
			body["server"] = server
		}
		w.call(admin, "POST", "/api/v1/clusters/enroll", body).ok(201)
	}
	kinds := func(cluster string) string {
		tenant := w.Tenant("acme")
		var out []string
		if err := w.DB.InTenant(t.Context(), tenant, func(ctx context.Context, tx *store.Tenant) error {
			c, err := tx.Cluster(ctx, cluster)
			if err != nil {
				return err
			}
			row, found, err := tx.SettingsRow(ctx, c.ID)
			if err != nil || !found {
				out = []string{"none"}
				return err
			}
			var s linkv1.Settings
			if err := proto.Unmarshal(row.Body, &s); err != nil {
				return err
			}
			for _, e := range s.GetExclusions() {
				out = append(out, e.GetKinds()...)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return strings.Join(out, ",")
	}
	expect := func(want map[string]string) {
		t.Helper()
		for cluster, list := range want {
			if got := kinds(cluster); got != list {
				t.Errorf("cluster %s holds %q, not %q", cluster, got, list)
			}
		}
	}
	enroll("one", "")
	enroll("two", "https://two.example.com")
	w.call(admin, "PATCH", "/api/v1/settings", patch(map[string]any{"url": "https://x.example.com"})).ok(200)
	expect(map[string]string{"one": "none", "two": "none"}) // nothing that concerns agents
	w.call(admin, "PATCH", "/api/v1/settings", patch(map[string]any{
		"resource.exclusions": "- kinds: [A]\n- kinds: [B]\n  clusters: ['https://*.example.com']\n- kinds: [C]\n  clusters: [one, three]\n",
	})).ok(200)
	t.Run("CLU-13 each cluster gets the rules that match it", func(t *testing.T) { expect(map[string]string{"one": "A,C", "two": "A,B"}) })
	t.Run("CLU-13 a new cluster, and one that is called otherwise", func(t *testing.T) {
		enroll("three", "")
		expect(map[string]string{"three": "A,C"})
		w.call(admin, "PUT", "/api/v1/clusters/three", map[string]any{"server": "https://three.example.com"}).ok(200)
		expect(map[string]string{"three": "A,B,C", "one": "A,C"})
	})
	t.Run("what is not about agents gives them no row", func(t *testing.T) {
		row := func() (seq int64) {
			_ = w.DB.InTenant(t.Context(), w.Tenant("acme"), func(ctx context.Context, tx *store.Tenant) error {
				c, err := tx.Cluster(ctx, "one")
				if err != nil {
					return err
				}
				_, head, err := tx.RowsAfter(ctx, c.ID, 0, 10)
				seq = head.Seq
				return err
			})
			return seq
		}
		before := row()
		w.call(admin, "PATCH", "/api/v1/settings", patch(map[string]any{"exec.enabled": "true"})).ok(200)
		if row() != before {
			t.Error("a row was written")
		}
	})
}

// Every settings manifest of the guide is taken as it is.
func TestSettingsOfTheGuide(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin := w.Admin("acme")
	for _, file := range []string{
		"01-argocd-cm.yaml", "07-repositories.yaml", "09-custom-health.yaml", "14-cluster-secret.yaml", "16-argocd-rbac-cm.yaml", "17-sso.yaml",
		"18-webhook-secret.yaml", "19-notifications.yaml", "21-resource-actions.yaml", "23-cmd-params.yaml",
	} {
		text, err := os.ReadFile(filepath.Join("..", "..", "integration", "testdata", "guide", file))
		if err != nil {
			t.Fatal(err)
		}
		if body := string(w.call(admin, "POST", "/api/v1/apply", string(text)).ok(200).body); !strings.Contains(body, `"failed":0`) {
			t.Errorf("%s: %s", file, body)
		}
	}
}
