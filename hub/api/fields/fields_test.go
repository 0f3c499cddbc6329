package fields

import (
	"encoding/json"
	"testing"
)

func TestSelection(t *testing.T) {
	t.Parallel()
	for text, c := range map[string]struct{ why, want string }{
		"items.metadata.name":           {"one path", `{"items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}]}`},
		"items.metadata,items.spec":     {"a path has all that is below it", `{"items":[{"metadata":{"name":"a","uid":"1"},"spec":{}},{"metadata":{"name":"b","uid":"2"},"spec":{}}]}`},
		"items.metadata.uid,items,kind": {"a shorter path covers longer ones", `{"items":[{"metadata":{"name":"a","uid":"1"},"spec":{}},{"metadata":{"name":"b","uid":"2"},"spec":{}}],"kind":"List"}`},
		"-items.metadata,kind":          {"the fields are left out", `{"items":[{"spec":{}},{"spec":{}}]}`},
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			var page map[string]any
			if err := json.Unmarshal([]byte(`{"kind":"List","items":[{"metadata":{"name":"a","uid":"1"},"spec":{}},{"metadata":{"name":"b","uid":"2"},"spec":{}}]}`), &page); err != nil {
				t.Fatal(err)
			}
			s, unknown, ok := Parse(text)
			if !ok {
				t.Fatalf("%q is unknown", unknown)
			}
			if got, err := json.Marshal(s.From(page)); err != nil || string(got) != c.want {
				t.Errorf("%s, %v, want %s: %s", got, err, c.want, c.why)
			}
		})
	}
}

func TestUnknownFields(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"": "", "nothing": "nothing", "kind,items.nothing": "items.nothing", "items..name": "items..name", "-items.x": "items.x"} {
		if _, unknown, ok := Parse(text); ok || unknown != want {
			t.Errorf("%q: unknown is %q, %v", text, unknown, ok)
		}
	}
}
