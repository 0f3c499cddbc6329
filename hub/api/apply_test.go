package api_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

type applied struct {
	Failed  int
	Results []struct {
		Index                         int
		Kind, Namespace, Name, Result string
		Warnings                      []string
		Error                         problem
	}
}

func manifest(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// written is what a person wrote of an object, with numbers kept exactly.
func written(t *testing.T, text []byte) map[string]any {
	t.Helper()
	asJSON, err := yaml.YAMLToJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(bytes.NewReader(asJSON))
	d.UseNumber()
	var o map[string]any
	if err := d.Decode(&o); err != nil {
		t.Fatal(err)
	}
	meta := o["metadata"].(map[string]any)
	return map[string]any{
		"apiVersion": o["apiVersion"], "kind": o["kind"], "spec": o["spec"], "name": meta["name"], "namespace": meta["namespace"],
		"labels": meta["labels"], "annotations": meta["annotations"], "finalizers": meta["finalizers"],
	}
}

func TestApplyReturnsTheAppliedSpec(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin := w.Admin("acme")
	for file, path := range map[string]string{
		"02-application.yaml":             "/api/v1/applications/argocd/my-application",
		"05-application-kustomize.yaml":   "/api/v1/applications/argocd/my-kustomize-app",
		"10-application-helm-values.yaml": "/api/v1/applications/argocd/my-release",
		"15-appproject.yaml":              "/api/v1/projects/team-backend",
	} {
		t.Run("UX-CLI-10 "+file, func(t *testing.T) {
			text := manifest(t, file)
			var out applied
			for _, want := range []string{"created", "unchanged"} {
				w.call(admin, "POST", "/api/v1/apply", text).ok(200).into(&out)
				if out.Failed != 0 || len(out.Results) != 1 || out.Results[0].Result != want {
					t.Fatalf("apply says %+v, want %s", out, want)
				}
			}
			got := w.call(admin, "GET", path, nil).ok(200)
			if diff := cmp.Diff(written(t, []byte(text)), written(t, got.body)); diff != "" {
				t.Errorf("it did not come back equal (-given +got):\n%s", diff)
			}
			// And what came back is taken again.
			w.call(admin, "POST", "/api/v1/apply", string(got.body), header("Content-Type", "application/json")).ok(200).into(&out)
			if out.Failed != 0 || out.Results[0].Result != "unchanged" {
				t.Errorf("applying what came back says %+v", out)
			}
		})
	}
	t.Run("SRC-02 an application with a chart is accepted without a warning", func(t *testing.T) {
		var out applied
		w.call(admin, "POST", "/api/v1/clusters/enroll", map[string]any{"name": "only"}).ok(201)
		w.call(admin, "POST", "/api/v1/apply", manifest(t, "10-application-helm-values.yaml")).ok(200).into(&out)
		if got := strings.Join(out.Results[0].Warnings, "\n"); got != "" || out.Failed != 0 {
			t.Errorf("%d failed, warnings are %q", out.Failed, got)
		}
	})
	t.Run("large and fractional numbers are unchanged", func(t *testing.T) {
		text := `{"apiVersion":"argoproj.io/v1alpha1","kind":"Application","metadata":{"name":"numbers"},"spec":{"destination":{"name":"only"},
			"source":{"repoURL":"https://git.example.com/a/b","path":".","helm":{"valuesObject":{"big":9007199254740993,"half":0.5,"e":1e3}}}}}`
		w.call(admin, "POST", "/api/v1/apply", text).ok(200)
		got := w.call(admin, "GET", "/api/v1/applications/argocd/numbers", nil).ok(200)
		if !bytes.Contains(got.body, []byte("9007199254740993")) {
			t.Errorf("a number lost digits: %s", got.body)
		}
	})
}

func TestApplySecrets(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin := w.Admin("acme")
	var out applied
	answers := []answer{w.call(admin, "POST", "/api/v1/apply", manifest(t, "07-repositories.yaml")).ok(200).into(&out)}
	if out.Failed != 0 || len(out.Results) != 2 || out.Results[0].Result != "created" || out.Results[1].Result != "created" {
		t.Fatalf("apply says %+v", out)
	}
	answers = append(answers, w.call(admin, "POST", "/api/v1/apply", manifest(t, "14-cluster-secret.yaml")).ok(200).into(&out))
	t.Run("CLU-01 a labelled Secret names the cluster, its server and its labels; credentials are not stored", func(t *testing.T) {
		if got := strings.Join(out.Results[0].Warnings, "\n"); !strings.Contains(got, "bearerToken and tlsClientConfig were not stored") || !strings.Contains(got, "capstan cluster enroll production-cluster") {
			t.Errorf("warnings are %q", got)
		}
		var cluster struct {
			Server string
			Labels map[string]string
		}
		w.call(admin, "GET", "/api/v1/clusters/production-cluster", nil).ok(200).into(&cluster)
		if cluster.Server != "https://production.k8s.example.com" || cluster.Labels["environment"] != "production" || len(cluster.Labels) != 1 {
			t.Errorf("the cluster is %+v", cluster)
		}
	})
	t.Run("CRED-01 labelled Secrets declare a repository and a credential template", func(t *testing.T) {
		var repos, templates struct{ Items []struct{ URL string } }
		w.call(admin, "GET", "/api/v1/repositories", nil).ok(200).into(&repos)
		w.call(admin, "GET", "/api/v1/repository-credentials", nil).ok(200).into(&templates)
		if len(repos.Items) != 1 || !strings.Contains(repos.Items[0].URL, "my-org/my-private-repo") || len(templates.Items) != 1 || !strings.HasSuffix(templates.Items[0].URL, "github.com/my-org") {
			t.Errorf("repositories %+v, templates %+v", repos.Items, templates.Items)
		}
	})
	t.Run("CRED-20 no answer, list, audit record or log holds a secret", func(t *testing.T) {
		for _, path := range []string{"/api/v1/repositories", "/api/v1/repository-credentials", "/api/v1/clusters", "/api/v1/audit"} {
			answers = append(answers, w.call(admin, "GET", path, nil).ok(200))
		}
		var repos struct{ Items []struct{ ID string } }
		w.call(admin, "GET", "/api/v1/repositories", nil).into(&repos)
		for _, r := range repos.Items {
			answers = append(answers, w.call(admin, "GET", "/api/v1/repositories/"+r.ID, nil).ok(200))
		}
		answers = append(answers, answer{what: "the log", body: []byte(w.Log.String())})
		for _, a := range answers {
			for _, secret := range []string{"ghp_", "eyJhbGciOi"} {
				if bytes.Contains(a.body, []byte(secret)) {
					t.Errorf("%s holds %q: %s", a.what, secret, a.body)
				}
			}
		}
	})
	t.Run("a password may be replaced, and is unchanged when none is given", func(t *testing.T) {
		var repo struct {
			ID, URL       string
			HasCredential bool
		}
		w.call(admin, "POST", "/api/v1/repositories", map[string]any{"url": "https://github.com/my-org/my-private-repo", "name": "renamed", "username": "git"}).ok(200).into(&repo)
		if !repo.HasCredential {
			t.Error("changing the name lost the credential")
		}
		w.call(admin, "DELETE", "/api/v1/repositories/"+repo.ID, nil).ok(204)
		w.call(admin, "GET", "/api/v1/repositories/"+repo.ID, nil).fails(404)
	})
}

func TestApplyBadInput(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin := w.Admin("acme")
	good := "apiVersion: argoproj.io/v1alpha1\nkind: AppProject\nmetadata: {name: good}\nspec: {}\n"
	app := func(rest string) string {
		return "apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: x}\n" + rest
	}
	t.Run("an invalid text changes nothing", func(t *testing.T) {
		for name, text := range map[string]string{
			"NotYAML":  good + "---\n: : :\n\t- x",
			"NoObject": good + "---\nhello: world\nkind: 3\n",
			"Empty":    "",
			"OnlyAliases": "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\n" +
				"e: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: [*e,*e,*e,*e,*e,*e,*e,*e,*e]\n",
		} {
			a := w.call(admin, "POST", "/api/v1/apply", text)
			if a.status != 400 && a.status != 429 && a.status != 413 {
				t.Errorf("%s: status %d: %s", name, a.status, a.body)
			}
			a.fails(a.status)
		}
		w.call(admin, "GET", "/api/v1/projects/good", nil).fails(404)
	})
	t.Run("one bad document does not stop the others", func(t *testing.T) {
		var out applied
		w.call(admin, "POST", "/api/v1/apply", app("spec: {destination: {name: a, server: https://b}, source: {repoURL: 'https://x.example.com/y', path: .}}\n")+"---\n"+good).ok(200).into(&out)
		if out.Failed != 1 || out.Results[0].Result != "failed" || out.Results[1].Result != "created" || out.Results[0].Error.Code != "CAP-1400" || out.Results[0].Error.Object != "application x" {
			t.Errorf("apply says %+v", out)
		}
	})
	t.Run("a kind that is not served is reported as such", func(t *testing.T) {
		for text, want := range map[string]string{
			"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: argocd-cm}\ndata: {resource.exclusions: 'kinds: x'}\n":                             "key resource.exclusions",
			"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: argocd-cm}\ndata: {exec.enabled: true}\n":                                          "is no text",
			"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: argocd-cm}\ndata: [x]\n":                                                           "no map",
			"apiVersion: argoproj.io/v1alpha1\nkind: ApplicationSet\nmetadata: {name: x}\n":                                                       "no spec",
			"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}\n":                                                                        "not served",
			"apiVersion: v1\nkind: Secret\nmetadata: {name: x}\nstringData: {a: b}\n":                                                             "no label",
			"apiVersion: v1\nkind: Secret\nmetadata: {name: x, labels: {argocd.argoproj.io/secret-type: scm-creds}}\n":                            "it holds no credential",
			"apiVersion: v1\nkind: Secret\nmetadata: {name: x, labels: {argocd.argoproj.io/secret-type: repository}}\nstringData: {url: 'a b'}\n": "URL",
			"apiVersion: v1\nkind: Secret\nmetadata: {name: x, labels: {argocd.argoproj.io/secret-type: repository}}\ndata: {url: '%%%'}\n":       "not base64",
			"apiVersion: v1\nkind: Secret\nmetadata: {name: x, labels: {argocd.argoproj.io/secret-type: repository}}\nstringData: [1]\n":          "no map",
			app(""):            "no spec",
			app("spec: hello"): "",
			app("spec: {source: {repoURL: 3}, destination: {name: a}}"): "repoURL",
			app("operation: {sync: {}}\nspec: {}"):                      "neither server nor name",
			app("operation: {sync: {manifests: ['{}']}}\nspec: {source: {repoURL: 'https://x.example.com/y'}, destination: {name: a}}"):                                                       "cannot bring manifests", // SEC-D4
			app("operation: {info: []}\nspec: {source: {repoURL: 'https://x.example.com/y'}, destination: {name: a}}"):                                                                        "asks for nothing",
			app("operation: {sync: {revision: 3}}\nspec: {source: {repoURL: 'https://x.example.com/y'}, destination: {name: a}}"):                                                             "cannot be read",
			app("operation: {sync: {syncStrategy: {apply: {}, hook: {}}}}\nspec: {source: {repoURL: 'https://x.example.com/y'}, destination: {name: a}}"):                                     "both apply and hook",
			app("spec: {sourceHydrator: {drySource: {repoURL: 'https://x.example.com/y', path: a, targetRevision: main}, syncSource: {targetBranch: env, path: a}}, destination: {name: a}}"): "does not write to repositories", // APP-23
		} {
			var out applied
			w.call(admin, "POST", "/api/v1/apply", text).ok(200).into(&out)
			if out.Failed != 1 || !strings.Contains(out.Results[0].Error.Message, want) {
				t.Errorf("%q: %+v does not say %q", text, out, want)
			}
		}
	})
	t.Run("unknown fields are named in warnings", func(t *testing.T) {
		var out applied
		w.call(admin, "POST", "/api/v1/apply", app("extra: 1\nspec: {destination: {name: a}, source: {repoURL: 'https://x.example.com/y', path: ., helmm: {}}, syncPolicie: {}}\n")).ok(200).into(&out)
		got := strings.Join(out.Results[0].Warnings, "\n")
		for _, want := range []string{"extra", "spec.source.helmm", "spec.syncPolicie"} {
			if out.Failed != 0 || !strings.Contains(got, want) {
				t.Errorf("warnings %q do not name %s", got, want)
			}
		}
	})
	t.Run("a dry run changes nothing", func(t *testing.T) {
		var out applied
		text := strings.ReplaceAll(good, "good", "tried")
		w.call(admin, "POST", "/api/v1/apply?dryRun=true", text).ok(200).into(&out)
		if out.Results[0].Result != "created" {
			t.Errorf("apply says %+v", out)
		}
		w.call(admin, "GET", "/api/v1/projects/tried", nil).fails(404)
	})
	t.Run("SEC-I1 a text that is too large is refused unread", func(t *testing.T) {
		p := w.call(admin, "POST", "/api/v1/apply", strings.Repeat("# x\n", 4<<20)).fails(413)
		if p.Retryable || p.Code != "CAP-1413" {
			t.Errorf("the error is %+v", p)
		}
		w.call(admin, "POST", "/api/v1/apply", good, header("Content-Type", "text/plain")).fails(400)
	})
}
