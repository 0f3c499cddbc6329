package validation

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"github.com/capstan-cd/capstan/hub"
)

func TestFieldsOfOthersStay(t *testing.T) {
	applied := `{"labels":{"a":"1","gone":"1"},"finalizers":["f","gone"],"spec":{"source":{"repoURL":"x","path":"old"},"destination":{"name":"c"},"was":1}}`
	old := hub.Meta{Labels: map[string]string{"a": "1", "gone": "1", "theirs": "1"}, Annotations: map[string]string{"approved": "now"}, Finalizers: []string{"f", "gone", "theirs"}}
	const live = `{"project":"default","source":{"repoURL":"x","path":"edited","targetRevision":"dev"},"destination":{"name":"c"},"was":1,"theirs":{"x":[1]}}`
	m := hub.Meta{Labels: map[string]string{"a": "2"}, Finalizers: []string{"f", "new"}}
	spec := json.RawMessage(`{"source":{"repoURL":"x","path":"new"},"destination":{"server":"s"}}`)
	if err := MergeApplied(json.RawMessage(applied), &m, &spec, old, json.RawMessage(live)); err != nil {
		t.Fatal(err)
	}
	t.Run("APP-31 fields that are no longer applied are removed, fields of others stay", func(t *testing.T) {
		if !maps.Equal(m.Labels, map[string]string{"a": "2", "theirs": "1"}) || m.Annotations["approved"] != "now" || !slices.Equal(m.Finalizers, []string{"f", "theirs", "new"}) {
			t.Errorf("%+v", m)
		}
		want := `{"destination":{"server":"s"},"project":"default","source":{"path":"new","repoURL":"x","targetRevision":"dev"},"theirs":{"x":[1]}}`
		if string(spec) != want {
			t.Errorf("%s\nwanted\n%s", spec, want)
		}
	})
	t.Run("APP-31 applying the same again changes nothing, in any order of fields", func(t *testing.T) {
		again := json.RawMessage(`{"source":{"path":"new","repoURL":"x"},"destination":{"server":"s"}}`)
		reordered := json.RawMessage(`{"theirs":{"x":[1]},"source":{"repoURL":"x","path":"new","targetRevision":"dev"},"project":"default","destination":{"server":"s"}}`)
		n := hub.Meta{Labels: map[string]string{"a": "2"}, Finalizers: []string{"f", "new"}}
		text, err := LastWritten(n, again)
		if err != nil {
			t.Fatal(err)
		}
		if err := MergeApplied(text, &n, &again, m, reordered); err != nil {
			t.Fatal(err)
		}
		if string(again) != string(reordered) || !SameMeta(n, m) {
			t.Errorf("%s %+v", again, n)
		}
	})
	t.Run("APP-31 a user's application is adopted with fields that the manifest does not have", func(t *testing.T) {
		n, own := hub.Meta{}, json.RawMessage(`{"sources":[{"repoURL":"y"}]}`)
		if err := MergeApplied(nil, &n, &own, m, json.RawMessage(`{"source":{"repoURL":"x"},"project":"p"}`)); err != nil {
			t.Fatal(err)
		}
		if string(own) != `{"project":"p","sources":[{"repoURL":"y"}]}` {
			t.Errorf("%s", own)
		}
	})
}
