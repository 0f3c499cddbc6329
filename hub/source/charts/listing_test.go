package charts

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

func packed(t *testing.T, text string) Index {
	t.Helper()
	data, err := packIndex([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return Index{Packed: data}
}

func TestChartsOfAnIndex(t *testing.T) {
	t.Parallel()
	want := []hub.PublishedChart{{Name: "redis", Versions: []string{"1.10.0", "1.9.0"}}, {Name: "web", Versions: []string{"2.0.0"}}}
	for name, text := range map[string]string{
		"as helm writes it": "apiVersion: v1\nentries:\n  web:\n  - apiVersion: v2\n    dependencies:\n    - name: redis\n      version: 9.9.9\n    description: |\n      version: 8.8.8\n    version: 2.0.0\n" +
			"  redis:\n  - version: 1.10.0\n    urls: [a.tgz]\n  - name: redis\n    version: \"1.9.0\"\ngenerated: \"2024\"\n",
		"items further indented": "entries:\n    redis:\n        - name: redis\n          version: 1.10.0\n        - version: '1.9.0' # the last\n    web:\n        - version: 2.0.0\n",
		"items in one line":      "entries:\n  redis:\n  - {version: 1.10.0, urls: [a]}\n  - {urls: [a], version: 1.9.0}\n  web:\n  - version: 2.0.0\n",
		"comments, empty lines":  "# made by hand\n\nentries:\n\n  # first\n  redis:\n\n  - version: 1.9.0\r\n  # newer\n  - version: 1.10.0\n  web:\n  - version: 2.0.0\n",
		"JSON":                   `{"apiVersion":"v1","other":[{"entries":1}],"entries":{"web":[{"version":"2.0.0","dependencies":[{"version":"9.9.9"}]}],"redis":[{"version":"1.10.0"},{"version":"1.9.0"}]}}`,
		"a name that is none":    "entries:\n  ../etc:\n  - version: 1.0.0\n  redis:\n  - version: 1.10.0\n  - version: 1.9.0\n  web:\n  - version: 2.0.0\n",
	} {
		t.Run("API-15 all charts and versions of an index: "+name, func(t *testing.T) {
			t.Parallel()
			got, err := packed(t, text).Charts()
			if diff := cmp.Diff(want, got); diff != "" || err != nil {
				t.Errorf("%v\n%s", err, diff)
			}
		})
	}
	t.Run("API-15 an index without charts lists none", func(t *testing.T) {
		t.Parallel()
		for _, text := range []string{"entries: {}\n", "apiVersion: v1\n", `{"entries":{}}`} {
			if got, err := packed(t, text).Charts(); err != nil || len(got) != 0 {
				t.Errorf("%q: %v, %v", text, got, err)
			}
		}
	})
	for name, text := range map[string]string{
		"in flow style": "entries: {redis: [{version: 1.0.0}]}\n", "cut JSON": `{"entries":{"redis":[{"version":"1`, "entries that are a list": `{"entries":[1]}`,
		"a version that is no scalar": "entries:\n  redis:\n  - version: [\n", "a line without an end": "entries:\n  redis:\n  - version: " + strings.Repeat("1", 2<<20) + "\n",
	} {
		t.Run("API-15 SEC-A9 refused: an index "+name, func(t *testing.T) {
			t.Parallel()
			if got, err := packed(t, text).Charts(); fault.KindOf(err) != fault.Invalid {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
	t.Run("API-15 SEC-A9 refused: more charts and versions than are listed", func(t *testing.T) {
		t.Parallel()
		var b strings.Builder
		b.WriteString("entries:\n")
		for i := range maxListed {
			fmt.Fprintf(&b, "  c%d:\n  - version: 1.0.0\n", i)
		}
		if got, err := packed(t, b.String()).Charts(); fault.KindOf(err) != fault.Exceeded {
			t.Errorf("%d charts, %v", len(got), err)
		}
	})
}
