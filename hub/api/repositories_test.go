package api_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
	"github.com/capstan-cd/capstan/integration/rigs/canary"
)

// labelledSecret is a Secret of Argo CD.
func labelledSecret(t *testing.T, kind string, values map[string]string) string {
	t.Helper()
	text, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Secret", "stringData": values,
		"metadata": map[string]any{"name": "stored-secret", "labels": map[string]string{"argocd.argoproj.io/secret-type": kind}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func rsaKey(t *testing.T) string {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}))
}

// shownRepository is a repository as the API shows it.
type shownRepository struct {
	ID, URL, Proxy, NoProxy  string
	HasCredential, EnableLfs bool
	Depth                    int
	Connection               struct{ Status, Message string }
}

func TestIdentitiesOfRepositories(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin, secrets := w.Admin("acme"), canary.New()
	private := rsaKey(t)
	secrets.Add("private key", strings.Split(private, "\n")[5])
	google, err := json.Marshal(map[string]string{"type": "service_account", "client_email": "robot@example.com", "private_key": private, "private_key_id": secrets.Plant("key id")})
	if err != nil {
		t.Fatal(err)
	}
	azure := map[string]string{"azureServicePrincipalClientId": "id", "azureServicePrincipalTenantId": "tenant", "azureServicePrincipalClientSecret": secrets.Plant("azure")}
	kinds := map[string]map[string]string{
		"CRED-09": {"githubAppID": "1", "githubAppInstallationID": "2", "githubAppPrivateKey": private, "githubAppEnterpriseBaseUrl": "https://ghe.example.com/api/v3"},
		"CRED-10": {"gcpServiceAccountKey": string(google)},
		"CRED-11": azure,
		"CRED-12": {"username": "bot", "password": secrets.Plant("password"), "proxy": "http://bot:" + secrets.Plant("proxy") + "@proxy.example.com:3128", "noProxy": "internal.example.com"},
		"CRED-06": {"bearerToken": secrets.Plant("bearer")},
	}
	var answers []answer
	for id, values := range kinds {
		t.Run(id+" labelled Secrets declare it for a repository and for all under a URL, without a warning", func(t *testing.T) {
			for _, kind := range []string{"repository", "repo-creds"} {
				values["type"], values["url"] = "git", "https://ghe.example.com/"+strings.ToLower(id)
				var out applied
				answers = append(answers, w.call(admin, http.MethodPost, "/api/v1/apply", labelledSecret(t, kind, values)).ok(200).into(&out))
				if out.Failed != 0 || out.Results[0].Result != "created" || len(out.Results[0].Warnings) != 0 {
					t.Errorf("%s: %+v", kind, out)
				}
			}
		})
	}
	find := func(url string) (r shownRepository) {
		t.Helper()
		var l struct{ Items []shownRepository }
		answers = append(answers, w.call(admin, http.MethodGet, "/api/v1/repositories", nil).ok(200).into(&l))
		for _, x := range l.Items {
			if x.URL == url {
				return x
			}
		}
		t.Fatalf("there is no %s", url)
		return r
	}
	t.Run("CRED-12 a proxy is shown without its password, and keeps it when it is sent back", func(t *testing.T) {
		const url = "https://ghe.example.com/cred-12"
		r := find(url)
		if r.Proxy != "http://proxy.example.com:3128" || r.NoProxy != "internal.example.com" || !r.HasCredential {
			t.Errorf("%+v", r)
		}
		answers = append(answers, w.call(admin, http.MethodPost, "/api/v1/repositories", map[string]any{"url": url, "name": "renamed", "username": "bot", "proxy": r.Proxy, "noProxy": r.NoProxy}).ok(200))
		if got := w.opens(t, "acme", r.ID); got.Proxy != "http://bot:"+secrets.Plant("proxy")+"@proxy.example.com:3128" || got.Password != secrets.Plant("password") {
			t.Error("proxy or password changed")
		}
		answers = append(answers, w.call(admin, http.MethodPost, "/api/v1/repositories", map[string]any{"url": url, "username": "bot", "proxy": "http://other.example.com:3128"}).ok(200))
		if got := w.opens(t, "acme", r.ID); got.Proxy != "http://other.example.com:3128" || got.Password != secrets.Plant("password") {
			t.Error("SEC-C3 another proxy got the password of the first, or the credential is gone")
		}
	})
	t.Run("SRC-24 SRC-25 enableLfs and depth are stored and shown", func(t *testing.T) {
		var out applied
		w.call(admin, http.MethodPost, "/api/v1/apply", labelledSecret(t, "repository", map[string]string{"type": "git", "url": "https://git.example.com/large", "enableLfs": "true", "depth": "1"})).ok(200).into(&out)
		if r := find("https://git.example.com/large"); !r.EnableLfs || r.Depth != 1 || r.HasCredential || len(out.Results[0].Warnings) != 0 {
			t.Errorf("%+v, %+v", r, out)
		}
	})
	t.Run("CRED-14 the switch of the warm-up is accepted and has no effect", func(t *testing.T) {
		var out applied
		w.call(admin, http.MethodPost, "/api/v1/apply", labelledSecret(t, "repository", map[string]string{"url": "https://git.example.com/warm", "webhookManifestCacheWarmDisabled": "true"})).ok(200).into(&out)
		if out.Failed != 0 || len(out.Results[0].Warnings) != 0 {
			t.Errorf("%+v", out)
		}
	})
	t.Run("SEC-C1 CRED-20 no answer, list, audit record or log holds a secret of any kind", func(t *testing.T) {
		for _, path := range []string{"/api/v1/repositories", "/api/v1/repository-credentials", "/api/v1/audit?limit=200"} {
			answers = append(answers, w.call(admin, http.MethodGet, path, nil).ok(200))
		}
		answers = append(answers, answer{what: "the log", body: []byte(w.Log.String())})
		for _, a := range answers {
			for _, leak := range secrets.Find(a.what, a.body) {
				t.Error(leak)
			}
		}
	})
	refused := map[string]struct {
		values map[string]string
		want   string
	}{
		"CRED-09(refused) an app without a key":           {map[string]string{"githubAppID": "1"}, "githubAppPrivateKey is no private key in PEM"},
		"CRED-09(refused) an id that is no number":        {map[string]string{"githubAppID": "one", "githubAppPrivateKey": private}, "githubAppID is no number"},
		"CRED-09(refused) an address without TLS":         {map[string]string{"githubAppID": "1", "githubAppPrivateKey": private, "githubAppEnterpriseBaseUrl": "http://ghe.example.com"}, "githubAppEnterpriseBaseUrl is no address"},
		"CRED-10(refused) a key that is none":             {map[string]string{"gcpServiceAccountKey": `{"type":"authorized_user","private_key":"canary"}`}, "gcpServiceAccountKey is no key of a service account"},
		"CRED-10(refused) tokens from an address of SSH":  {map[string]string{"gcpServiceAccountKey": strings.Replace(string(google), `"type"`, `"token_uri":"ssh://x","type"`, 1)}, "token_uri of gcpServiceAccountKey is no address"},
		"CRED-11(refused) a principal without its secret": {map[string]string{"azureServicePrincipalClientId": "id", "azureServicePrincipalTenantId": "t"}, "azureServicePrincipalClientSecret is missing"},
		"CRED-11(refused) a tenant that leads elsewhere":  {map[string]string{"azureServicePrincipalClientId": "id", "azureServicePrincipalClientSecret": "s", "azureServicePrincipalTenantId": "../x"}, "azureServicePrincipalTenantId is no id"},
		"CRED-11(refused) two identities":                 {map[string]string{"useAzureWorkloadIdentity": "true", "githubAppID": "1", "githubAppPrivateKey": private}, "it has several of"},
		"CRED-12(refused) a proxy that is no HTTP proxy":  {map[string]string{"proxy": "socks5://bot:canary@proxy.example.com:1"}, "the proxy is no address of an HTTP proxy"},
		"CRED-12(refused) a proxy that is an option":      {map[string]string{"proxy": "-oProxyCommand=touch canary"}, "the proxy is no address of an HTTP proxy"},
		"CRED-12(refused) a proxy with a command":         {map[string]string{"proxy": "socks5://proxy.example.com:1080;touch canary"}, "the proxy is no address of an HTTP proxy"},
		"CRED-12(refused) a proxy of two lines":           {map[string]string{"proxy": "http://proxy.example.com:1\nProxyCommand canary"}, "the proxy is no address of an HTTP proxy"},
		"CRED-12(refused) noProxy without a proxy":        {map[string]string{"noProxy": "example.com"}, "noProxy is set without a proxy"},
		"SRC-25(refused) a depth that is no number":       {map[string]string{"depth": "-1"}, "depth is no number"},
		"SRC-24(refused) a switch that is neither":        {map[string]string{"enableLfs": "perhaps"}, "enableLfs is neither true nor false"},
	}
	for name, c := range refused {
		t.Run(name, func(t *testing.T) {
			c.values["url"] = "https://git.example.com/refused"
			var out struct {
				Results []struct{ Error struct{ Message string } }
			}
			a := w.call(admin, http.MethodPost, "/api/v1/apply", labelledSecret(t, "repository", c.values)).into(&out)
			if got := fmt.Sprint(out.Results); !strings.Contains(got, c.want) || strings.Contains(string(a.body), "canary") || strings.Contains(string(a.body), "BEGIN RSA") {
				t.Errorf("%s", a.body)
			}
		})
	}
}

