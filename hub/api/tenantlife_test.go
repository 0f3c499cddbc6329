package api_test

import (
	"archive/zip"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/integration/rigs/canary"
	"github.com/capstan-cd/capstan/shared/auditlog"
)

// platform is a platform admin in the tenant of the platform.
func (w *world) platform() string {
	return w.User("default", "root", hub.RolePlatformAdmin, hub.RoleTenantAdmin)
}

type tenantView struct {
	Name, SuspendedReason string
	Suspended             bool
	PurgeAt, DeletedAt    time.Time
}

func TestSuspension(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	root, admin := w.platform(), w.Admin("acme")
	w.call(admin, "POST", "/api/v1/applications", application("web")).ok(201)
	var token struct{ Token string }
	w.call(admin, "POST", "/api/v1/tokens", map[string]any{"name": "ci"}).ok(201).into(&token)
	signIn := map[string]any{"tenant": "acme", "username": "admin", "password": password, "mode": "token"}
	link := w.SetupLink("acme", hub.RoleReadOnly)
	var got tenantView
	t.Run("ISO-10 a suspended tenant has no sessions, tokens, sign-ins, setup links and streams", func(t *testing.T) {
		stream := w.follow(t, admin)
		defer stream.Close()
		w.call(root, "POST", "/api/v1/tenants/acme/suspend", map[string]any{"reason": "unpaid"}).ok(200).into(&got)
		if !got.Suspended || got.SuspendedReason != "unpaid" {
			t.Errorf("the tenant is %+v", got)
		}
		w.call(admin, "GET", "/api/v1/applications", nil).fails(401)
		w.call(token.Token, "GET", "/api/v1/applications", nil).fails(401)
		w.call("", "POST", "/api/v1/login", signIn).fails(401)
		w.call("", "POST", "/api/v1/setup", map[string]any{"token": link, "username": "new", "password": password}).fails(404)
		if _, err := io.Copy(io.Discard, stream); err != nil { // it ends by itself
			t.Error(err)
		}
	})
	t.Run("ISO-10 the work of a suspended tenant is not claimed, and is again once it is resumed", func(t *testing.T) {
		claim := func() int {
			items, err := w.DB.System().Claim(t.Context(), hub.WorkRefresh, "replica", 10, time.Nanosecond)
			if err != nil {
				t.Fatal(err)
			}
			return len(items)
		}
		if err := w.DB.System().Enqueue(t.Context(), hub.WorkRefresh, w.Tenant("acme"), string(hub.NewID[hub.ApplicationID]()), time.Now().Add(-time.Minute), false); err != nil {
			t.Fatal(err)
		}
		if n := claim(); n != 0 {
			t.Errorf("%d items were claimed", n)
		}
		got = tenantView{}
		w.call(root, "POST", "/api/v1/tenants/acme/resume", nil).ok(200).into(&got)
		if got.Suspended || claim() == 0 {
			t.Errorf("the resumed tenant is %+v, or its work is not claimed", got)
		}
		w.call(admin, "GET", "/api/v1/applications/argocd/web", nil).ok(200)
		w.call("", "POST", "/api/v1/login", signIn).ok(200)
	})
	t.Run("ISO-11 both sides have it in their audit logs", func(t *testing.T) {
		for who, actor := range map[string]string{root: "root", admin: "root (platform admin)"} {
			var l struct {
				Items []struct{ Actor, Object, Reason, Result string }
			}
			w.call(who, "GET", "/api/v1/audit?action=suspend&resource=tenants", nil).ok(200).into(&l)
			if len(l.Items) != 1 || l.Items[0].Actor != actor || l.Items[0].Object != "acme" || l.Items[0].Reason != "unpaid" {
				t.Errorf("the records of %s are %+v", actor, l.Items)
			}
		}
	})
	t.Run("the platform's admins cannot shut themselves out", func(t *testing.T) {
		w.call(root, "POST", "/api/v1/tenants/default/suspend", nil).fails(409)
		w.call(root, "DELETE", "/api/v1/tenants/default?confirm=default", nil).fails(409)
		w.call(root, "GET", "/api/v1/tenants/default/deletion", nil).fails(409)
		w.call(admin, "POST", "/api/v1/tenants/acme/suspend", nil).fails(403)
		w.call(root, "POST", "/api/v1/tenants/nothing/suspend", nil).fails(404)
	})
}

