package api_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
)

// What clients read beside the objects themselves.

func TestListFilters(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin := w.Admin("acme")
	w.call(admin, "POST", "/api/v1/apply", "apiVersion: argoproj.io/v1alpha1\nkind: AppProject\nmetadata: {name: shop}\nspec: {sourceRepos: ['*'], destinations: [{server: '*', namespace: '*'}], sourceNamespaces: [team]}\n").ok(200)
	for _, name := range []string{"web", "web-2", "api"} {
		app := application(name, func(s map[string]any) {
			if name == "api" {
				s["project"] = "shop"
			}
		})
		app["metadata"].(map[string]any)["labels"] = map[string]string{"tier": name}
		w.call(admin, "POST", "/api/v1/applications", app).ok(201)
	}
	names := func(query string) string {
		var l struct {
			Items    []struct{ Metadata struct{ Name string } }
			Metadata struct{ Continue string }
		}
		w.call(admin, "GET", "/api/v1/applications?"+query, nil).ok(200).into(&l)
		var out []string
		for _, i := range l.Items {
			out = append(out, i.Metadata.Name)
		}
		return strings.Join(out, " ")
	}
	for query, want := range map[string]string{
		"name=web": "web", "name=we": "", "q=web": "web web-2", "projects=shop": "api", "projects=shop&projects=default": "api web web-2", "projects=none": "",
		"selector=tier%20in%20(api,web)": "api web", "selector=tier%3Dapi&labels=tier%3Dweb": "", "repo=https://git.example.com/team/repo.git": "api web web-2", "repo=https://git.example.com/team/other": "",
		"appNamespace=argocd": "api web web-2", "appNamespace=team": "", "resourceVersion=0": "api web web-2", "name=web&projects=shop": "", "fields=items.metadata.name&name=api": "api",
	} {
		t.Run("API-03 "+query, func(t *testing.T) {
			if got := names(query); got != want {
				t.Errorf("the list is %q, want %q", got, want)
			}
		})
	}
	t.Run("API-03 pages by cursor miss and repeat nothing", func(t *testing.T) {
		var all []string
		for cursor := ""; ; {
			var l struct {
				Items    []struct{ Metadata struct{ Name string } }
				Metadata struct{ Continue string }
			}
			w.call(admin, "GET", "/api/v1/applications?limit=1&cursor="+cursor, nil).ok(200).into(&l)
			for _, i := range l.Items {
				all = append(all, i.Metadata.Name)
			}
			if cursor = l.Metadata.Continue; cursor == "" {
				break
			}
		}
		if got := strings.Join(all, " "); got != "api web web-2" {
			t.Errorf("the pages are %q", got)
		}
	})
}

