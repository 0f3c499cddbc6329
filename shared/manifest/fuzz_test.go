package manifest_test

import (
	"bytes"
	"testing"

	"github.com/capstan-cd/capstan/shared/manifest"
)

// FuzzMask shows that no Secret and no mark makes Mask panic, that the values of
// a Secret are gone, and that it says which object it was.
func FuzzMask(f *testing.F) {
	f.Add(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"x"},"data":{"a":"Y2FuYXJ5LXZhbHVl"},"stringData":{"b":"canary-value"}}`)
	f.Add(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"x","annotations":{"capstan.dev/secret-fields":"/data\n/~1~0\n/"}},"data":"canary-value"}`)
	f.Add(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","annotations":{"capstan.dev/secret-fields":"/data/0/a\n/metadata/labels"}},"data":[{"a":null},1]}`)
	f.Fuzz(func(t *testing.T, text string) {
		o, err := manifest.FromCanonical([]byte(text))
		if err != nil {
			return
		}
		key := manifest.KeyOf(o)
		masked := manifest.Mask(o, []byte("key"))
		if manifest.KeyOf(masked) != key {
			t.Errorf("%v has become %v", key, manifest.KeyOf(masked))
		}
		if !manifest.IsSecret(o) {
			return
		}
		for _, field := range []string{"data", "stringData"} {
			left, err := manifest.AppendCanonical(nil, masked.Object[field])
			if err == nil && (bytes.Contains(left, []byte("canary-value")) || bytes.Contains(left, []byte("Y2FuYXJ5LXZhbHVl"))) {
				t.Errorf("%s keeps a value: %s", field, left)
			}
		}
	})
}
