package agenttest_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"filippo.io/age"
	"google.golang.org/protobuf/encoding/protojson"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/capstan-cd/capstan/integration/rigs/canary"
	"github.com/capstan-cd/capstan/integration/rigs/sopsfile"
	"github.com/capstan-cd/capstan/integration/rigs/vault"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
)

// secretWorld is an agent that resolves references to secrets, of a Vault and
// of the cluster. Nothing that is planted in canaries may leave it.
type secretWorld struct {
	*world

	vault    *vault.Server
	canaries *canary.Set
	log      *lines
}

// lines are what the agent has logged.
type lines struct {
	mu  sync.Mutex
	out bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.Write(b)
}

func (l *lines) text() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Clone(l.out.Bytes())
}

const secretPolicy = `
refresh: 1s
vault:
  - name: main
    address: ADDRESS
    caFile: CA
    role: agent
    tokenFile: TOKEN
    permit:
      - paths: ["secret/data/{namespace}/**", "secret/data/{namespace}"]
      - paths: ["secret/data/shared/*"]
        projects: [platform]
  - name: old
    address: ADDRESS
    caFile: CA
    role: agent
    tokenFile: TOKEN
    kvVersion: 1
    permit: [{paths: ["old/{namespace}/*"]}]
kubernetes:
  permit: [{paths: ["{namespace}/*"]}]
sops:
  age: [{secret: sops-age, key: keys.txt}]
`

func newSecretWorld(t *testing.T) *secretWorld { return newSecretWorldWith(t, secretPolicy) }

func newSecretWorldWith(t *testing.T, policy string) *secretWorld {
	t.Helper()
	s := &secretWorld{vault: vault.New(t, shared.Dynamic()), canaries: canary.New(), log: &lines{}}
	s.world = newWorldWith(t, func(w *world) {
		w.apply("apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: capstan-agent, namespace: " + w.home + "}\n")
		token, err := shared.AccountToken(t.Context(), w.home, "capstan-agent")
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "token")
		if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
		s.vault.Bind("agent", vault.Role{Accounts: []string{w.home + ":capstan-agent"}, Paths: []string{"secret/data/*", "old/*"}})
		w.secrets = strings.NewReplacer("ADDRESS", s.vault.URL, "CA", s.vault.CAFile, "TOKEN", file).Replace(policy)
		w.alsoLog = s.log
	})
	return s
}

// resolving is an application that opts in.
func (s *secretWorld) resolving() *application {
	a := s.application()
	a.policy.SyncOptions = []string{"ResolveSecrets=true"}
	return a
}

// put writes a canary to a key of a secret in Vault.
func (s *secretWorld) put(name, key, canary string) string {
	v := s.canaries.Plant(canary)
	s.vault.Put("secret/"+s.namespace+"/"+name, map[string]any{key: v})
	return v
}

