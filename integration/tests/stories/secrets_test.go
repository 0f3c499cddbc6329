package stories_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"
	"github.com/jackc/pgx/v5"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/capstan-cd/capstan/integration/rigs/canary"
	"github.com/capstan-cd/capstan/integration/rigs/sopsfile"
)

// secretPolicy is the policy of the agent of all stories.
const secretPolicy = "refresh: 1s\nkubernetes: {permit: [{paths: ['{namespace}/*']}]}\nsops: {age: [{secret: sops-age, key: keys.txt}]}\n"

// writeSecretPolicy returns the environment of an agent with that policy.
func writeSecretPolicy(dir string) ([]string, error) {
	file := filepath.Join(dir, "secrets.yaml")
	return []string{"CAPSTAN_SECRETS_FILE=" + file}, os.WriteFile(file, []byte(secretPolicy), 0o600)
}

var secretKind = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}

// TestSecretsStayInTheCluster follows references and encrypted files from Git
// to the cluster, and searches everything that the hub has for their values.
func TestSecretsStayInTheCluster(t *testing.T) {
	const name = "secrets"
	cluster, plain := s.Clusters["in-cluster"], canary.New()
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	plain.Add("the age key", id.String())
	home := strings.Split(s.Agents["in-cluster"].User(), ":")[2]
	source := fmt.Sprintf("apiVersion: v1\nkind: Namespace\nmetadata: {name: %s}\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: source, namespace: %s}\nstringData: {k: %s}\n---\n"+
		"apiVersion: v1\nkind: Secret\nmetadata: {name: sops-age, namespace: %s}\nstringData: {keys.txt: %s}\n", name, name, plain.Plant("of the cluster"), home, id.String())
	if err := cluster.Apply(within(t, waitLimit), source); err != nil {
		t.Fatal(err)
	}
	e := sopsfile.Encryptor{Recipients: []age.Recipient{id.Recipient()}}
	only := sopsfile.Encryptor{Recipients: e.Recipients, Only: true}
	sealed := func(e sopsfile.Encryptor, name, value string) string {
		return e.Encrypt(t, "apiVersion: v1\nkind: Secret\nmetadata:\n  name: "+name+"\ntype: Opaque\nstringData:\n  z: "+value+"\n  a: plain\n")
	}
	repo := repository(t, name, map[string]string{
		"dir/sealed.yaml":           sealed(e, "from-dir", plain.Plant("in a directory")),
		"dir/ref.yaml":              "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: ref}\ndata: {k: \"<path:kubernetes:source#k>\", text: \"a <b> c\"}\n",
		"kust/kustomization.yaml":   "resources: [sealed.yaml, same.yaml]\nnamePrefix: kust-\ncommonLabels: {team: shop}\n",
		"kust/sealed.yaml":          sealed(only, "sealed", plain.Plant("in a kustomization")),
		"kust/same.yaml":            sealed(only, "same", plain.Plant("in another resource")),
		"chart/Chart.yaml":          "apiVersion: v2\nname: chart\nversion: 1.0.0\n",
		"chart/values.yaml":         "password: <path:kubernetes:source#k>\n",
		"chart/templates/ref.yaml":  "apiVersion: v1\nkind: Secret\nmetadata: {name: from-chart}\nstringData: {p: {{ .Values.password | quote }}}\n",
		"chart/templates/seal.yaml": sealed(e, "sealed-chart", plain.Plant("in a chart")),
	})
	const option = "    - ResolveSecrets=true\n"
	for _, path := range []string{"dir", "kust", "chart"} {
		manifest := fmt.Sprintf("apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: secrets-%[1]s, namespace: argocd}\nspec:\n  project: default\n"+
			"  source: {repoURL: %[2]q, path: %[1]s, targetRevision: main}\n  destination: {name: in-cluster, namespace: %[3]s}\n"+
			"  syncPolicy:\n    automated: {prune: true, selfHeal: true}\n    syncOptions:\n    - CreateNamespace=true\n%[4]s", path, repo.URL(), name, option)
		if _, err := s.API.Apply(within(t, waitLimit), manifest); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{"dir", "kust", "chart"} {
		settled(t, "secrets-"+path)
	}
	t.Run("pain 22 directories, kustomizations and charts are resolved in the cluster", func(t *testing.T) {
		for object, want := range map[string]string{
			"from-dir/z": "in a directory", "kust-sealed/z": "in a kustomization", "kust-same/z": "in another resource", "from-chart/p": "of the cluster", "sealed-chart/z": "in a chart",
		} {
			of, key, _ := strings.Cut(object, "/")
			if _, err := cluster.WaitFor(within(t, waitLimit), secretKind, name, of, func(o *unstructured.Unstructured) error {
				if got, _, _ := unstructured.NestedString(o.Object, "data", key); got != base64.StdEncoding.EncodeToString([]byte(plain.Plant(want))) {
					return errors.New("it has another value")
				}
				return nil
			}); err != nil {
				t.Errorf("%s: %v", object, err)
			}
		}
		if _, err := cluster.WaitFor(within(t, waitLimit), configMaps, name, "ref", func(o *unstructured.Unstructured) error {
			if got, _, _ := unstructured.NestedString(o.Object, "data", "k"); got != plain.Plant("of the cluster") {
				return errors.New("it has another value")
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	})
	t.Run("SEC-C1 INV-5 no value is in the hub's database, its logs, the agent's, or any answer of the API", func(t *testing.T) {
		var leaks []canary.Leak
		for _, app := range []string{"secrets-dir", "secrets-kust", "secrets-chart"} {
			for _, path := range []string{"", "/tree", "/diff?all=true&predict=true", "/diff?revision=main", "/manifests", "/history", "/operations"} {
				var body json.RawMessage
				if err := s.API.Do(within(t, waitLimit), http.MethodGet, "/api/v1/applications/argocd/"+app+path, nil, &body); err != nil {
					t.Fatal(err)
				}
				leaks = append(leaks, plain.Find(app+path, body)...)
			}
		}
		var live json.RawMessage
		if err := s.API.Do(within(t, waitLimit), http.MethodGet, "/api/v1/applications/argocd/secrets-dir/resource?version=v1&kind=ConfigMap&resourceName=ref&resourceNamespace="+name, nil, &live); err != nil {
			t.Fatal(err)
		}
		if leaks = append(leaks, plain.Find("the live object", live)...); !strings.Contains(string(live), "hmac:") {
			t.Errorf("the live object is %s", live)
		}
		leaks = append(leaks, plain.Find("the database", databaseText(t))...)
		for _, file := range []string{s.Hub.LogFile(), s.Agents["in-cluster"].LogFile()} {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			leaks = append(leaks, plain.Find(file, text)...)
		}
		state, err := plain.FindInFolder(s.Agents["in-cluster"].StateDir(), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range append(leaks, state...) {
			t.Error(l)
		}
	})
	t.Run("pain 22 a rotated Secret of the cluster arrives without a commit", func(t *testing.T) {
		patch := fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: source, namespace: %s}\nstringData: {k: %s}\n", name, plain.Plant("rotated"))
		if err := cluster.Apply(within(t, waitLimit), patch); err != nil {
			t.Fatal(err)
		}
		if _, err := cluster.WaitFor(within(t, waitLimit), configMaps, name, "ref", func(o *unstructured.Unstructured) error {
			if got, _, _ := unstructured.NestedString(o.Object, "data", "k"); got != plain.Plant("rotated") {
				return errors.New("it has another value")
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		settled(t, "secrets-dir")
	})
}

// databaseText is every row of every table, as text.
func databaseText(t *testing.T) []byte {
	t.Helper()
	ctx := within(t, waitLimit)
	conn, err := pgx.Connect(ctx, s.Postgres.Superuser("capstan"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	rows, err := conn.Query(ctx, "SELECT quote_ident(schemaname) || '.' || quote_ident(tablename) FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')")
	if err != nil {
		t.Fatal(err)
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(tables) < 20 {
		t.Fatal(tables, err)
	}
	var out []byte
	for _, table := range tables {
		rows, err := conn.Query(ctx, "SELECT row_to_json(t)::text FROM "+table+" t")
		if err != nil {
			t.Fatal(err)
		}
		all, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, strings.Join(all, "\n")...)
	}
	return out
}