func TestValidateRepository(t *testing.T) {
	t.Parallel()
	const path = "/api/v1/repositories/validate"
	w := newWorld(t)
	admin := w.Admin("acme")
	w.call(admin, http.MethodPost, "/api/v1/apply", labelledSecret(t, "repo-creds", map[string]string{"url": "https://git.example.com/team", "username": "bot", "password": "of-the-template"})).ok(200)
	w.call(admin, http.MethodPost, "/api/v1/repositories", map[string]any{"url": "https://git.example.com/team/known", "username": "own", "password": "stored"}).ok(200)
	last := func() hub.Credential { return w.Probed[len(w.Probed)-1].Credential }
	t.Run("API-15 CRED-17 a repository is tested before it is registered, and nothing is stored", func(t *testing.T) {
		var out struct {
			Connection struct{ Status, Message string }
		}
		w.call(admin, http.MethodPost, path, map[string]any{"url": "https://git.example.com/other/new.git", "username": "me", "password": "mine"}).ok(200).into(&out)
		if p := w.Probed[len(w.Probed)-1]; out.Connection.Status != "Successful" || p.Credential.Password != "mine" || p.Repository.URL != "https://git.example.com/other/new" {
			t.Errorf("%+v", out)
		}
		w.call(admin, http.MethodPost, path, map[string]any{"url": "https://git.example.com/other/away"}).ok(200).into(&out)
		if out.Connection.Status != "Failed" || !strings.Contains(out.Connection.Message, "refuses the connection") {
			t.Errorf("%+v", out)
		}
		var l struct{ Items []shownRepository }
		w.call(admin, http.MethodGet, "/api/v1/repositories", nil).ok(200).into(&l)
		if len(l.Items) != 1 {
			t.Errorf("%+v", l.Items)
		}
	})
	t.Run("API-15 CRED-02 without a credential it is that of the template, never the stored one", func(t *testing.T) {
		w.call(admin, http.MethodPost, path, map[string]any{"url": "https://git.example.com/team/new"}).ok(200)
		if got := last(); got.Password != "of-the-template" || got.Username != "bot" {
			t.Error("another credential was used")
		}
		w.call(admin, http.MethodPost, path, map[string]any{"url": "https://git.example.com/team/known", "insecure": true}).ok(200)
		if got := last(); got.Password != "of-the-template" {
			t.Error("SEC-C3 the stored credential was sent to a server that the caller chose")
		}
	})
	t.Run("API-15(refused) without the right to register it nothing is dialled", func(t *testing.T) {
		n := len(w.Probed)
		w.call(w.User("acme", "reader", hub.RoleReadOnly), http.MethodPost, path, map[string]any{"url": "https://git.example.com/team/new"}).fails(403)
		w.call(admin, http.MethodPost, path, map[string]any{"url": "file:///etc"}).fails(400)
		if len(w.Probed) != n {
			t.Error("a server was dialled")
		}
	})
}