// follow begins to follow changes.
func (w *world) follow(t *testing.T, secret string) io.ReadCloser {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.URL+"/api/v1/stream", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+secret)
	resp, err := w.Client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("the stream answers %d", resp.StatusCode)
	}
	return resp.Body
}

func TestDeletionOfATenant(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	root, admin := w.platform(), w.Admin("acme")
	w.call(admin, "POST", "/api/v1/applications", application("web")).ok(201)
	w.call(admin, "POST", "/api/v1/clusters/enroll", map[string]any{"name": "prod"}).ok(201)
	t.Run("FT-O1 a deletion says first what will happen, and changes nothing then", func(t *testing.T) {
		var d struct {
			Counts  struct{ Applications, Clusters, Users int }
			Effects []string
			PurgeAt time.Time
		}
		w.call(root, "GET", "/api/v1/tenants/acme/deletion", nil).ok(200).into(&d)
		text := strings.Join(d.Effects, "\n")
		for _, want := range []string{"1 account cannot sign in", "agents of 1 cluster", "1 application and 1 repository", "Nothing in any cluster is deleted", "can be restored", "encryption keys"} {
			if !strings.Contains(text, want) {
				t.Errorf("the effects do not say %q: %s", want, text)
			}
		}
		if d.Counts.Applications != 1 || d.Counts.Clusters != 1 || time.Until(d.PurgeAt) < 6*24*time.Hour {
			t.Errorf("the plan is %+v", d)
		}
		w.call(admin, "GET", "/api/v1/applications", nil).ok(200)
	})
	t.Run("FT-O1 it needs the name once more", func(t *testing.T) {
		w.call(root, "DELETE", "/api/v1/tenants/acme", nil).fails(400)
		w.call(root, "DELETE", "/api/v1/tenants/acme?confirm=Acme", nil).fails(400)
		w.call(admin, "GET", "/api/v1/applications", nil).ok(200)
	})
	t.Run("FT-O1 within the grace period it is restored as it was", func(t *testing.T) {
		var got tenantView
		w.call(root, "DELETE", "/api/v1/tenants/acme?confirm=acme", nil).ok(202).into(&got)
		if !got.Suspended || time.Until(got.PurgeAt) < 6*24*time.Hour || time.Until(got.PurgeAt) > 7*24*time.Hour {
			t.Errorf("the deleted tenant is %+v", got)
		}
		w.call(admin, "GET", "/api/v1/applications", nil).fails(401)
		w.call(root, "DELETE", "/api/v1/tenants/acme?confirm=acme", nil).fails(409)
		w.call(root, "POST", "/api/v1/tenants/acme/resume", nil).fails(409)
		w.call(root, "POST", "/api/v1/tenants", map[string]any{"name": "acme"}).fails(409)
		got = tenantView{}
		w.call(root, "POST", "/api/v1/tenants/acme/restore", nil).ok(200).into(&got)
		if got.Suspended || !got.PurgeAt.IsZero() {
			t.Errorf("the restored tenant is %+v", got)
		}
		w.call(root, "POST", "/api/v1/tenants/acme/restore", nil).fails(409)
		w.call(admin, "GET", "/api/v1/applications/argocd/web", nil).ok(200)
		w.call(admin, "GET", "/api/v1/clusters/prod", nil).ok(200)
	})
	t.Run("its display name can be changed", func(t *testing.T) {
		var got struct{ DisplayName string }
		w.call(root, "PUT", "/api/v1/tenants/acme", map[string]any{"displayName": "Acme Inc."}).ok(200).into(&got)
		if got.DisplayName != "Acme Inc." {
			t.Errorf("it is %q", got.DisplayName)
		}
	})
}

