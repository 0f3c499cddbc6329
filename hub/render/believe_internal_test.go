package render

import (
	"testing"

	"github.com/capstan-cd/capstan/shared/manifest"
)

// The identity that the hub accepts for an object is the one that an agent
// reads.
func FuzzIdentity(f *testing.F) {
	for _, s := range []string{
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`,
		`{"apiVersion":"v1","kind":"ConfigMap","Kind":"X","metadata":{"name":"a","Name":"b"},"METADATA":{}}`,
		`{"apiVersion":"v1","kind":"ConfigMap","kind":"X","metadata":{"name":"a"},"metadata":{"name":"b"}}`,
		`{"apiVersion":"a/b/c","kind":"X","metadata":{"generateName":"g","namespace":"n"}}`,
		`{"apiVersion":"v1","kind":"X","metadata":null}`, `{"metadata":{"name":"\u0000"}}`, `{"kind":"\ud800"}`, "{\"kind\":\"\xff\"}", `[]`, `null`, `{}`, ``,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		key, version, err := identity(body, true)
		if err != nil {
			return
		}
		plain, _, err := identity(body, false)
		if err != nil {
			t.Fatal(err)
		}
		o, err := manifest.FromCanonical(body)
		if err != nil {
			return // an agent refuses what it cannot read
		}
		want := manifest.KeyOf(o)
		other := want
		if want.Name == "" {
			want.Name, other.Name = o.GetGenerateName(), manifest.StandIn(o.GetGenerateName())
		}
		if plain != other {
			t.Fatalf("%s: the hub reads %v, an agent %v", body, plain, other)
		}
		if key != want || version != manifest.Version(o) {
			t.Fatalf("%s: the hub reads %v %s, an agent %v %s", body, key, version, want, manifest.Version(o))
		}
	})
}