func TestDeferredCredentials(t *testing.T) {
	t.Parallel()
	const path = "/api/v1/deferred-credentials"
	w := newWorld(t)
	admin, secrets := w.Admin("acme"), canary.New()
	apply := func(kind string, values map[string]string) (out applied, a answer) {
		a = w.call(admin, http.MethodPost, "/api/v1/apply", labelledSecret(t, kind, values)).ok(200).into(&out)
		return out, a
	}
	const url = "https://git.example.com/team/app"
	var answers []answer
	t.Run("CRED-03 CRED-04 credentials for writing and for generators are stored, and the answer says which nothing uses yet", func(t *testing.T) {
		for kind, values := range map[string]map[string]string{
			"repository-write": {"url": url, "username": "writer", "password": secrets.Plant("write")},
			"repo-write-creds": {"url": "https://git.example.com/team", "password": secrets.Plant("write all")},
			"scm-creds":        {"token": secrets.Plant("scm")},
		} {
			out, a := apply(kind, values)
			answers = append(answers, a)
			if out.Failed != 0 || out.Results[0].Result != "created" || strings.Contains(strings.Join(out.Results[0].Warnings, ""), "nothing uses it yet") != (kind != "scm-creds") {
				t.Errorf("%s: %s", kind, a.body)
			}
			if out, _ = apply(kind, values); out.Failed == 0 && out.Results[0].Result != "configured" {
				t.Errorf("%s again: %+v", kind, out)
			}
		}
	})
	t.Run("CRED-04 a url that is none of a host is refused (part)", func(t *testing.T) {
		for _, address := range []string{"", "git.example.com", "ssh://git@git.example.com", "https://bot:x@git.example.com"} {
			if out, a := apply("scm-creds", map[string]string{"token": secrets.Plant("scm"), "url": address}); out.Failed != 1 {
				t.Errorf("%q: %s", address, a.body)
			}
		}
	})
	type item struct {
		ID, Kind, Name, URL, Username string
		Keys                          []string
	}
	var l struct{ Items []item }
	t.Run("CRED-03 CRED-04 CRED-20 they are listed without their values", func(t *testing.T) {
		answers = append(answers, w.call(admin, http.MethodGet, path, nil).ok(200).into(&l), w.call(admin, http.MethodGet, "/api/v1/audit?limit=100", nil).ok(200), answer{what: "the log", body: []byte(w.Log.String())})
		for _, a := range answers {
			for _, leak := range secrets.Find(a.what, a.body) {
				t.Error(leak)
			}
		}
		if len(l.Items) != 3 || l.Items[0].Kind != "repo-write-creds" || l.Items[1].Username != "writer" || l.Items[2].Name != "stored-secret" || strings.Join(l.Items[2].Keys, "") != "token" {
			t.Errorf("%+v", l.Items)
		}
	})
	t.Run("CRED-03 no read ever uses them", func(t *testing.T) {
		var repo shownRepository
		w.call(admin, http.MethodPost, "/api/v1/repositories", map[string]any{"url": url}).ok(200).into(&repo)
		if got := w.opens(t, "acme", repo.ID); !got.Empty() || got.Username != "" || repo.HasCredential {
			t.Error("a read got the credential for writing")
		}
		w.call(admin, http.MethodPost, "/api/v1/repositories/validate", map[string]any{"url": url}).ok(200)
		if !w.Probed[len(w.Probed)-1].Credential.Empty() {
			t.Error("a test got the credential for writing")
		}
	})
	t.Run("CRED-03 another tenant and somebody without the right see and delete none", func(t *testing.T) {
		var other struct{ Items []item }
		w.call(w.Admin("bolt"), http.MethodGet, path, nil).ok(200).into(&other)
		if len(other.Items) != 0 {
			t.Errorf("%+v", other)
		}
		w.call(w.Admin("bolt"), http.MethodDelete, path+"/"+l.Items[0].ID, nil).fails(404)
		w.call(w.User("acme", "reader", hub.RoleReadOnly), http.MethodDelete, path+"/"+l.Items[0].ID, nil).fails(403)
	})
	t.Run("CRED-03 CRED-04 a deleted one is gone", func(t *testing.T) {
		for _, i := range l.Items {
			w.call(admin, http.MethodDelete, path+"/"+i.ID, nil).ok(204)
		}
		w.call(admin, http.MethodGet, path, nil).ok(200).into(&l)
		if len(l.Items) != 0 {
			t.Errorf("%+v", l.Items)
		}
	})
}