// unpack returns the files of an archive.
func unpack(t *testing.T, archive []byte) map[string]string {
	t.Helper()
	z, err := zip.NewReader(bytes.NewReader(archive), int64(len(archive)))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, f := range z.File {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		out[f.Name] = string(b)
	}
	return out
}

func TestExportOfATenant(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	root, admin, secrets := w.platform(), w.Admin("acme"), canary.New()
	for i := range 3 {
		w.call(admin, "POST", "/api/v1/applications", application(fmt.Sprintf("web-%d", i))).ok(201)
	}
	w.call(w.Admin("bolt"), "POST", "/api/v1/applications", application("web-of-bolt")).ok(201)
	w.call(admin, "POST", "/api/v1/repositories", map[string]any{"url": "https://git.example.com/team/own", "username": "robot", "password": secrets.Plant("repository")}).ok(200)
	w.call(admin, "PATCH", "/api/v1/settings", map[string]any{
		"values": map[string]any{"argocd-cm": map[string]any{"url": "https://cd.example.com"}, "argocd-secret": map[string]any{"webhook.github.secret": secrets.Plant("webhook")}},
	}).ok(200)
	var token struct{ Token string }
	w.call(admin, "POST", "/api/v1/tokens", map[string]any{"name": "ci"}).ok(201).into(&token)
	secrets.Add("token", token.Token)
	secrets.Add("password", password)
	archive := w.call(root, "GET", "/api/v1/tenants/acme/export", nil).ok(200).body
	files := unpack(t, archive)
	t.Run("ISO-10 an archive has all that the tenant owns, and nothing of others", func(t *testing.T) {
		for name, want := range map[string]string{
			"tenant.json": `"name":"acme"`, "applications.yaml": `"name":"web-2"`, "projects.yaml": `"name":"default"`, "settings.jsonl": `"value":"https://cd.example.com"`,
			"repositories.jsonl": "https://git.example.com/team/own", "accounts.jsonl": `"name":"ci"`, "audit.jsonl": `"capstan-audit-end"`, "history.jsonl": "", "clusters.jsonl": "", "policy.csv": "",
		} {
			if text, ok := files[name]; !ok || !strings.Contains(text, want) {
				t.Errorf("%s does not contain %s: %s", name, want, text)
			}
		}
		for name, text := range files {
			if strings.Contains(text, "bolt") {
				t.Errorf("%s has something of another tenant", name)
			}
		}
	})
	t.Run("SEC-C1 it has no secret, no hash of a password or token", func(t *testing.T) {
		for name, text := range files {
			for _, leak := range secrets.Find(name, []byte(text)) {
				t.Error(leak)
			}
			if strings.Contains(text, "argon2") || strings.Contains(text, `"hash":"$`) {
				t.Errorf("%s has a hash of a password", name)
			}
		}
	})
	t.Run("ISO-10 its manifests can be applied in another tenant", func(t *testing.T) {
		other := w.Admin("copy")
		w.call(other, "POST", "/api/v1/apply", files["projects.yaml"]+files["applications.yaml"]).ok(200)
		w.call(other, "GET", "/api/v1/applications/argocd/web-2", nil).ok(200)
	})
	t.Run("INV-11 its audit log can be checked without the hub", func(t *testing.T) {
		report, err := auditlog.Verify(strings.NewReader(files["audit.jsonl"]), nil)
		if err != nil || report.Header.Tenant != "acme" || report.Records < 6 {
			t.Errorf("%+v, %v", report, err)
		}
	})
}

