package agenttest_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// A dry run answers with all that a live object has, whatever was sent. Argo CD
// has shown values of Secrets in this way (GO-2026-5099, GO-2026-5618).
func TestDryRunsShowNoSecret(t *testing.T) {
	s := newSecretWorld(t)
	s.set(&linkv1.Settings{SensitiveAnnotations: []string{"example.com/token"}})
	value, applied, note, marked := s.canaries.Plant("value"), s.canaries.Plant("applied"), s.canaries.Plant("note"), s.canaries.Plant("marked")
	a := s.application()
	a.policy.SelfHeal = false
	a.deploy("---\napiVersion: v1\nkind: Secret\nmetadata: {name: taken, namespace: NS}\n" + config("noted", "{a: b}"))
	a.synced()
	ops := s.ops(t)
	s.edit(secrets, "taken", "kubectl-edit", fmt.Sprintf(`{"data": {"password": %q}, "metadata": {"annotations": {"example.com/token": %q, "kubectl.kubernetes.io/last-applied-configuration": %q}}}`,
		base64.StdEncoding.EncodeToString([]byte(value)), note, `{"stringData":{"password":"`+applied+`"}}`))
	s.edit(configMaps, "noted", "operator", fmt.Sprintf(`{"data": {"token": %q}, "metadata": {"annotations": {"capstan.dev/secret-fields": "/data/token"}}}`, marked))
	clean := func(t *testing.T, what string, text string) {
		t.Helper()
		for _, l := range s.canaries.Find(what, []byte(text)) {
			t.Error(l)
		}
	}
	body := func(t *testing.T, yaml string) []byte {
		t.Helper()
		objs, err := manifest.Parse("test.yaml", []byte(inNamespace(yaml, s.namespace)), manifest.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		text, err := manifest.Canonical(objs[0])
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	for name, c := range map[string]struct{ yaml, shows string }{
		"SEC-C6 a Secret without data":            {"apiVersion: v1\nkind: Secret\nmetadata: {name: taken, namespace: NS, labels: {new: here}}\n", "password"},
		"SEC-C6 a Secret with other data":         {"apiVersion: v1\nkind: Secret\nmetadata: {name: taken, namespace: NS}\nstringData: {other: x}\n", "password"},
		"SEC-C6 a Secret that marks something":    {"apiVersion: v1\nkind: Secret\nmetadata: {name: taken, namespace: NS, annotations: {capstan.dev/secret-fields: /metadata/labels/x}}\n", "password"},
		"SEC-C6 a Secret with another annotation": {"apiVersion: v1\nkind: Secret\nmetadata: {name: taken, namespace: NS, labels: {new: here}, annotations: {example.com/other: x}}\n", "password"},
		"CMP-15 a manifest that takes the mark of what another manager has marked": {
			"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: noted, namespace: NS, annotations: {capstan.dev/secret-fields: /data/none}}\ndata: {a: b}\n", "token"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ops.Preview(t.Context(), &linkv1.PreviewRequest{AppId: a.id, Objects: [][]byte{body(t, c.yaml)}})
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range got.GetObjects() {
				for _, text := range [][]byte{o.GetDesired(), o.GetLive(), o.GetNormalized(), o.GetPredicted()} {
					clean(t, "the preview", string(text))
				}
			}
			clean(t, "the preview", protojson.Format(got))
			if len(got.GetObjects()) != 1 || !strings.Contains(string(got.GetObjects()[0].GetPredicted()), c.shows) {
				t.Errorf("nothing was predicted: %s", protojson.Format(got))
			}
		})
	}
	t.Run("DIFF-03 DIFF-14 the difference with what would be applied", func(t *testing.T) {
		s.ended(a.begin("---\napiVersion: v1\nkind: Secret\nmetadata: {name: taken, namespace: NS, labels: {new: here}}\n"+config("noted", "{a: c}"), func(o *linkv1.Operation) { o.Options = &linkv1.Options{DryRun: true} }), "Succeeded")
		s.shown(t, a)
	})
	for name, c := range map[string]struct{ kind, object, patch string }{
		"SEC-C6 a patch of another field":          {"merge", "Secret taken", `{"metadata":{"labels":{"x":"y"}}}`},
		"SEC-C2 a value that is no base64":         {"merge", "Secret taken", `{"data":{"password":"%%"}}`},
		"SEC-C2 a value that is no text":           {"strategic", "Secret taken", `{"data":{"password":{"a":1}}}`},
		"SEC-C2 a step that does not apply":        {"json", "Secret taken", `[{"op":"remove","path":"/data/none"}]`},
		"SEC-C6 a step that copies":                {"json", "Secret taken", `[{"op":"copy","from":"/data/password","path":"/metadata/labels/x"}]`},
		"SEC-C6 a step in other words":             {"json", "Secret taken", `[{"op":"add","op":"c\u006fpy","from":"/data/password","path":"/metadata/labels/x"}]`},
		"CMP-15 a patch that takes the mark":       {"merge", "ConfigMap noted", `{"metadata":{"annotations":{"capstan.dev/secret-fields":null}}}`},
		"CMP-15 a step that copies what is marked": {"json", "ConfigMap noted", `[{"op":"copy","from":"/data/token","path":"/data/open"}]`},
	} {
		t.Run(name, func(t *testing.T) {
			kind, object, _ := strings.Cut(c.object, " ")
			got, err := ops.Patch(t.Context(), &linkv1.PatchRequest{AppId: a.id, Version: "v1", Kind: kind, Namespace: s.namespace, Name: object, Type: c.kind, Patch: []byte(c.patch), DryRun: true})
			clean(t, "the patched object", string(got.GetJson()))
			clean(t, "the error", fmt.Sprint(err))
		})
	}
	s.noLeak(t)
}

// An API server that refuses a change of a Pod quotes all of it.
func TestRefusedPatchesOfChildrenShowNoSecret(t *testing.T) {
	s := newSecretWorld(t)
	s.put("db", "password", "password")
	a := s.resolving()
	a.deploy(`---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: NS}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: registry.test/web, env: [{name: PASSWORD, value: "<path:secret/data/NS/db#password>"}]}]}
`)
	var pod *linkv1.Resource
	s.await("the pod", func() bool {
		for _, r := range s.resources {
			if r.GetKind() == "Pod" {
				pod = r
			}
		}
		return pod != nil
	})
	_, err := s.ops(t).Patch(t.Context(), &linkv1.PatchRequest{
		AppId: a.id, Version: "v1", Kind: "Pod", Namespace: s.namespace, Name: pod.GetName(), DryRun: true, Patch: []byte(`{"spec":{"containers":[{"name":"web","image":"registry.test/web"}]}}`),
	})
	if err == nil || !strings.Contains(err.Error(), "PASSWORD") {
		t.Errorf("the API server does not quote it: %v", err)
	}
	for _, l := range s.canaries.Find("the error", []byte(fmt.Sprint(err))) {
		t.Errorf("SEC-C2 INV-5 %s", l)
	}
	s.noLeak(t)
}
