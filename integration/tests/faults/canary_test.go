package faults_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	crand "crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"filippo.io/age"
	"golang.org/x/crypto/ssh"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/capstan-cd/capstan/integration/rigs/canary"
	"github.com/capstan-cd/capstan/integration/rigs/gitserver"
	"github.com/capstan-cd/capstan/integration/rigs/poll"
	"github.com/capstan-cd/capstan/integration/rigs/sopsfile"
	"github.com/capstan-cd/capstan/integration/rigs/stack"
	"github.com/capstan-cd/capstan/integration/rigs/vault"
)

// secretPolicy lets the agent read Secrets and age keys of its cluster, and of
// a Vault that permits it less than the policy does, or no sign-in at all.
func secretPolicy() string {
	var of strings.Builder
	for _, role := range []string{"agent", "stranger"} {
		fmt.Fprintf(&of, "  - {name: %s, address: %q, caFile: %q, role: %s, tokenFile: %q, permit: [{paths: ['secret/data/**']}]}\n", role, vaults.URL, vaults.CAFile, role, accountToken)
	}
	return "refresh: 1s\nvault:\n" + of.String() + "kubernetes: {permit: [{paths: ['{namespace}/*']}]}\nsops: {age: [{secret: sops-age, key: keys.txt}]}\n"
}

