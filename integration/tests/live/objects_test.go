package live_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/capstan-cd/capstan/integration/rigs/stack"
)

func TestObjects(t *testing.T) {
	name := deploy(t, "objects", 1,
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {colour: red}\n",
		"apiVersion: v1\nkind: Secret\nmetadata: {name: key}\nstringData: {password: hunter2}\n")[0]
	cluster := s.Clusters["in-cluster"].Dynamic()
	events := cluster.Resource(schema.GroupVersionResource{Version: "v1", Resource: "events"}).Namespace("objects")
	for reason, of := range map[string]map[string]any{
		"Foreign":   {"apiVersion": "v1", "kind": "Pod", "namespace": "objects", "name": "somebody-else"},
		"Unhealthy": {"apiVersion": "v1", "kind": "Pod", "namespace": "objects", "name": name},
	} {
		if _, err := events.Create(within(t), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Event", "metadata": map[string]any{"generateName": "e-", "namespace": "objects"},
			"involvedObject": of, "reason": reason, "type": "Warning", "message": "probe failed", "count": int64(3),
			"firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2099-01-01T00:01:00Z", "source": map[string]any{"component": "kubelet"},
		}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("API-11 events of an application and of an object, and of nothing else", func(t *testing.T) {
		for _, query := range []string{"", "?kind=Pod&resourceNamespace=objects&resourceName=" + name} {
			var list struct {
				Items []struct {
					Reason, Kind, Name, Message, Source string
					Count                               int
				}
			}
			if err := s.API.Do(within(t), http.MethodGet, "/api/v1/applications/argocd/objects/events"+query, nil, &list); err != nil {
				t.Fatal(err)
			}
			if len(list.Items) == 0 || list.Items[0].Reason != "Unhealthy" || list.Items[0].Name != name || list.Items[0].Count != 3 || list.Items[0].Source != "kubelet" {
				t.Errorf("%q: %+v", query, list.Items)
			}
			for _, e := range list.Items {
				if e.Reason == "Foreign" || query != "" && e.Name != name {
					t.Errorf("ISO-1 %q has %+v", query, e)
				}
			}
		}
		out, err := s.API.CLI(within(t), "", "app", "events", "objects", "--kind", "Pod", "--resource-name", name)
		if err != nil || !strings.Contains(out, "Unhealthy") || !strings.Contains(out, "probe failed") {
			t.Errorf("%s, %v", out, err)
		}
	})
	t.Run("CLI-05 get-resource shows a live object, and no value of a Secret", func(t *testing.T) {
		out, err := s.API.CLI(within(t), "", "app", "get-resource", "objects", "--kind", "ConfigMap", "--resource-name", "settings")
		if err != nil || !strings.Contains(out, "colour: red") {
			t.Errorf("%s, %v", out, err)
		}
		out, err = s.API.CLI(within(t), "", "app", "get-resource", "objects", "--kind", "Secret", "--resource-name", "key")
		if err != nil || !strings.Contains(out, "hmac:") || strings.Contains(out, "aHVudGVyMg") {
			t.Errorf("SEC-C6 %s, %v", out, err)
		}
	})
	maps := cluster.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace("objects")
	colour := func() string {
		t.Helper()
		o, err := maps.Get(within(t), "settings", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		v, _, _ := unstructured.NestedString(o.Object, "data", "colour")
		return v
	}
	patch := func(kind, text string, more ...string) error {
		_, err := s.API.CLI(within(t), "", append([]string{"app", "patch-resource", "objects", "--kind", "ConfigMap", "--resource-name", "settings", "--patch-type", kind, "--patch", text}, more...)...)
		return err
	}
	t.Run("API-10 CLI-05 patch-resource changes a live object in three ways, and a dry run nothing", func(t *testing.T) {
		if err := patch("merge", `{"data":{"colour":"grey"}}`, "--dry-run"); err != nil || colour() != "red" {
			t.Errorf("dry run: %v, it is %s", err, colour())
		}
		for _, c := range [][3]string{
			{"merge", `{"data":{"colour":"green"}}`, "green"}, {"strategic", `{"data":{"colour":"blue"}}`, "blue"},
			{"json", `[{"op":"replace","path":"/data/colour","value":"black"}]`, "black"},
		} {
			if err := patch(c[0], c[1]); err != nil || colour() != c[2] {
				t.Errorf("%s: %v, it is %s", c[0], err, colour())
			}
		}
		if err := patch("merge", `{"data":{"colour":{"no":"text"}}}`); err == nil || colour() != "black" {
			t.Errorf("what the API server refuses: %v, it is %s", err, colour())
		}
	})
	// edit changes the object with an editor that is a script of the shell, with the
	// file as $1.
	edit := func(kind, name, script string) error {
		t.Helper()
		file := filepath.Join(t.TempDir(), "editor")
		if err := os.WriteFile(file, []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		t.Setenv("VISUAL", file)
		t.Setenv("TMPDIR", t.TempDir()) // for the text that is kept
		_, err := s.API.CLI(within(t), "", "app", "edit-resource", "objects", "--kind", kind, "--resource-name", name)
		return err
	}
	t.Run("CLI-05 edit-resource opens a live object; what is refused is opened again, with the reason above it", func(t *testing.T) {
		seen := filepath.Join(t.TempDir(), "seen")
		err := edit("ConfigMap", "settings", `cp "$1" `+seen+`-$(ls `+filepath.Dir(seen)+` | wc -l)
sed -i 's/colour: \[1\]/colour: violet/; s/colour: black/colour: [1]/' "$1"`)
		if err != nil || colour() != "violet" {
			t.Errorf("%v, it is %s", err, colour())
		}
		first, second := read(t, seen+"-0"), read(t, seen+"-1")
		if !strings.HasPrefix(first, "# ConfigMap objects/settings of application objects") || strings.Contains(first, "managedFields") {
			t.Errorf("first:\n%s", first)
		}
		reason, rest, _ := strings.Cut(second, "#\n")
		if len(reason) < len("# x\n") || !strings.HasPrefix(reason, "# ") || !strings.HasPrefix(rest, "# ConfigMap objects/settings") || !strings.Contains(rest, "colour: [1]") {
			t.Errorf("second:\n%s", second)
		}
	})
	t.Run("CLI-05 edit-resource changes nothing without a change, and says where a refused text is", func(t *testing.T) {
		if err := edit("ConfigMap", "settings", ":"); err != nil || colour() != "violet" {
			t.Errorf("no change: %v", err)
		}
		if err := edit("ConfigMap", "settings", `: > "$1"`); err != nil || colour() != "violet" {
			t.Errorf("an empty file: %v", err)
		}
		for says, script := range map[string]string{
			"must stay":           `sed -i 's/name: settings/name: other/' "$1"`,
			"cannot be read":      `sed -i 's/^data:.*/data: [/' "$1"`,
			"nothing was changed": "exit 3",
		} {
			err := edit("ConfigMap", "settings", script)
			var failed *stack.CLIError
			if !errors.As(err, &failed) || !strings.Contains(failed.Text, says) || colour() != "violet" {
				t.Errorf("%s: %v", script, err)
			} else if says != "nothing was changed" && !strings.Contains(failed.Text, "your text is in "+os.Getenv("TMPDIR")) {
				t.Errorf("%s: %s", script, failed.Text)
			}
		}
	})
	t.Run("SEC-C6 edit-resource adds to a Secret whose values it does not show", func(t *testing.T) {
		if err := edit("Secret", "key", `grep -q aHVudGVyMg "$1" && exit 3; sed -i 's/^data:$/data:\n  added: YQ==/' "$1"`); err != nil {
			t.Error(err)
		}
		o, err := cluster.Resource(schema.GroupVersionResource{Version: "v1", Resource: "secrets"}).Namespace("objects").Get(within(t), "key", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if data, _, _ := unstructured.NestedStringMap(o.Object, "data"); data["added"] != "YQ==" || data["password"] != "aHVudGVyMg==" {
			t.Errorf("it has %d values", len(data))
		}
	})
	secret := func(kind, text string) error {
		return s.API.Do(within(t), http.MethodPost, "/api/v1/applications/argocd/objects/resource/patch", map[string]any{
			"version": "v1", "kind": "Secret", "namespace": "objects", "name": "key", "patchType": kind, "patch": text,
		}, nil)
	}
	t.Run("SEC-C6 API-10 a patch neither reveals a Secret nor writes its mask", func(t *testing.T) {
		for kind, text := range map[string]string{
			"json":  `[{"op":"copy","from":"/data/password","path":"/metadata/annotations/x"}]`,
			"merge": `{"data":{"password":"hmac:0123456789abcdef"}}`,
		} {
			if err := secret(kind, text); err == nil {
				t.Errorf("%s: it was taken", text)
			}
		}
		if err := secret("json", `[{"op":"copy","OP":"add","from":"/data/password","path":"/metadata/annotations","value":{}}]`); err == nil {
			t.Error("an operation is hidden behind another name")
		}
		o, err := cluster.Resource(schema.GroupVersionResource{Version: "v1", Resource: "secrets"}).Namespace("objects").Get(within(t), "key", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		text, _ := json.Marshal(o.GetAnnotations())
		if data, _, _ := unstructured.NestedString(o.Object, "data", "password"); data != "aHVudGVyMg==" || strings.Contains(string(text), "aHVudGVyMg") {
			t.Errorf("data %s, annotations %s", data, text)
		}
		if err := secret("merge", `{"data":{"second":"YQ=="}}`); err != nil {
			t.Errorf("another value: %v", err)
		}
	})
	t.Run("RBAC-06 API-10 the right is that on the one object", func(t *testing.T) {
		u := newUser(t, "editor", "applications, get, default/objects", "applications, update/*/ConfigMap/objects/other, default/objects")
		api := &stack.API{URL: s.API.URL, Token: u.token}
		body := map[string]any{"version": "v1", "kind": "ConfigMap", "namespace": "objects", "name": "settings", "patch": `{"data":{"colour":"pink"}}`}
		do := func() error {
			return api.Do(within(t), http.MethodPost, "/api/v1/applications/argocd/objects/resource/patch", body, nil)
		}
		if err := do(); err == nil || !strings.Contains(err.Error(), "403") || colour() == "pink" {
			t.Errorf("without the right: %v", err)
		}
		allow(t, "editor", "applications, get, default/objects", "applications, update, default/objects")
		if err := do(); err == nil || !strings.Contains(err.Error(), "403") {
			t.Errorf("update of the application alone: %v", err)
		}
		allow(t, "editor", "applications, get, default/objects", "applications, update/*/ConfigMap/objects/settings, default/objects")
		if err := do(); err != nil || colour() != "pink" {
			t.Errorf("with it: %v, it is %s", err, colour())
		}
		body["kind"], body["name"] = "Secret", "key"
		if err := do(); err == nil || !strings.Contains(err.Error(), "403") {
			t.Errorf("another object: %v", err)
		}
	})
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Error(err)
	}
	return string(text)
}