func TestRevisions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin := w.Admin("acme")
	w.call(admin, "POST", "/api/v1/applications", application("web")).ok(201)
	w.call(admin, "POST", "/api/v1/applications", application("other")).ok(201)
	first, second, chart := strings.Repeat("a", 40), strings.Repeat("b", 40), "1.2.3"
	replaced := strings.Repeat("d", 40)
	at := time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC)
	storetest.In(t, w.DB, w.Tenant("acme"), func(ctx context.Context, tx *store.Tenant) error {
		a, err := tx.Application(ctx, "argocd", "web")
		if err != nil {
			return err
		}
		entry := hub.HistoryEntry{Application: a.ID, Operation: hub.NewID[hub.OperationID](), Snapshot: hub.NewID[hub.SnapshotID](), Revision: first, Revisions: []string{first, chart},
			Source: json.RawMessage(`[{"repoURL":"https://git.example.com/team/repo.git"},{"repoURL":"https://charts.example.com","chart":"redis","targetRevision":"1.*"}]`), StartedAt: at, DeployedAt: at}
		s := hub.Snapshot{ID: entry.Snapshot, Tenant: a.Tenant, Application: a.ID, Revision: first, Revisions: entry.Revisions, SourceType: "Directory,Helm", CreatedAt: at,
			Commit: hub.CommitInfo{Author: "Jane <jane@example.com>", Message: "Sell more", At: at}}
		now := hub.Snapshot{ID: hub.NewID[hub.SnapshotID](), Tenant: a.Tenant, Application: a.ID, Revision: second, SourceType: "Directory", CreatedAt: at, Commit: hub.CommitInfo{Author: "Joe", Message: "Sell less", At: at}}
		now.Commit.Integrity = "demanded"
		between := hub.Snapshot{ID: hub.NewID[hub.SnapshotID](), Tenant: a.Tenant, Application: a.ID, Revision: replaced, SourceType: "Directory", CreatedAt: at, Commit: hub.CommitInfo{Author: "Ann", Message: "Sell nothing", At: at}}
		if err := tx.PutSnapshots(ctx, []hub.Snapshot{s, between, now}); err != nil {
			return err
		}
		all, err := tx.Repositories(ctx)
		if err != nil || len(all) != 1 {
			return fmt.Errorf("%d repositories, %w", len(all), err)
		}
		if _, err := tx.Fetched(ctx, all[0].ID, []hub.Ref{{Name: "refs/heads/main", Commit: second}, {Name: "refs/tags/v1", Commit: first}, {Name: "refs/tags/v2", Commit: second}, {Name: "refs/tags/v2.0", Commit: second}}, at, "", false); err != nil {
			return err
		}
		if err := tx.SetTargets(ctx, []hub.TargetChange{{Application: a.ID, Target: now.ID, Accepted: s.ID, Revision: second, Generation: a.Generation, Refreshed: true}}); err != nil {
			return err
		}
		return tx.AppendHistory(ctx, []hub.HistoryEntry{entry})
	})
	type revision struct {
		Revision, Author, Message string
		Date                      time.Time
		Tags                      []string
		Signature                 string
		Chart                     struct{ Name, Version, Repository string }
	}
	get := func(rev string) (out revision) {
		w.call(admin, "GET", "/api/v1/applications/argocd/web/revisions/"+rev, nil).ok(200).into(&out)
		return out
	}
	t.Run("API-13 author, date and message of a commit that was applied and of the one that is compared", func(t *testing.T) {
		if got := get(first); got.Author != "Jane <jane@example.com>" || got.Message != "Sell more" || !got.Date.Equal(at) || got.Chart.Name != "" {
			t.Errorf("%+v", got)
		}
		if got := get(second); got.Author != "Joe" || got.Message != "Sell less" {
			t.Errorf("%+v", got)
		}
	})
	t.Run("API-13 one that was rendered and replaced before it was applied", func(t *testing.T) {
		if got := get(replaced); got.Author != "Ann" || got.Message != "Sell nothing" || !got.Date.Equal(at) {
			t.Errorf("%+v", got)
		}
		w.call(admin, "GET", "/api/v1/applications/argocd/other/revisions/"+replaced, nil).fails(404)
	})
	t.Run("SRC-26 author, date, tags and message of a commit, and whether its signature was verified", func(t *testing.T) {
		if got := get(second); strings.Join(got.Tags, " ") != "v2 v2.0" || got.Signature != "Verified" || got.Author != "Joe" || got.Message != "Sell less" || !got.Date.Equal(at) {
			t.Errorf("%+v", got)
		}
		if got := get(first); got.Signature != "" || got.Author == "" {
			t.Errorf("%+v", got)
		}
	})
	t.Run("API-13 name, version and repository of a chart", func(t *testing.T) {
		if got := get(chart); got.Chart.Name != "redis" || got.Chart.Version != chart || got.Chart.Repository != "https://charts.example.com" || got.Author != "" {
			t.Errorf("%+v", got)
		}
	})
	t.Run("API-13 SEC-G2 a revision that the application never had is not found, though another one had it", func(t *testing.T) {
		w.call(admin, "GET", "/api/v1/applications/argocd/web/revisions/"+strings.Repeat("c", 40), nil).fails(404)
		w.call(admin, "GET", "/api/v1/applications/argocd/other/revisions/"+first, nil).fails(404)
	})
}

func TestRefs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin := w.Admin("acme")
	var repo struct{ ID string }
	w.call(admin, "POST", "/api/v1/repositories", map[string]any{"url": "https://git.example.com/a/b"}).ok(200).into(&repo)
	commit := strings.Repeat("a", 40)
	storetest.In(t, w.DB, w.Tenant("acme"), func(ctx context.Context, tx *store.Tenant) error {
		_, err := tx.Fetched(ctx, hub.RepositoryID(repo.ID), []hub.Ref{{Name: "refs/heads/main", Commit: commit}, {Name: "refs/tags/v1", Commit: commit}, {Name: "HEAD", Commit: commit}}, time.Now(), "", false)
		return err
	})
	t.Run("API-15 refs are the branches and tags of the last fetch", func(t *testing.T) {
		var got struct {
			Branches, Tags []struct{ Name, Commit string }
		}
		w.call(admin, "GET", "/api/v1/repositories/"+repo.ID+"/refs", nil).ok(200).into(&got)
		if len(got.Branches) != 1 || got.Branches[0].Name != "main" || got.Branches[0].Commit != commit || len(got.Tags) != 1 || got.Tags[0].Name != "v1" {
			t.Errorf("%+v", got)
		}
		w.call(w.Admin("other"), "GET", "/api/v1/repositories/"+repo.ID+"/refs", nil).fails(404)
	})
}

