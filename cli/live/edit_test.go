package live

import (
	"strings"
	"testing"
)

func TestTheDifferenceOfAnEdit(t *testing.T) {
	const before = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"n","uid":"u","labels":{"x":"1","y":"2"}},"data":{"k":"v"},"list":[1,2]}`
	for name, c := range map[string]struct{ from, to, patch, refused string }{
		"nothing":           {"", "", "", ""},
		"a value":           {`"k":"v"`, `"k":"w"`, `{"data":{"k":"w"}}`, ""},
		"a value that goes": {`,"y":"2"`, "", `{"metadata":{"labels":{"y":null}}}`, ""},
		"a list as a whole": {"[1,2]", "[1,2,3]", `{"list":[1,2,3]}`, ""},
		"another name":      {`"name":"a"`, `"name":"b"`, "", "must stay"},
		"another kind":      {"ConfigMap", "Secret", "", "must stay"},
		"no object":         {before, "[]", "", "is no object"},
	} {
		t.Run("CLI-05 edit-resource sends what differs: "+name, func(t *testing.T) {
			got, err := mergePatch([]byte(before), []byte(strings.Replace(before, c.from, c.to, 1)))
			if string(got) != c.patch || (err == nil) != (c.refused == "") || err != nil && !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%s, %v", got, err)
			}
		})
	}
	t.Run("CLI-05 edit-resource leaves out what only the API server writes, and its own comments", func(t *testing.T) {
		got, err := editable([]byte(`{"kind":"X","metadata":{"name":"a","managedFields":[],"resourceVersion":"7","generation":2},"spec":{"n":9007199254740993},"status":{"s":1}}`))
		if err != nil || string(got) != `{"kind":"X","metadata":{"name":"a"},"spec":{"n":9007199254740993}}` {
			t.Errorf("%s, %v", got, err)
		}
		text := string(commented("one\ntwo")) + "# three\nkind: X\n# stays\n"
		if got := withoutHead([]byte(text)); string(got) != "kind: X\n# stays\n" || !strings.HasPrefix(text, "# one\n# two\n#\n") {
			t.Errorf("%q of %q", got, text)
		}
	})
}