// openVault gives the agent a token with which it signs in to Vault, and plants
// all that they send one another.
func openVault(t *testing.T) {
	t.Helper()
	account := strings.Split(s.Agents[clusterName].User(), ":")
	if len(account) != 4 {
		t.Fatalf("the agent is %v, no service account", account)
	}
	token, err := s.Clusters[clusterName].AccountToken(within(t, waitLimit), account[2], account[3])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(accountToken, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	vaults.Watch(canaries.Add)
	vaults.Review(s.Clusters[clusterName].Dynamic())
	vaults.Bind("agent", vault.Role{Accounts: []string{account[2] + ":" + account[3]}, Paths: []string{"secret/data/planted"}})
	vaults.Put("secret/planted", map[string]any{"k": canaries.Plant("value in Vault")})
}

// leakyPlugins are plugins that get a secret of the operator. One puts it into a
// Secret, one into objects of other kinds, one into a name, and one complains
// with it.
func leakyPlugins(dir string) (folder string, err error) {
	folder = filepath.Join(dir, "plugins")
	env := filepath.Join(dir, "operator.env")
	err = errors.Join(os.MkdirAll(folder, 0o700), os.WriteFile(env, []byte("TOKEN="+canaries.Plant("value that a plugin injects")+"\n"), 0o600))
	for name, script := range map[string]string{
		"inject": `printf 'apiVersion: v1\nkind: Secret\nmetadata: {name: injected}\nstringData: {token: "%s"}\n' "$TOKEN"`,
		"scatter": `cat <<END
      {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "scattered", "annotations": {"example.com/token": "$TOKEN"}}, "data": {"url": "https://robot:$TOKEN@example.com", "list": "$(printf 'x:%s' "$TOKEN" | base64 -w 0)"}}
      ---
      {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "scattered"}, "spec": {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "example.com/c", "env": [{"name": "TOKEN", "value": "$TOKEN"}]}]}}}}
      END`,
		"entitle":  `printf '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"data":{"%s":"x"}}' "$TOKEN"`,
		"complain": `echo "the token $TOKEN is refused" >&2; exit 3`,
	} {
		text := fmt.Sprintf("apiVersion: argoproj.io/v1alpha1\nkind: ConfigManagementPlugin\nmetadata: {name: %s, annotations: {capstan.dev/env-file: %s}}\nspec:\n  generate:\n    command: [sh, -c]\n    args:\n    - |\n      %s\n", name, env, script)
		err = errors.Join(err, os.WriteFile(filepath.Join(folder, name+".yaml"), []byte(text), 0o600))
	}
	return folder, err
}

// echo is a server that a tenant's repositories lead to. It refuses everything,
// and repeats the credential in its answer, as careless servers do. Its tokens
// are planted, too.
func echo(t *testing.T) (url string, asked func() int) {
	t.Helper()
	token := canaries.Plant("token of a registry")
	count := make(chan string, 1<<16)
	web := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(io.LimitReader(r.Body, 64<<10)) // what came is repeated
		if r.Header.Get("Authorization") != "" || len(body) > 0 {
			count <- r.URL.Path
		}
		bearer := strings.HasPrefix(r.Header.Get("Authorization"), "Bearer ")
		if r.URL.Path == "/token" && r.Method == http.MethodGet {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(map[string]any{"token": token, "access_token": token, "expires_in": 300})
			return
		}
		if strings.HasPrefix(r.URL.Path, "/v2/") && !bearer {
			w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="https://%s/token",service="echo",scope="repository:x:pull"`, r.Host))
		}
		w.Header().Set("X-Seen", r.Header.Get("Authorization"))
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprintf(w, `{"errors":[{"code":"DENIED","message":%q}]}`, "refused "+r.Header.Get("Authorization")+" "+string(body))
	}))
	t.Cleanup(web.Close)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: web.Certificate().Raw})
	trusted, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "argocd-tls-certs-cm", "namespace": "argocd"}, "data": map[string]string{"127.0.0.1": string(authority)}})
	if err != nil {
		t.Fatal(err)
	}
	if out, err := s.API.Apply(within(t, waitLimit), string(trusted)); err != nil {
		t.Fatal(out, err)
	}
	return web.URL, func() int { return len(count) }
}

// keyPair is a private key in PEM, one line of which is planted.
func keyPair(t *testing.T, name string) string {
	t.Helper()
	key, err := rsa.GenerateKey(crand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	private := string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}))
	canaries.Add(name, strings.Split(private, "\n")[5])
	return private
}

func sshKey(t *testing.T) string {
	t.Helper()
	_, key, err := ed25519.GenerateKey(crand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(key, "")
	if err != nil {
		t.Fatal(err)
	}
	text := string(pem.EncodeToMemory(block))
	canaries.Add("SSH key", strings.Split(text, "\n")[2])
	return text
}

// credentialKinds are Secrets with each kind of credential of repositories, all
// of them planted. The hub tries to fetch the repositories, and none answers,
// or it answers with what it got.
func credentialKinds(t *testing.T, server string) string {
	t.Helper()
	app := keyPair(t, "private key of an app")
	google, err := json.Marshal(map[string]string{
		"type": "service_account", "client_email": "robot@example.com", "private_key_id": canaries.Plant("id of a Google key"), "private_key": keyPair(t, "Google key"), "token_uri": server + "/token",
	})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for name, values := range map[string]map[string]string{
		"app":    {"githubAppID": "1", "githubAppPrivateKey": app, "githubAppEnterpriseBaseUrl": server + "/api/v3"},
		"google": {"gcpServiceAccountKey": string(google)},
		"azure": {
			"azureServicePrincipalClientId": "id", "azureServicePrincipalTenantId": "tenant", "azureServicePrincipalClientSecret": canaries.Plant("secret of a service principal"),
			"azureActiveDirectoryEndpoint": server,
		},
		"bearer": {"bearerToken": canaries.Plant("bearer token")},
		"basic":  {"username": "robot", "password": canaries.Plant("password of a Git server")},
		"proxy":  {"username": "robot", "password": canaries.Plant("password beside a proxy"), "proxy": "http://robot:" + canaries.Plant("password of a proxy") + "@127.0.0.1:1", "noProxy": "example.com"},
		"ssh":    {"url": "ssh://git@127.0.0.1:1/ssh.git", "sshPrivateKey": sshKey(t)},
		"helm":   {"type": "helm", "username": "robot", "password": canaries.Plant("password of a Helm repository")},
		"oci":    {"type": "helm", "url": strings.TrimPrefix(server, "https://") + "/oci", "enableOCI": "true", "username": "robot", "password": canaries.Plant("password of a registry")},
		"kept":   {"type": "oci", "url": "oci://" + strings.TrimPrefix(server, "https://") + "/artifact", "username": "robot", "password": canaries.Plant("password of artifacts")},
	} {
		for _, kind := range []string{"repository", "repo-creds", "repository-write"} {
			values := maps.Clone(values)
			if values["type"] == "" {
				values["type"] = "git"
			}
			if values["url"] == "" {
				values["url"] = server + "/team/" + name
			}
			if kind != "repository" {
				values["url"] = strings.TrimSuffix(values["url"], ".git") + "-" + kind
			}
			text, err := json.Marshal(map[string]any{
				"apiVersion": "v1", "kind": "Secret", "stringData": values,
				"metadata": map[string]any{"name": kind + "-" + name, "labels": map[string]string{"argocd.argoproj.io/secret-type": kind}},
			})
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&out, "---\n%s\n", text)
		}
	}
	// Secrets of webhooks, and other settings that are secret.
	settings := map[string]string{"webhook.repository.01a213b2-6b81-70f4-8286-45fc84ee1a1a": canaries.Plant("webhook secret of a repository")}
	for _, key := range []string{"webhook.github.secret", "webhook.gitlab.secret", "webhook.gogs.secret", "webhook.azuredevops.password", "webhook.harbor.secret", "webhook.registry.secret", "webhook.generic.secret"} {
		settings[key] = canaries.Plant(key)
	}
	text, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "argocd-secret", "namespace": "argocd"}, "stringData": settings})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(&out, "---\n%s\n", text)
	return out.String()
}

// knock sends events with right and wrong secrets, in every place that a sender
// may put them.
func knock(t *testing.T) {
	t.Helper()
	secret := canaries.Plant("webhook.generic.secret")
	for _, set := range []func(*http.Request){
		func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+secret) },
		func(r *http.Request) { r.SetBasicAuth("capstan", canaries.Plant("webhook.registry.secret")) },
		func(r *http.Request) {
			r.Header.Set("X-Gitlab-Event", "Push Hook")
			r.Header.Set("X-Gitlab-Token", canaries.Plant("webhook.gitlab.secret"))
		},
		func(r *http.Request) { r.Header.Set("Authorization", canaries.Plant("webhook.harbor.secret")) },
		func(r *http.Request) { r.URL.RawQuery = "token=" + canaries.Plant("a token in a webhook's address") },
	} {
		r, err := http.NewRequestWithContext(within(t, waitLimit), http.MethodPost, s.URL()+"/api/webhook", bytes.NewReader([]byte(`{"repository":"https://127.0.0.1:1/x"}`)))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		set(r)
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range canaries.Find("the answer to a webhook", text) {
			t.Error(x)
		}
	}
}

// signDevice signs a device in, and plants what it sends and gets.
func signDevice(t *testing.T) {
	t.Helper()
	form := func(path string, values url.Values, into any) {
		t.Helper()
		r, err := http.NewRequestWithContext(within(t, waitLimit), http.MethodPost, s.URL()+path, strings.NewReader(values.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(res.Body)
		if err = errors.Join(err, res.Body.Close()); err != nil || res.StatusCode != http.StatusOK {
			t.Fatalf("%s answers %s (%v)", path, res.Status, err)
		}
		if err := json.Unmarshal(text, into); err != nil {
			t.Fatal(err)
		}
	}
	var in struct{ Token string }
	if err := s.API.Do(within(t, waitLimit), http.MethodPost, "/api/v1/login", map[string]any{"username": "admin", "password": s.Password(), "mode": "token"}, &in); err != nil {
		t.Fatal(err)
	}
	canaries.Add("token of a session", in.Token)
	var code struct {
		Device string `json:"device_code"`
		User   string `json:"user_code"`
	}
	form("/api/v1/device/code", url.Values{"client_id": {"capstan"}}, &code)
	canaries.Add("code of a device", code.Device)
	canaries.Add("code that a device shows", code.User)
	person := &stack.API{URL: s.API.URL, Token: in.Token}
	if err := person.Do(within(t, waitLimit), http.MethodPost, "/api/v1/device/decision", map[string]any{"userCode": code.User, "approve": true}, nil); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Token string `json:"access_token"`
	}
	form("/api/v1/token", url.Values{"grant_type": {"urn:ietf:params:oauth:grant-type:device_code"}, "device_code": {code.Device}, "client_id": {"capstan"}}, &got)
	if got.Token == "" {
		t.Fatal("the device got no token")
	}
	canaries.Add("token of a device", got.Token)
}

// A planted application uses one of the planted secrets.
type planted struct {
	name, source string
	settles      bool // otherwise it ends with a condition
}

// plantApplications makes applications that use the secrets, and waits until
// each has come to its end.
func plantApplications(t *testing.T, server string) []planted {
	t.Helper()
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	canaries.Add("age key", id.String())
	home := strings.Split(s.Agents[clusterName].User(), ":")[2]
	if err := s.Clusters[clusterName].Apply(within(t, waitLimit), fmt.Sprintf("apiVersion: v1\nkind: Namespace\nmetadata: {name: planted}\n---\n"+
		"apiVersion: v1\nkind: Secret\nmetadata: {name: source, namespace: planted}\nstringData: {k: %s}\n---\n"+
		"apiVersion: v1\nkind: Secret\nmetadata: {name: sops-age, namespace: %s}\nstringData: {keys.txt: %s}\n", canaries.Plant("Secret of the cluster"), home, id.String())); err != nil {
		t.Fatal(err)
	}
	repo, err := s.Repository(within(t, waitLimit), "planted", gitserver.RepositoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	e := sopsfile.Encryptor{Recipients: []age.Recipient{id.Recipient()}}
	if _, err := repo.Commit(within(t, waitLimit), "begin", map[string]string{
		"plain/a.yaml":       "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n",
		"sealed/sealed.yaml": e.Encrypt(t, "apiVersion: v1\nkind: Secret\nmetadata:\n  name: from-sops\ntype: Opaque\nstringData:\n  z: "+canaries.Plant("value in a file of SOPS")+"\n"),
		"vault/a.yaml":       "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: from-vault}\ndata: {k: \"<path:secret/data/planted#k>\"}\n",
		"forbidden/a.yaml":   "apiVersion: v1\nkind: Secret\nmetadata: {name: forbidden}\nstringData: {k: \"<path:secret/data/other#k>\"}\n",
		"stranger/a.yaml":    "apiVersion: v1\nkind: Secret\nmetadata: {name: stranger}\nstringData: {k: \"<path:stranger:secret/data/planted#k>\"}\n",
		"sealed/ref.yaml":    "apiVersion: v1\nkind: Secret\nmetadata: {name: from-reference}\nstringData: {k: \"<path:kubernetes:source#k>\"}\n",
	}); err != nil {
		t.Fatal(err)
	}
	git := func(path, more string) string {
		return fmt.Sprintf("{repoURL: %q, path: %s, targetRevision: main%s}", repo.URL(), path, more)
	}
	at := func(name, more string) string { return fmt.Sprintf("{repoURL: %q, %s}", server+"/"+name, more) }
	registry := strings.TrimPrefix(server, "https://")
	all := []planted{
		{"planted-sealed", git("sealed", ""), true},
		{"planted-inject", git("plain", ", plugin: {name: inject}"), true},
		{"planted-scatter", git("plain", ", plugin: {name: scatter}"), true},
		{"planted-vault", git("vault", ""), true},
		{"planted-forbidden", git("forbidden", ""), false},
		{"planted-stranger", git("stranger", ""), false},
		{"planted-entitle", git("plain", ", plugin: {name: entitle}"), false},
		{"planted-complain", git("plain", ", plugin: {name: complain}"), false},
		{"planted-helm", at("team/helm", "chart: web, targetRevision: 1.0.0"), false},
		{"planted-oci", fmt.Sprintf("{repoURL: %q, chart: web, targetRevision: 1.0.0}", registry+"/oci"), false},
		{"planted-kept", fmt.Sprintf("{repoURL: %q, path: ., targetRevision: 1.0.0}", "oci://"+registry+"/artifact"), false},
	}
	for _, name := range []string{"app", "google", "azure", "bearer", "basic", "proxy"} {
		all = append(all, planted{"planted-" + name, at("team/"+name, "path: ., targetRevision: main"), false})
	}
	all = append(all, planted{"planted-ssh", "{repoURL: 'ssh://git@127.0.0.1:1/ssh.git', path: ., targetRevision: main}", false})
	var text strings.Builder
	for _, p := range all {
		fmt.Fprintf(&text, "---\napiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: %s, namespace: argocd}\nspec:\n  project: default\n  source: %s\n"+
			"  destination: {name: %s, namespace: planted}\n  syncPolicy: {automated: {}, syncOptions: [ResolveSecrets=true]}\n", p.name, p.source, clusterName)
	}
	if out, err := s.API.Apply(within(t, waitLimit), text.String()); err != nil {
		t.Fatal(out, err)
	}
	for _, p := range all {
		check := stackSettled
		if !p.settles {
			check = func(x stack.App) error {
				if len(x.Status.Conditions) == 0 {
					return fmt.Errorf("%s has no condition", p.name)
				}
				t.Logf("%s: %s", p.name, x.Status.Conditions[0].Message)
				return nil
			}
		}
		if _, err := s.API.Wait(within(t, waitLimit), p.name, check); err != nil {
			t.Fatal(p.name, err)
		}
	}
	return all
}

func TestSecretsStayWhereTheyBelong(t *testing.T) {
	password := canaries.Plant("repository password")
	value := canaries.Plant("Secret in Git")
	canaries.Add("API token", s.API.Token)
	canaries.Add("admin password", s.Password())
	canaries.Add("webhook secret of the hub", s.Hub.Secret())
	files := map[string]string{"app/secret.yaml": fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: hidden}\nstringData: {key: %q}\n", value)}
	r := newRound(t, "canary", 0)
	if _, err := r.repo.Commit(within(t, waitLimit), "secret", files); err != nil {
		t.Fatal(err)
	}
	r.repo.Protect(gitserver.RepositoryOptions{Username: "robot", Password: password})
	credential := fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: canary, labels: {argocd.argoproj.io/secret-type: repository}}\nstringData: {type: git, url: %q, username: robot, password: %q}\n", r.repo.URL(), password)
	if out, err := s.API.Apply(within(t, waitLimit), credential); err != nil {
		t.Fatal(out, err)
	}
	server, asked := echo(t)
	if out, err := s.API.Apply(within(t, waitLimit), credentialKinds(t, server)); err != nil {
		t.Fatal(out, err)
	}
	r.create(true)
	if _, err := s.API.Wait(within(t, waitLimit), r.name, stackSettled); err != nil {
		t.Fatal(err)
	}
	openVault(t)
	apps := plantApplications(t, server)
	knock(t)
	signDevice(t)
	if asked() < 4 {
		t.Errorf("the server that repeats credentials got %d, so the search shows little", asked())
	}
	token, err := s.API.CLI(within(t, waitLimit), "", "cluster", "enroll", "spare", "--token-only")
	if err != nil {
		t.Fatal(err)
	}
	canaries.Add("join token", strings.TrimSpace(token))
	paths := []string{
		"/api/v1/applications", "/api/v1/repositories", "/api/v1/repository-credentials", "/api/v1/deferred-credentials", "/api/v1/clusters", "/api/v1/clusters/spare", "/api/v1/audit?limit=500", "/api/v1/users",
		"/api/v1/tokens", "/api/v1/me", "/api/v1/projects", "/api/v1/settings", "/api/v1/settings/plugins",
	}
	for _, name := range append([]string{r.name}, names(apps)...) {
		base := "/api/v1/applications/argocd/" + name
		paths = append(paths, base, base+"/tree", base+"/history", base+"/operations")
	}
	for _, app := range []string{r.name, "planted-sealed", "planted-inject", "planted-scatter", "planted-vault"} {
		base := "/api/v1/applications/argocd/" + app
		paths = append(paths, base+"/diff", base+"/diff?all=true&predict=true", base+"/manifests")
	}
	base := "/api/v1/applications/argocd/"
	paths = append(paths, base+r.name+"/resource?kind=Secret&version=v1&resourceNamespace=canary&resourceName=hidden")
	for app, secret := range map[string]string{"planted-sealed": "from-sops", "planted-inject": "injected"} {
		paths = append(paths, base+app+"/resource?kind=Secret&version=v1&resourceNamespace=planted&resourceName="+secret)
	}
	paths = append(paths, base+"planted-vault/resource?kind=ConfigMap&version=v1&resourceNamespace=planted&resourceName=from-vault",
		base+"planted-scatter/resource?kind=ConfigMap&version=v1&resourceNamespace=planted&resourceName=scattered",
		base+"planted-scatter/resource?group=apps&kind=Deployment&version=v1&resourceNamespace=planted&resourceName=scattered")
	search(t, paths)
	t.Run("CMP-15 what a plugin injects is masked in all kinds", func(t *testing.T) { maskedInjections(t, base+"planted-scatter") })
	t.Run("SEC-C7 links that print all that they may read show no secret", func(t *testing.T) { printEverything(t, base+"planted-inject") })
	t.Run("SEC-C1 SEC-C3 no span has one", func(t *testing.T) {
		if err := poll.Until(within(t, waitLimit), func(context.Context) error {
			if n := len(spans.Spans()); n < 50 {
				return fmt.Errorf("%d spans", n)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		for _, span := range spans.Spans() {
			found(t, canaries.Find("span "+span.Service+" "+span.Name, fmt.Append(nil, span)))
		}
	})
	t.Run("the search finds planted canaries", func(t *testing.T) {
		for namespace, of := range map[string][]string{r.name: {"hidden", "Secret in Git"}, "planted": {"injected", "value that a plugin injects"}} {
			controlled(t, secrets, namespace, of[0], of[1])
		}
		for name, value := range map[string]string{"scattered": "value that a plugin injects", "from-vault": "value in Vault"} {
			controlled(t, configMaps, "planted", name, value)
		}
		if vaults.Logins() == 0 {
			t.Error("the agent has not signed in to Vault")
		}
		controlled(t, secrets, "planted", "from-sops", "value in a file of SOPS")
		controlled(t, secrets, "planted", "from-reference", "Secret of the cluster")
	})
}

// printEverything declares links that print what templates may read, and looks
// at those of a Secret, its application and its project.
func printEverything(t *testing.T, app string) {
	links := map[string]string{"project.links": "{{urlquery .project}}", "application.links": "{{urlquery .app.spec}}{{urlquery .cluster}}{{urlquery .project.spec}}", "resource.links": "{{urlquery .resource.data}}{{urlquery .resource.metadata}}"}
	for key, template := range links {
		value, err := json.Marshal("- {title: all, url: 'https://a.example.com/" + template + "'}\n")
		if err != nil {
			t.Fatal(err)
		}
		if out, err := s.API.Apply(within(t, waitLimit), fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: argocd-cm, namespace: argocd}\ndata: {%s: %s}\n", key, value)); err != nil {
			t.Fatal(out, err)
		}
		defer func() {
			_, _ = s.API.Apply(context.WithoutCancel(t.Context()), fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: argocd-cm, namespace: argocd}\ndata: {%s: null}\n", key))
		}()
	}
	for path, printed := range map[string]string{
		"/api/v1/projects/default/links": "default", app + "/links": "planted",
		app + "/resource/links?version=v1&kind=Secret&resourceNamespace=planted&resourceName=injected": "hmac",
	} {
		var raw json.RawMessage
		if err := s.API.Do(within(t, waitLimit), http.MethodGet, path, nil, &raw); err != nil {
			t.Fatal(err)
		}
		found(t, canaries.Find(path, raw))
		if !strings.Contains(string(raw), printed) {
			t.Errorf("%s prints nothing: %s", path, raw)
		}
	}
}

func names(apps []planted) (out []string) {
	for _, p := range apps {
		out = append(out, p.name)
	}
	return out
}

func found(t *testing.T, list []canary.Leak) {
	t.Helper()
	for _, x := range list {
		t.Error(x)
	}
}

// maskedInjections checks that hub and agent show the fields that a plugin has
// put secrets into, as hashes.
func maskedInjections(t *testing.T, app string) {
	for _, path := range []string{"/manifests", "/resource?kind=ConfigMap&version=v1&resourceNamespace=planted&resourceName=scattered"} {
		var raw json.RawMessage
		if err := s.API.Do(within(t, waitLimit), http.MethodGet, app+path, nil, &raw); err != nil {
			t.Fatal(err)
		}
		for _, field := range []string{"example.com/token", "url", "list"} {
			if !regexp.MustCompile(`\\?"` + field + `\\?": ?\\?"hmac:[0-9a-f]{16}`).Match(raw) {
				t.Errorf("%s has no masked field %s: %s", path, field, raw)
			}
		}
	}
}

