package manifest_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/shared/manifest"
)

func TestMarkedFields(t *testing.T) {
	const text = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","annotations":{"a/b":"secret-one","kubectl.kubernetes.io/last-applied-configuration":"{secret-two}","capstan.dev/secret-fields":"/metadata/annotations/a~1b\n /spec/template/spec/containers/0/env \n/metadata/name\n/kind\n/not/there"}},
		"spec":{"replicas":2,"template":{"spec":{"containers":[{"name":"c","image":"i","env":[{"name":"TOKEN","value":"secret-two"}]}]}}}}`
	o, err := manifest.FromCanonical([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	key := []byte("key")
	masked := manifest.Mask(o, key)
	out, err := manifest.Canonical(masked)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("CMP-15 SEC-C1 marked fields of any kind are masked, with what kubectl has copied of them", func(t *testing.T) {
		if strings.Contains(string(out), "secret-one") || strings.Contains(string(out), "secret-two") || !strings.Contains(string(out), manifest.MaskedValue(key, "secret-two")) {
			t.Errorf("%s", out)
		}
	})
	t.Run("CMP-15 what says which object it is stays", func(t *testing.T) {
		if manifest.KeyOf(masked) != manifest.KeyOf(o) || !strings.Contains(string(out), `"replicas":2`) {
			t.Errorf("%s", out)
		}
	})
	t.Run("CMP-15 a masked object can be masked again", func(t *testing.T) {
		again, err := manifest.Canonical(manifest.Mask(masked, key))
		if err != nil {
			t.Fatal(err)
		}
		// Only the copy of kubectl is hashed once more.
		cut := func(text []byte) string {
			_, after, _ := strings.Cut(string(text), `"spec"`)
			return after
		}
		if d := cmp.Diff(cut(out), cut(again)); d != "" {
			t.Error(d)
		}
	})
	t.Run("CMP-15 marks are added to those that are there", func(t *testing.T) {
		manifest.MarkSecret(o, [][]string{{"data", "x/y~z"}, {"spec", "template", "spec", "containers", "0", "env"}})
		marks, _ := manifest.RawAnnotation(o, manifest.SecretFields)
		if d := cmp.Diff("/data/x~1y~0z\n/metadata/annotations/a~1b\n/not/there\n/spec/template/spec/containers/0/env", marks); d != "" {
			t.Error(d)
		}
	})
}

func TestFormsOf(t *testing.T) {
	for name, text := range map[string]string{
		"in the clear": `token: hunter2 "é"`, "quoted": `"hunter2 \"é\""`, "for URLs": "https://u:hunter2+%22%C3%A9%22@h",
		"in base64": "aHVudGVyMiAiw6ki", "in base64 after two bytes": "eHlodW50ZXIyICLDqSJ6",
	} {
		t.Run("CMP-15 a value is found "+name, func(t *testing.T) {
			found := false
			for _, form := range manifest.FormsOf(`hunter2 "é"`) {
				found = found || strings.Contains(text, form)
			}
			if !found {
				t.Errorf("not found in %q: %q", text, manifest.FormsOf(`hunter2 "é"`))
			}
		})
	}
}