// noLeak searches everything that the hub has and what the agent has logged.
func (s *secretWorld) noLeak(t *testing.T) {
	t.Helper()
	var all bytes.Buffer
	s.mu.Lock()
	for _, a := range s.fakeHub.apps {
		all.WriteString(protojson.Format(a))
	}
	for _, r := range s.resources {
		all.WriteString(protojson.Format(r))
	}
	for _, o := range s.operations {
		all.WriteString(protojson.Format(o))
	}
	s.mu.Unlock()
	leaks := s.canaries.Find("what the hub has", all.Bytes())
	leaks = append(leaks, s.canaries.Find("the agent's log", s.log.text())...)
	state, err := s.canaries.FindInFolder(s.state, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range append(leaks, state...) {
		t.Error(l)
	}
}

// shown is what the agent returns about the objects of an application.
func (s *secretWorld) shown(t *testing.T, a *application) []*linkv1.ObjectDiff {
	t.Helper()
	got, err := s.ops(t).Diff(t.Context(), &linkv1.DiffRequest{AppId: a.id, All: true, Predict: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range s.canaries.Find("the answer of Diff", []byte(protojson.Format(got))) {
		t.Error(l)
	}
	for _, o := range got.GetObjects() {
		for _, text := range [][]byte{o.GetDesired(), o.GetLive(), o.GetApplied(), o.GetNormalized(), o.GetPredicted()} {
			for _, l := range s.canaries.Find("Diff of "+o.GetName(), text) {
				t.Error(l)
			}
		}
	}
	return got.GetObjects()
}

func (s *secretWorld) configOf(t *testing.T, name string) map[string]any {
	t.Helper()
	data, _, _ := unstructured.NestedMap(s.get(configMaps, name).Object, "data")
	return data
}

func config(name, entries string) string {
	return fmt.Sprintf("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, namespace: NS}\ndata: %s\n", name, entries)
}

func secretOf(name, entries string) string {
	return fmt.Sprintf("---\napiVersion: v1\nkind: Secret\nmetadata: {name: %s, namespace: NS}\nstringData: %s\n", name, entries)
}

func TestPlaceholders(t *testing.T) {
	s := newSecretWorld(t)
	password := s.put("db", "password", "password")
	json := s.canaries.Plant("inside JSON")
	s.vault.Put("secret/"+s.namespace+"/json", map[string]any{"doc": `{"user": {"name": "` + json + `"}}`, "port": 5432})
	s.vault.Put("old/"+s.namespace+"/db", map[string]any{"password": s.canaries.Plant("version 1 of the engine")})
	t.Run("SEC-C1 pain 22 placeholders are resolved with the cluster's identity, in Secrets and elsewhere", func(t *testing.T) {
		a := s.resolving()
		a.deploy(secretOf("one", `{p: "<path:secret/data/NS/db#password>", url: "postgres://u:<path:secret/data/NS/db#password>@db", j: "<path:secret/data/NS/json#doc | jsonPath {.user.name} | base64encode>"}`) +
			config("one", `{p: "<path:secret/data/NS/db#password>", port: "<path:secret/data/NS/json#port>", v1: "<path:old:old/NS/db#password>", plain: "a < b"}`))
		a.synced()
		data, _, _ := unstructured.NestedMap(s.get(secrets, "one").Object, "data")
		want := map[string]string{"p": password, "url": "postgres://u:" + password + "@db", "j": base64.StdEncoding.EncodeToString([]byte(json))}
		for k, v := range want {
			if data[k] != base64.StdEncoding.EncodeToString([]byte(v)) {
				t.Errorf("Secret key %s is %v", k, data[k])
			}
		}
		got := s.configOf(t, "one")
		if got["p"] != password || got["port"] != "5432" || got["plain"] != "a < b" || got["v1"] != s.canaries.Plant("version 1 of the engine") {
			t.Errorf("ConfigMap has %v", got)
		}
		for _, o := range s.shown(t, a) {
			if o.GetKind() == "ConfigMap" && (!strings.Contains(string(o.GetLive()), "hmac:") || !strings.Contains(string(o.GetDesired()), "hmac:")) {
				t.Errorf("%s is shown as %s and %s", o.GetName(), o.GetDesired(), o.GetLive())
			}
		}
		s.noLeak(t)
	})
	t.Run("pain 22 a version of a secret can be named, and the short form with its annotation", func(t *testing.T) {
		first := s.put("versions", "k", "first version")
		s.put("versions", "k", "second version")
		a := s.resolving()
		a.deploy(config("versions", `{k: "<path:secret/data/NS/versions#k#1>"}`) +
			"---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: short, namespace: NS, annotations: {avp.kubernetes.io/path: secret/data/NS/versions}}\ndata: {k: <k>}\n")
		if got := s.configOf(t, "versions"); got["k"] != first {
			t.Error("not the first version")
		}
		if got := s.configOf(t, "short"); got["k"] != s.canaries.Plant("second version") {
			t.Error("not the newest version")
		}
		s.noLeak(t)
	})
	t.Run("pain 22 without opting in, text that looks like a placeholder is ordinary text", func(t *testing.T) {
		const text = "<path:secret/data/shop#password>"
		a := s.application()
		a.deploy(config("plain", `{p: "`+text+`"}`))
		if got := s.configOf(t, "plain"); got["p"] != text {
			t.Errorf("it is %v", got["p"])
		}
		b := s.resolving()
		b.deploy("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: out, namespace: NS, annotations: {avp.kubernetes.io/ignore: \"true\"}}\ndata: {p: \"" + text + "\"}\n")
		if got := s.configOf(t, "out"); got["p"] != text {
			t.Errorf("it is %v", got["p"])
		}
	})
	t.Run("pain 22 an application that opts in later is written again, once", func(t *testing.T) {
		a := s.application()
		a.deploy(config("later", `{p: "<path:secret/data/NS/db#password>"}`) + config("other", "{p: x}"))
		other := s.get(configMaps, "other").GetResourceVersion()
		a.policy.SyncOptions = []string{"ResolveSecrets=true"}
		s.append(a.stateRow())
		s.live(configMaps, "later", data("p", password))
		a.synced()
		if s.get(configMaps, "other").GetResourceVersion() != other {
			t.Error("an object without references was written")
		}
	})
	t.Run("pain 22 a hook has resolved values, too", func(t *testing.T) {
		a := s.resolving()
		a.deploy("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: hook, namespace: NS, annotations: {argocd.argoproj.io/hook: PreSync, argocd.argoproj.io/hook-delete-policy: HookFailed}}\ndata: {p: \"<path:secret/data/NS/db#password>\"}\n" + config("after", "{a: b}"))
		if got := s.configOf(t, "hook"); got["p"] != password {
			t.Error("the hook has another value")
		}
		s.noLeak(t)
	})
	t.Run("pain 22 live drift in a resolved field is healed, and what differs is shown without values", func(t *testing.T) {
		a := s.resolving()
		a.deploy(config("drift", `{p: "<path:secret/data/NS/db#password>"}`))
		a.synced()
		s.edit(configMaps, "drift", "kubectl-edit", `{"data": {"p": "changed"}}`)
		s.live(configMaps, "drift", data("p", password))
		a.synced()
		s.noLeak(t)
	})
	t.Run("INV-5 after a restart the agent hides what it resolved before", func(t *testing.T) {
		a := s.resolving()
		a.deploy(config("restart", `{p: "<path:secret/data/NS/db#password>"}`))
		a.synced()
		s.vault.Seal(true) // it cannot resolve anything again
		s.stop()
		s.run()
		a.synced()
		s.eventually("the agent answers", func() bool {
			conn, ok := s.server.Conn(s.cluster)
			if !ok {
				return false
			}
			_, err := linkv1.NewOpsClient(conn).Diff(t.Context(), &linkv1.DiffRequest{AppId: a.id, All: true})
			return err == nil
		})
		s.shown(t, a)
		s.vault.Seal(false)
		s.noLeak(t)
	})
}

func TestRotation(t *testing.T) {
	s := newSecretWorld(t)
	s.put("db", "password", "before")
	manifests := config("rotated", `{p: "<path:secret/data/NS/db#password>", other: text}`)
	t.Run("pain 22 a rotated secret is applied after the refresh interval, and its object was OutOfSync with the reason", func(t *testing.T) {
		a := s.resolving()
		a.policy.SelfHeal = false
		a.deploy(manifests)
		a.synced()
		after := s.put("db", "password", "after")
		r := s.resource("ConfigMap "+s.namespace+"/rotated", func(r *linkv1.Resource) bool { return r.GetSync() == "OutOfSync" })
		if !strings.Contains(r.GetDiff(), "secrets were rotated") || !strings.Contains(r.GetDiff(), "secret/data/"+s.namespace+"/db#password") {
			t.Errorf("the reason is %q", r.GetDiff())
		}
		a.policy.SelfHeal = true
		s.append(a.stateRow())
		s.live(configMaps, "rotated", data("p", after))
		a.synced()
		s.noLeak(t)
	})
	t.Run("pain 22 a sync without self-heal writes it", func(t *testing.T) {
		a := s.resolving()
		a.policy.SelfHeal = false
		s.put("two", "password", "two before")
		two := config("two", `{p: "<path:secret/data/NS/two#password>"}`)
		a.deploy(two)
		after := s.put("two", "password", "two after")
		s.resource("ConfigMap "+s.namespace+"/two", func(r *linkv1.Resource) bool { return r.GetSync() == "OutOfSync" })
		a.deploy(two)
		s.live(configMaps, "two", data("p", after))
	})
	t.Run("pain 22 while Vault is away what was applied stays, and a condition says so", func(t *testing.T) {
		a := s.resolving()
		a.deploy(config("stays", `{p: "<path:secret/data/NS/db#password>"}`))
		a.synced()
		version := s.get(configMaps, "stays").GetResourceVersion()
		s.vault.Seal(true)
		a.await("a warning", func(r *linkv1.AppReport) bool {
			return len(r.GetWarnings()) == 1 && strings.Contains(r.GetWarnings()[0], "stays") && strings.Contains(r.GetWarnings()[0], "Vault")
		})
		if got := s.get(configMaps, "stays").GetResourceVersion(); got != version {
			t.Error("it was written")
		}
		s.vault.Seal(false)
		a.await("no warning", func(r *linkv1.AppReport) bool { return len(r.GetWarnings()) == 0 && r.GetSync() == "Synced" })
	})
	t.Run("pain 22 a revoked sign-in is repeated", func(t *testing.T) {
		before := s.vault.Logins()
		s.vault.Revoke()
		s.eventually("another sign-in", func() bool { return s.vault.Logins() > before })
	})
}

func TestRefreshResolvesAgain(t *testing.T) {
	s := newSecretWorldWith(t, strings.Replace(secretPolicy, "refresh: 1s", "refresh: 1h", 1))
	s.put("db", "password", "before")
	a := s.resolving()
	a.deploy(config("refreshed", `{p: "<path:secret/data/NS/db#password>"}`) + config("second", `{p: "<path:secret/data/NS/db#password>"}`))
	a.synced()
	t.Run("pain 22 many objects read a secret once", func(t *testing.T) {
		if n := s.vault.Reads("secret/data/" + s.namespace + "/db"); n != 1 {
			t.Errorf("it was read %d times", n)
		}
	})
	t.Run("pain 22 a refresh reads secrets again, whatever the interval is", func(t *testing.T) {
		after := s.put("db", "password", "after")
		if _, err := s.ops(t).Refresh(t.Context(), &linkv1.RefreshRequest{AppId: a.id}); err != nil {
			t.Fatal(err)
		}
		s.live(configMaps, "refreshed", data("p", after))
		s.live(configMaps, "second", data("p", after))
		a.synced()
		if n := s.vault.Reads("secret/data/" + s.namespace + "/db"); n != 2 {
			t.Errorf("it was read %d times", n)
		}
		s.noLeak(t)
	})
}

func TestFailedReferences(t *testing.T) {
	s := newSecretWorld(t)
	s.put("db", "password", "password")
	s.vault.Put("secret/shared/all", map[string]any{"k": s.canaries.Plant("of another project")})
	s.vault.Put("secret/other/db", map[string]any{"k": s.canaries.Plant("of another namespace")})
	s.apply("apiVersion: v1\nkind: Secret\nmetadata: {name: here, namespace: NS}\nstringData: {k: " + s.canaries.Plant("of the cluster") + "}\n")
	s.apply("apiVersion: v1\nkind: Secret\nmetadata: {name: tenants, namespace: NS, annotations: {capstan.dev/tenant: 00000000-0000-0000-0000-000000000001}}\nstringData: {k: " + s.canaries.Plant("of another tenant") + "}\n")
	s.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: NS-x}\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: far, namespace: NS-x}\nstringData: {k: " + s.canaries.Plant("of a far namespace") + "}\n")
	for name, c := range map[string]struct{ value, says string }{
		"a key that is missing":              {"<path:secret/data/NS/db#nothing>", `has no key "nothing"`},
		"a secret that is missing":           {"<path:secret/data/NS/none#k>", "Vault has no secret secret/data/" + s.namespace + "/none"},
		"a version that is missing":          {"<path:secret/data/NS/db#password#7>", "Vault has no secret"},
		"another namespace's path":           {"<path:secret/data/other/db#k>", "does not permit the secret secret/data/other/db"},
		"a path of another project":          {"<path:secret/data/shared/all#k>", "does not permit the secret secret/data/shared/all"},
		"a path that goes up":                {"<path:secret/data/NS/../other/db#k>", "leads elsewhere"},
		"an escaped path":                    {"<path:secret/data/NS/%2e%2e/other/db#k>", "not permitted"},
		"a path with a query":                {"<path:secret/data/NS/db?version=1#k>", "not permitted"},
		"a path of the system":               {"<path:sys/policies/acl/agent#policy>", "is not that of a secret"},
		"a store that there is not":          {"<path:other:secret/data/NS/db#k>", `no secret store "other"`},
		"a Secret of another namespace":      {"<path:kubernetes:NS-x/far#k>", "does not permit the secret " + s.namespace + "-x/far"},
		"a Secret of the agent":              {"<path:kubernetes:" + s.home + "/capstan-agent-state#identity>", "does not permit"},
		"a Secret of another tenant":         {"<path:kubernetes:tenants#k>", "belongs to another tenant"},
		"a modifier that there is not":       {"<path:secret/data/NS/db#password | exec>", `modifier "exec"`},
		"a placeholder that is not finished": {"<path:secret/data/NS/db>", "malformed"},
	} {
		t.Run("SEC-C8 ISO-9 refused: "+name, func(t *testing.T) {
			a := s.resolving()
			bad, good := fmt.Sprintf("bad-%x", name[:6])+fmt.Sprint(len(name)), fmt.Sprintf("good-%d-%x", len(name), name[2:5])
			op := s.ended(a.begin(config(bad, `{p: "`+c.value+`"}`)+config(good, "{a: b}"), nil), "Failed")
			if got := messageOf(op, bad); !strings.Contains(got, c.says) {
				t.Errorf("the message is %q, want %q", got, c.says)
			}
			s.get(configMaps, good) // the others are applied
			if _, err := s.at(configMaps).Get(t.Context(), bad, metav1.GetOptions{}); err == nil {
				t.Error("the object was written")
			}
			s.noLeak(t)
		})
	}
	t.Run("pain 22 a Secret of the own namespace may be read", func(t *testing.T) {
		a := s.resolving()
		a.deploy(config("near", `{p: "<path:kubernetes:here#k>", q: "<path:kubernetes:NS/here#k>"}`))
		if got := s.configOf(t, "near"); got["p"] != s.canaries.Plant("of the cluster") || got["q"] != got["p"] {
			t.Errorf("it is %v", got)
		}
		s.noLeak(t)
	})
	t.Run("pain 22 IMP-01 it is read with the rights of the application's service account", func(t *testing.T) {
		s.grant("reader", onConfigMaps)
		s.set(&linkv1.Settings{Impersonate: true})
		defer s.set(&linkv1.Settings{})
		a := s.resolving()
		a.policy.ServiceAccount = "system:serviceaccount:" + s.namespace + ":reader"
		op := s.ended(a.begin(config("asreader", `{p: "<path:kubernetes:here#k>"}`), nil), "Failed")
		if got := messageOf(op, "asreader"); !strings.Contains(got, "cannot get") {
			t.Errorf("the message is %q", got)
		}
	})
	t.Run("pain 22 Vault away: the operation says so, and a sync works when it is back", func(t *testing.T) {
		s.vault.Seal(true)
		a := s.resolving()
		op := s.ended(a.begin(config("away", `{p: "<path:secret/data/NS/fresh#k>"}`)+config("beside", "{a: b}"), nil), "Error")
		if got := messageOf(op, "away"); !strings.Contains(got, "Vault answered with status 503") {
			t.Errorf("the message is %q", got)
		}
		s.get(configMaps, "beside")
		s.vault.Seal(false)
		v := s.put("fresh", "k", "fresh")
		a.deploy(config("away", `{p: "<path:secret/data/NS/fresh#k>"}`) + config("beside", "{a: b}"))
		s.live(configMaps, "away", data("p", v))
	})
}

func TestPlacesThatArePrinted(t *testing.T) {
	s := newSecretWorld(t)
	s.put("db", "password", "password")
	s.vault.Put("secret/"+s.namespace+"/short", map[string]any{"k": "abc"})
	const p = "<path:secret/data/NS/db#password>"
	for name, manifest := range map[string]string{
		"an annotation":            "metadata: {name: printed, namespace: NS, annotations: {a: \"" + p + "\"}}\ndata: {a: b}\n",
		"a label":                  "metadata: {name: printed, namespace: NS, labels: {a: \"" + p + "\"}}\ndata: {a: b}\n",
		"a finalizer":              "metadata: {name: printed, namespace: NS, finalizers: [\"" + p + "\"]}\ndata: {a: b}\n",
		"a key":                    "metadata: {name: printed, namespace: NS}\ndata: {\"" + p + "\": b}\n",
		"a hook's own annotations": "metadata: {name: printed, namespace: NS, annotations: {argocd.argoproj.io/hook: PreSync, a: \"" + p + "\"}}\ndata: {a: b}\n",
	} {
		t.Run("SEC-C1 a placeholder is refused in "+name, func(t *testing.T) {
			a := s.resolving()
			op := s.ended(a.begin("---\napiVersion: v1\nkind: ConfigMap\n"+manifest, nil), "Failed")
			if got := messageOf(op, "printed") + op.GetMessage(); !strings.Contains(got, "may not stand in metadata") && !strings.Contains(got, "is a placeholder, and only values") {
				t.Errorf("the message is %q", got)
			}
			if _, err := s.at(configMaps).Get(t.Context(), "printed", metav1.GetOptions{}); err == nil {
				t.Error("the object was written")
			}
			s.noLeak(t)
		})
	}
	t.Run("pain 22 metadata of a template may have a hash, which restarts pods, and pods' values are hidden", func(t *testing.T) {
		a := s.resolving()
		a.deploy(`---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: NS}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}, annotations: {sum: "<path:secret/data/NS/db#password | sha256sum>"}}
    spec:
      containers:
        - name: web
          image: registry.test/web
          env: [{name: PASSWORD, value: "<path:secret/data/NS/db#password>"}, {name: SHORT, value: "<path:secret/data/NS/short#k>"}]
`)
		sum, _, _ := unstructured.NestedString(s.get(deployments, "web").Object, "spec", "template", "metadata", "annotations", "sum")
		if len(sum) != 64 {
			t.Errorf("the hash is %q", sum)
		}
		var set *linkv1.Resource
		s.await("the child", func() bool {
			for _, r := range s.resources {
				if r.GetKind() == "ReplicaSet" && strings.HasPrefix(r.GetName(), "web-") {
					set = r
				}
			}
			return set != nil
		})
		got, err := s.ops(t).Get(t.Context(), &linkv1.GetRequest{AppId: a.id, Group: "apps", Version: "v1", Kind: "ReplicaSet", Namespace: s.namespace, Name: set.GetName()})
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range s.canaries.Find("the ReplicaSet", got.GetJson()) {
			t.Error(l)
		}
		if strings.Contains(string(got.GetJson()), `"abc"`) {
			t.Error("a short value is shown")
		}
		s.shown(t, a)
		s.noLeak(t)
	})
	t.Run("SEC-C2 an API server that quotes a resolved value does not make it public", func(t *testing.T) {
		a := s.resolving()
		op := s.ended(a.begin("---\napiVersion: v1\nkind: Service\nmetadata: {name: quoted, namespace: NS}\nspec: {type: \"<path:secret/data/NS/db#password>\", ports: [{port: 80}]}\n", nil), "Failed")
		if got := messageOf(op, "quoted"); !strings.Contains(got, "spec.type") {
			t.Errorf("the message is %q", got)
		}
		s.noLeak(t)
	})
	t.Run("SEC-C2 nor does one whose answer is not one", func(t *testing.T) {
		s.faults.set(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			if r.Method == http.MethodPatch && strings.Contains(r.URL.Path, "/odd") {
				body, _ := io.ReadAll(r.Body)
				return &http.Response{StatusCode: 422, Header: http.Header{"Content-Type": {"text/plain"}}, Body: io.NopCloser(bytes.NewReader(body)), Request: r}, nil
			}
			return next.RoundTrip(r)
		})
		defer s.faults.set(nil)
		a := s.resolving()
		s.ended(a.begin(config("odd", `{p: "<path:secret/data/NS/db#password>"}`), nil), "Failed")
		s.noLeak(t)
	})
}