func TestConnectionState(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin := w.Admin("acme")
	var repo struct {
		ID         string
		Connection struct{ Status, Message, AttemptedAt, FetchedAt string }
	}
	get := func() {
		t.Helper()
		repo.Connection.Message, repo.Connection.AttemptedAt, repo.Connection.FetchedAt = "", "", ""
		w.call(admin, http.MethodGet, "/api/v1/repositories/"+repo.ID, nil).ok(200).into(&repo)
	}
	store := func(at time.Time, sentence string) {
		t.Helper()
		storetest.In(t, w.DB, w.Tenant("acme"), func(ctx context.Context, tx *store.Tenant) error {
			_, err := tx.Fetched(ctx, hub.RepositoryID(repo.ID), []hub.Ref{{Name: "refs/heads/main", Commit: strings.Repeat("a", 40)}}, at, sentence, false)
			return err
		})
	}
	t.Run("CRED-17 the state is Unknown, Successful or Failed, with message and time of the last fetch", func(t *testing.T) {
		w.call(admin, http.MethodPost, "/api/v1/repositories", map[string]any{"url": "https://git.example.com/team/app"}).ok(200).into(&repo)
		if c := repo.Connection; c.Status != "Unknown" || c.AttemptedAt != "" {
			t.Errorf("%+v", c)
		}
		first := time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC)
		store(first, "")
		if get(); repo.Connection.Status != "Successful" || repo.Connection.AttemptedAt != "2026-05-06T07:08:09Z" || repo.Connection.Message != "" {
			t.Errorf("%+v", repo.Connection)
		}
		store(first.Add(time.Minute), "its host refuses the connection")
		if get(); repo.Connection.Status != "Failed" || repo.Connection.Message != "its host refuses the connection" || repo.Connection.AttemptedAt != "2026-05-06T07:09:09Z" || repo.Connection.FetchedAt != "2026-05-06T07:08:09Z" {
			t.Errorf("%+v", repo.Connection)
		}
	})
}

// opens is the credential that opens a repository.
func (w *world) opens(t *testing.T, tenant string, id string) (c hub.Credential) {
	t.Helper()
	storetest.In(t, w.DB, w.Tenant(tenant), func(ctx context.Context, tx *store.Tenant) (err error) {
		c, err = tx.Credential(ctx, hub.RepositoryID(id))
		return err
	})
	return c
}