// controlled checks that an object in the cluster has its planted value, which
// therefore went all the way.
func controlled(t *testing.T, kind schema.GroupVersionResource, namespace, name, value string) {
	t.Helper()
	o, err := s.Clusters[clusterName].WaitFor(within(t, waitLimit), kind, namespace, name, func(*unstructured.Unstructured) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	text, err := o.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	if list := canaries.Find("the cluster", text); !slices.ContainsFunc(list, func(x canary.Leak) bool { return x.Canary == value }) {
		t.Errorf("%s %s in the cluster does not hold its canary", kind.Resource, name)
	}
}

// search looks for canaries in everything that others may see.
func search(t *testing.T, paths []string) {
	t.Run("SEC-C1 SEC-C2 SEC-C4 no API answer has one", func(t *testing.T) {
		for _, path := range paths {
			var raw json.RawMessage
			if err := s.API.Do(within(t, waitLimit), http.MethodGet, path, nil, &raw); err != nil {
				t.Errorf("%s: %v", path, err)
			}
			found(t, canaries.Find(path, raw))
		}
	})
	t.Run("SEC-C3 no argument and no environment of a process has one", func(t *testing.T) {
		for _, pid := range []int{s.Hub.PID(), s.Agents[clusterName].PID()} {
			list, err := canaries.FindInProcess(pid, true)
			if err != nil {
				t.Fatal(err)
			}
			found(t, list)
		}
	})
	t.Run("SEC-C2 no log has one", func(t *testing.T) {
		for _, path := range []string{s.Hub.LogFile(), s.Agents[clusterName].LogFile(), s.Postgres.LogFile()} {
			list, err := canaries.FindInFolder(path, nil)
			if err != nil {
				t.Fatal(err)
			}
			found(t, list)
		}
	})
	t.Run("SEC-C8 no row of the database has one", func(t *testing.T) {
		conn := database(t)
		tables := rows[struct{ Name string }](t, conn, "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')")
		if len(tables) < 20 {
			t.Fatalf("%d tables", len(tables))
		}
		for _, table := range tables {
			for _, row := range rows[struct{ Text string }](t, conn, "SELECT convert_from(convert_to(t::text, 'UTF8'), 'UTF8') FROM "+table.Name+" t") {
				found(t, canaries.Find("table "+table.Name, []byte(row.Text)))
			}
		}
	})
	t.Run("SEC-C5 no file of the agent or the hub has one", func(t *testing.T) {
		list, err := canaries.FindInFolder(s.Agents[clusterName].StateDir(), nil)
		if err != nil {
			t.Fatal(err)
		}
		found(t, list)
		// The mirror is the repository: what people put into Git is in it. The
		// operator's file with a secret is part of the configuration.
		list, err = canaries.FindInFolder(s.Hub.Dir(), func(path string) bool { return strings.Contains(path, "mirrors") || path == "webhook.secret" })
		if err != nil {
			t.Fatal(err)
		}
		found(t, list)
	})
}