func TestClientSettings(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin, nobody := w.Admin("acme"), w.User("acme", "nobody")
	type client struct {
		URL  string
		Help struct {
			ChatURL, ChatText string
			BinaryURLs        map[string]string `json:"binaryUrls"`
		}
		Banner *struct {
			Content, URL, Position string
			Permanent              bool
		}
		AppLabelKey string
		Features    map[string]bool
	}
	read := func(secret string) (c client) {
		w.call(secret, "GET", "/api/v1/settings/client", nil).ok(200).into(&c)
		return c
	}
	t.Run("API-16 without settings there is no banner, and the features say what is served", func(t *testing.T) {
		c := read(nobody)
		if c.Banner != nil || c.URL != "http://capstan.test" || c.AppLabelKey != "app.kubernetes.io/instance" || c.Features["exec"] || !c.Features["replace"] {
			t.Errorf("%+v", c)
		}
	})
	w.call(admin, "PATCH", "/api/v1/settings", map[string]any{"values": map[string]any{
		"argocd-cm": map[string]any{
			"ui.bannercontent": "Maintenance", "ui.bannerurl": "https://status.example.com", "ui.bannerpermanent": "true", "ui.bannerposition": "bottom",
			"help.chatUrl": "https://chat.example.com", "help.download.linux-amd64": "https://example.com/capstan", "url": "https://cd.example.com",
		},
		"argocd-secret":        map[string]any{"webhook.github.secret": "shh-secret"},
		"argocd-cmd-params-cm": map[string]any{"server.sync.replace.allowed": "false"},
	}}).ok(200)
	t.Run("API-16 banner, help and features are those of the tenant, for everybody in it, and no secret is among them", func(t *testing.T) {
		c := read(nobody)
		if c.Banner == nil || c.Banner.Content != "Maintenance" || c.Banner.URL != "https://status.example.com" || !c.Banner.Permanent || c.Banner.Position != "bottom" {
			t.Errorf("banner %+v", c.Banner)
		}
		if c.Help.ChatURL != "https://chat.example.com" || c.Help.ChatText != "Chat now!" || c.Help.BinaryURLs["linux-amd64"] != "https://example.com/capstan" || c.URL != "https://cd.example.com" || c.Features["replace"] {
			t.Errorf("%+v", c)
		}
		if a := w.call(nobody, "GET", "/api/v1/settings/client", nil); strings.Contains(string(a.body), "shh-secret") {
			t.Errorf("%s", a.body)
		}
		if other := read(w.Admin("other")); other.Banner != nil {
			t.Errorf("ISO-6 another tenant has the banner %+v", other.Banner)
		}
	})
	t.Run("API-16 SEC-H2 an address of another scheme is refused", func(t *testing.T) {
		for _, key := range []string{"ui.bannerurl", "help.chatUrl", "help.download.darwin-arm64"} {
			for _, value := range []string{"javascript:alert(1)", "JaVaScRiPt:alert(1)", "data:text/html,x", "//evil.example.com", "vbscript:x", "java\nscript:x"} {
				w.call(admin, "PATCH", "/api/v1/settings", map[string]any{"values": map[string]any{"argocd-cm": map[string]any{key: value}}}).fails(400)
			}
		}
	})
	t.Run("API-16 SEC-G3 nobody reads them without a sign-in", func(t *testing.T) {
		w.call("", "GET", "/api/v1/settings/client", nil).fails(401)
	})
}

func TestFullHealth(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	t.Run("API-17 healthz says that the process works, and with full=true whether the database can be reached", func(t *testing.T) {
		w.call("", "GET", "/healthz", nil).ok(200)
		w.call("", "GET", "/healthz?full=true", nil).ok(200)
		mend := w.breakDatabase(t)
		w.call("", "GET", "/healthz", nil).ok(200)
		if p := w.call("", "GET", "/healthz?full=true", nil).fails(503); !p.Retryable {
			t.Errorf("%+v", p)
		}
		mend()
		w.call("", "GET", "/healthz?full=true", nil).ok(200)
	})
}

// treeEvent is one event of a stream of a tree.
type treeEvent struct{ name, data string }

func (w *world) treeStream(t *testing.T, secret, path string) <-chan treeEvent {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, "GET", w.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+secret)
	resp, err := w.Client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != 200 {
		t.Fatalf("the stream answers %d", resp.StatusCode)
	}
	out := make(chan treeEvent, 100)
	go func() {
		defer close(out)
		defer resp.Body.Close()
		var e treeEvent
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			switch key, value, _ := strings.Cut(lines.Text(), ": "); key {
			case "event":
				e.name = value
			case "data":
				e.data = value
			case "":
				out <- e
			}
		}
	}()
	return out
}