// encrypted puts a new age key into a Secret of the agent's namespace, and
// returns what encrypts for it.
func (s *secretWorld) encrypted(t *testing.T) encryptor {
	t.Helper()
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	s.canaries.Add("the age key", id.String())
	s.apply("apiVersion: v1\nkind: Secret\nmetadata: {name: sops-age, namespace: " + s.home + "}\nstringData: {keys.txt: \"# made by a test\\n" + id.String() + "\\n\"}\n")
	return encryptor{sopsfile.Encryptor{Recipients: []age.Recipient{id.Recipient()}}}
}

// An encryptor makes files in which nothing looks like the mark of a namespace.
type encryptor struct{ sopsfile.Encryptor }

func (e encryptor) Encrypt(t *testing.T, text string) string {
	t.Helper()
	for {
		if out := e.Encryptor.Encrypt(t, text); !namespaceMark.MatchString(out) {
			return out
		}
	}
}

func TestEncryptedFiles(t *testing.T) {
	s := newSecretWorld(t)
	e := s.encrypted(t)
	value := s.canaries.Plant("encrypted")
	secret := inNamespace("apiVersion: v1\nkind: Secret\nmetadata:\n  name: sealed\n  namespace: NS\ntype: Opaque\nstringData:\n  z: "+value+"\n  a: \"<path:secret/data/NS/db#password>\"\n", s.namespace)
	t.Run("pain 22 a file encrypted with SOPS is decrypted with the cluster's age key, and only there", func(t *testing.T) {
		a := s.resolving()
		a.deploy(e.Encrypt(t, secret))
		a.synced()
		o := s.get(secrets, "sealed")
		data, _, _ := unstructured.NestedMap(o.Object, "data")
		b := base64.StdEncoding.EncodeToString
		if data["z"] != b([]byte(value)) || data["a"] != b([]byte("<path:secret/data/"+s.namespace+"/db#password>")) || o.Object["sops"] != nil {
			t.Errorf("the Secret has %v", data)
		}
		s.shown(t, a)
		s.noLeak(t)
		s.edit(secrets, "sealed", "kubectl-edit", `{"data": {"z": "Y2hhbmdlZA=="}}`)
		s.live(secrets, "sealed", func(o *unstructured.Unstructured) error {
			if got, _, _ := unstructured.NestedString(o.Object, "data", "z"); got != b([]byte(value)) {
				return errors.New("it is not healed")
			}
			return nil
		})
		s.noLeak(t)
	})
	t.Run("pain 22 encrypted values of other kinds count as secret, too", func(t *testing.T) {
		a := s.resolving()
		plain := s.canaries.Plant("in a ConfigMap")
		a.deploy(e.Encrypt(t, inNamespace("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: sealed, namespace: NS}\ndata: {k: "+plain+"}\n", s.namespace)))
		if got := s.configOf(t, "sealed"); got["k"] != plain {
			t.Errorf("it is %v", got)
		}
		s.shown(t, a)
		s.noLeak(t)
	})
	t.Run("pain 22 without opting in, an encrypted Secret is refused with the way to it", func(t *testing.T) {
		a := s.application()
		op := s.ended(a.begin(e.Encrypt(t, strings.ReplaceAll(secret, "name: sealed", "name: closed")), nil), "Failed")
		if got := messageOf(op, "closed"); !strings.Contains(got, "ResolveSecrets=true") {
			t.Errorf("the message is %q", got)
		}
	})
	t.Run("SEC-C8 one that was changed, or moved to another kind, is refused", func(t *testing.T) {
		a := s.resolving()
		op := s.ended(a.begin(strings.Replace(e.Encrypt(t, strings.ReplaceAll(secret, "name: sealed", "name: moved")), "kind: Secret", "kind: ConfigMap", 1), nil), "Failed")
		if got := messageOf(op, "moved"); !strings.Contains(got, "was changed after it was encrypted") {
			t.Errorf("the message is %q", got)
		}
		s.noLeak(t)
	})
	t.Run("SEC-C8 one for another cluster's key is refused", func(t *testing.T) {
		other, err := age.GenerateX25519Identity()
		if err != nil {
			t.Fatal(err)
		}
		a := s.resolving()
		op := s.ended(a.begin(sopsfile.Encryptor{Recipients: []age.Recipient{other.Recipient()}}.Encrypt(t, strings.ReplaceAll(secret, "name: sealed", "name: foreign")), nil), "Failed")
		if got := messageOf(op, "foreign"); !strings.Contains(got, "none of the age keys") {
			t.Errorf("the message is %q", got)
		}
		s.noLeak(t)
	})
}
