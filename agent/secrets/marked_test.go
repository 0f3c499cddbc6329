package secrets_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/agent/secrets"
	"github.com/capstan-cd/capstan/shared/manifest"
)

func TestMarked(t *testing.T) {
	t.Parallel()
	object := func(container string) *manifest.Object {
		t.Helper()
		o, err := manifest.FromCanonical([]byte(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","annotations":{"capstan.dev/secret-fields":"/spec/containers/0/env\n/spec/none"}},"spec":{"containers":[` + container + `]}}`))
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	const c = `{"name":"c","env":[{"name":"TOKEN","value":"hunter2-token"}]}`
	marked := secrets.Marked(object(c))
	t.Run("CMP-15 fields that an object marks are found, whatever its kind, and items by their names", func(t *testing.T) {
		if len(marked) != 1 {
			t.Fatalf("%d fields", len(marked))
		}
		if d := cmp.Diff([]string{"spec", "containers", "name=c", "env"}, marked[0].Path); d != "" {
			t.Error(d)
		}
	})
	t.Run("CMP-15 SEC-C8 they are hidden in the live object, in copies, and in texts", func(t *testing.T) {
		var values secrets.Values
		values.Set(manifest.KeyOf(object(c)), marked)
		live := object(`{"name":"sidecar","env":[{"name":"COPY","value":"hunter2-token"}]},` + c)
		text, err := manifest.Canonical(values.Mask(live, [][]string{marked[0].Path}, []byte("key")))
		if err != nil || strings.Contains(string(text), "hunter2") {
			t.Errorf("%s, %v", text, err)
		}
		if text := values.Text("denied: hunter2-token"); strings.Contains(text, "hunter2") {
			t.Error(text)
		}
	})
	t.Run("CMP-15 a field that is resolved and marked counts once", func(t *testing.T) {
		if all := secrets.Together(marked, marked); len(all) != 1 {
			t.Errorf("%d fields", len(all))
		}
	})
}