func TestAuditOfTheAPI(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin, reader := w.Admin("acme"), w.User("acme", "reader", hub.RoleReadOnly)
	type record struct {
		Seq                            int64
		Actor, Action, Object, Result  string
		Reason, Address, Via, Resource string
	}
	find := func(query string) []record {
		t.Helper()
		var l struct{ Items []record }
		w.call(admin, "GET", "/api/v1/audit?"+query, nil).ok(200).into(&l)
		return l.Items
	}
	t.Run("SEC-L1 texts of callers cannot break out of a record or forge another", func(t *testing.T) {
		evil := "x\n{\"seq\":1,\"actor\":\"root\"}\x1b[2J\u2028\",\"result\":\"allowed"
		w.call("", "POST", "/api/v1/login", map[string]any{"tenant": "acme", "username": evil, "password": "wrong"})
		w.call(admin, "DELETE", "/api/v1/users/victim%0Aroot", nil)
		body := w.call(admin, "GET", "/api/v1/audit/export", nil).ok(200).body
		report, err := auditlog.Verify(bytes.NewReader(body), func(r auditlog.Record) {
			if r.Actor == "root" {
				t.Errorf("a record was forged: %+v", r)
			}
		})
		if err != nil || int64(bytes.Count(body, []byte("\n"))) != report.Records+2 {
			t.Errorf("%d lines for %d records: %v", bytes.Count(body, []byte("\n")), report.Records, err)
		}
		if bytes.ContainsAny(body, "\x1b\u2028") {
			t.Error("a control character stands in the file as it is")
		}
	})
	t.Run("INV-11 refused writes are recorded with who, what and from where", func(t *testing.T) {
		w.call(reader, "POST", "/api/v1/applications", application("theirs")).fails(403)
		got := find("result=denied&actor=reader&resource=applications")
		if len(got) != 1 || got[0].Object != "default/theirs" || got[0].Address == "" || got[0].Via != "session" {
			t.Errorf("the records are %+v", got)
		}
	})
	t.Run("INV-11 sign-ins, sign-outs and streams are recorded", func(t *testing.T) {
		var in struct{ Token string }
		w.call("", "POST", "/api/v1/login", map[string]any{"tenant": "acme", "username": "reader", "password": password, "mode": "token"}).ok(200).into(&in)
		stream := w.follow(t, in.Token)
		w.call(in.Token, "POST", "/api/v1/logout", nil).ok(204)
		_, _ = io.Copy(io.Discard, stream) // it ends with the session
		_ = stream.Close()
		for _, action := range []string{"login", "stream-begin", "logout", "stream-end"} {
			if got := find("actor=reader&action=" + action); len(got) == 0 || got[0].Result != "allowed" {
				t.Errorf("%s: %+v", action, got)
			}
		}
	})
	t.Run("INV-11 pages follow each other by next", func(t *testing.T) {
		var all []int64
		for path := "/api/v1/audit?limit=3"; path != ""; {
			var l struct {
				Items []record
				Next  int64
			}
			w.call(admin, "GET", path, nil).ok(200).into(&l)
			for _, r := range l.Items {
				all = append(all, r.Seq)
			}
			if path = ""; l.Next != 0 {
				path = fmt.Sprintf("/api/v1/audit?limit=3&before=%d", l.Next)
			}
		}
		for i, seq := range all {
			if seq != int64(len(all)-i) {
				t.Fatalf("the numbers are %v", all)
			}
		}
	})
	t.Run("INV-11 the age of records is limited by those who may", func(t *testing.T) {
		w.call(reader, "PUT", "/api/v1/audit/retention", map[string]any{"days": 90}).fails(403)
		w.call(admin, "PUT", "/api/v1/audit/retention", map[string]any{"days": 7}).fails(400)
		var r struct{ Days int }
		w.call(admin, "PUT", "/api/v1/audit/retention", map[string]any{"days": 90}).ok(200)
		w.call(admin, "GET", "/api/v1/audit/retention", nil).ok(200).into(&r)
		if got := find("object=retention&resource=audit&result=allowed"); r.Days != 90 || len(got) != 1 {
			t.Errorf("%d days, records %+v", r.Days, got)
		}
	})
}