func TestStreamOfTheTree(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin := w.Admin("acme")
	w.call(admin, "POST", "/api/v1/clusters/enroll", map[string]any{"name": "prod"}).ok(201)
	toProd := func(s map[string]any) { s["destination"] = map[string]any{"name": "prod", "namespace": "web"} }
	for _, name := range []string{"web", "api"} {
		w.call(admin, "POST", "/api/v1/applications", application(name, toProd)).ok(201)
	}
	seq := 0
	observe := func(name, pod string) {
		seq++
		storetest.In(t, w.DB, w.Tenant("acme"), func(ctx context.Context, tx *store.Tenant) error {
			a, err := tx.Application(ctx, "argocd", name)
			if err != nil {
				return err
			}
			_, err = tx.PutObservation(ctx, a.Cluster, hub.Observation{Epoch: "e", Seq: int64(seq), Resources: []hub.Resource{
				{Application: a.ID, UID: pod + "-uid", Version: "v1", Kind: "Pod", Namespace: "web", Name: pod},
			}})
			return err
		})
	}
	await := func(events <-chan treeEvent, what string, fits func(treeEvent) bool) treeEvent {
		t.Helper()
		for e := range events {
			if fits(e) {
				return e
			}
		}
		t.Fatalf("the stream ended before %s", what)
		return treeEvent{}
	}
	events := w.treeStream(t, admin, "/api/v1/applications/argocd/web/tree/stream")
	t.Run("API-09 the stream begins with the tree, and sends it again when it has changed", func(t *testing.T) {
		await(events, "the first tree", func(e treeEvent) bool { return e.name == "tree" && strings.Contains(e.data, `"nodes":[]`) })
		observe("api", "pod-of-api")
		observe("web", "pod-one")
		e := await(events, "the pod", func(e treeEvent) bool { return strings.Contains(e.data, "pod-one") })
		if strings.Contains(e.data, "pod-of-api") {
			t.Errorf("it has objects of another application: %s", e.data)
		}
	})
	t.Run("API-09 silence is shown to be no loss", func(t *testing.T) {
		await(events, "a sign of life", func(e treeEvent) bool { return e.name == "alive" })
	})
	t.Run("API-09 SEC-D8 it ends when the application is gone, or may no longer be seen", func(t *testing.T) {
		reader := w.User("acme", "reader", hub.RoleReadOnly)
		seen := w.treeStream(t, reader, "/api/v1/applications/argocd/api/tree/stream")
		await(seen, "the tree", func(e treeEvent) bool { return e.name == "tree" })
		w.call(admin, "PUT", "/api/v1/users/reader", map[string]any{"roles": []string{}}).ok(200)
		observe("api", "pod-two")
		for e := range seen {
			if strings.Contains(e.data, "pod-two") {
				t.Errorf("it went on with %s", e.data)
			}
		}
		w.call(admin, "DELETE", "/api/v1/applications/argocd/web?cascade=false", nil)
		w.call(admin, "POST", "/api/v1/applications/argocd/web/abandon", map[string]any{})
		await(events, "its end", func(e treeEvent) bool { return e.name == "gone" })
	})
	t.Run("API-09 SEC-G2 a tree that may not be seen is refused like a missing one", func(t *testing.T) {
		w.call(w.Admin("other"), "GET", "/api/v1/applications/argocd/api/tree/stream", nil).fails(404)
	})
}

func TestReferenceIsServed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	t.Run("API-14(part) the page of the API, its style and the document are served by the hub, under its strict policy", func(t *testing.T) {
		for path, kind := range map[string]string{"/docs/api": "text/html", "/docs/api/style.css": "text/css", "/openapi.json": "application/json", "/openapi.yaml": "application/yaml"} {
			a := w.call("", "GET", path, nil).ok(200)
			if !strings.HasPrefix(a.header.Get("Content-Type"), kind) || len(a.body) == 0 {
				t.Errorf("%s is %s with %d bytes", path, a.header.Get("Content-Type"), len(a.body))
			}
			csp := strings.Split(a.header.Get("Content-Security-Policy"), "; ")
			if !slices.Contains(csp, "script-src 'self'") || !slices.Contains(csp, "style-src 'self'") || strings.Contains(strings.Join(csp, ""), "unsafe") {
				t.Errorf("%s has the policy %q", path, csp)
			}
		}
	})
}
