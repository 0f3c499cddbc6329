package scim

import (
	"encoding/json"
	"testing"

	"github.com/capstan-cd/capstan/hub"
)

// Whatever a provider sends, it is applied or refused, and never ends the
// program; and what comes out can be read again.
func FuzzPatch(f *testing.F) {
	f.Add(`{"userName":"a","emails":[{"type":"work","value":"x"}]}`, `{"Operations":[{"op":"add","path":"emails[type eq \"home\"].value","value":"y"}]}`)
	f.Add(`{"displayName":"g","members":[{"value":"1"}]}`, `{"Operations":[{"op":"remove","path":"members","value":[{"value":"1"}]}]}`)
	f.Add(`{}`, `{"operations":[{"op":"replace","path":"urn:a:b:c","value":{}}]}`)
	f.Add(`{"a":[1]}`, `{"Operations":[{"op":"replace","path":"a[b eq 1].c","value":null},{"op":"remove","path":"a.b"}]}`)
	f.Fuzz(func(t *testing.T, document, request string) {
		var d, r Document
		if json.Unmarshal([]byte(document), &d) != nil || json.Unmarshal([]byte(request), &r) != nil || d == nil {
			return
		}
		if Patch(d, r) != nil {
			return
		}
		if _, err := json.Marshal(d); err != nil {
			t.Errorf("the result cannot be written: %v", err)
		}
		if u, err := ToUser(d); err == nil {
			if _, err := FromUser(u, "https://hub.example.com/scim/v2"); err != nil {
				t.Errorf("the user cannot be shown: %v", err)
			}
		}
		_, _ = ToGroup(d)
	})
}

func FuzzFilter(f *testing.F) {
	for _, s := range []string{`userName eq "a"`, `emails[type eq "work"].value eq "x" and active eq true`, `a[`, `eq eq eq`, `"`, `x eq "\u0000"`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if got, err := UserFilter(text); err == nil && text != "" && got.SCIMQuery == (hub.SCIMQuery{}) && !got.Nothing {
			for _, c := range text {
				if c != ' ' && c != '\t' && c != '\n' && c != '\r' && c != '\v' && c != '\f' && c != 0x85 && c != 0xa0 && c < 0x1000 {
					t.Fatalf("the filter %q limits nothing", text)
				}
			}
		}
		_, _ = GroupFilter(text)
	})
}
