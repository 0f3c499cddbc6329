package yamltext

import (
	"errors"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/capstan-cd/capstan/shared/fault"
)

type config struct {
	Listen struct {
		HTTP string `json:"http"`
		Link string `json:"link"`
	} `json:"listen"`
	Parallel int               `json:"parallel"`
	Strict   bool              `json:"strict"`
	Hosts    []string          `json:"hosts"`
	Labels   map[string]string `json:"labels"`
	Rules    []struct {
		Kind string `json:"kind"`
	} `json:"rules"`
	Pause pause `json:"pause"`
}

// A pause reads itself.
type pause string

func (p *pause) UnmarshalJSON(b []byte) error {
	if string(b) != `"5s"` {
		return errors.New(`it is no duration; write it like "30s"`)
	}
	*p = "5s"
	return nil
}

func TestDecode(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, want string }{
		"a field of a part":  {"parallel: 1\nlisten:\n  htp: x\n", `hub.yaml, line 3: there is no field "htp" in listen; did you mean "http"?`},
		"a field of the top": {"\nlisten2: {}\n", `hub.yaml, line 2: there is no field "listen2" at the top of the file; did you mean "listen"?`},
		"a field like none":  {"listen: {zzzzzz: 1}\n", `hub.yaml, line 1: there is no field "zzzzzz" in listen; there are http, link`},
		"a field of an item": {"rules:\n- kind: A\n- knd: B\n", `hub.yaml, line 3: there is no field "knd" in rules[1]; did you mean "kind"?`},
		"a list":             {"hosts: a\n", `hub.yaml, line 1: hosts: it must be a list, and is a text`},
		"a map":              {"listen: [a]\n", `hub.yaml, line 1: listen: it must hold fields, and is a list`},
		"a number":           {"parallel: many\n", `hub.yaml, line 1: parallel: it must be a whole number, and is a text`},
		"a text":             {"listen: {http: [8080]}\n", `hub.yaml, line 1: listen.http: it must be a text, and is a list`},
		"true or false":      {"strict: maybe\n", `hub.yaml, line 1: strict: it must be true or false, and is a text`},
		"a value of a map":   {"labels: {a: {b: c}}\n", `hub.yaml, line 1: labels.a: it must be a text, and is a map`},
		"a type of its own":  {"\npause: long\n", `hub.yaml, line 2: pause: it is no duration; write it like "30s"`},
		"twice":              {"parallel: 1\nparallel: 2\n", `parallel`},
		"not YAML":           {"listen:\n\thttp: a\n", `hub.yaml, line 2: it is not valid YAML: found character that cannot start any token`},
		"not closed":         {"parallel: 1\nhosts: [}\n", `hub.yaml, line 2: it is not valid YAML: did not find expected node content`},
	} {
		t.Run("CFG-03 "+name, func(t *testing.T) {
			t.Parallel()
			var into config
			err := Decode("hub.yaml", []byte(c.text), &into)
			if fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %s", err, c.want)
			}
		})
	}
	t.Run("CFG-03 a valid text is read", func(t *testing.T) {
		t.Parallel()
		var got config
		text := "listen: {http: ':80'}\nparallel: 3\nstrict: yes\nhosts: [a]\nlabels: {a: b}\nrules: [{kind: A}]\npause: 5s\n"
		if err := Decode("hub.yaml", []byte(text), &got); err != nil {
			t.Fatal(err)
		}
		if got.Listen.HTTP != ":80" || got.Parallel != 3 || !got.Strict || got.Hosts[0] != "a" || got.Labels["a"] != "b" || got.Rules[0].Kind != "A" || got.Pause != "5s" {
			t.Errorf("%+v", got)
		}
		if err := Decode("hub.yaml", nil, &got); err != nil {
			t.Errorf("an empty file: %v", err)
		}
	})
}

func TestPlace(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{"a: [}": 1, "a: 1\nb: [}": 2, "a: 1\n\tb: 2": 2, "a: 1\nb: [\n\n": 2, "a: b: c": 1} {
		var n yaml.Node
		if line, cause := Place([]byte(text), yaml.Unmarshal([]byte(text), &n)); line != want {
			t.Errorf("%q: line %d, %s", text, line, cause)
		}
	}
}
