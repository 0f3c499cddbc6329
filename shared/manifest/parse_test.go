package manifest_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/manifest"
)

func parse(t testing.TB, file, text string) []*manifest.Object {
	t.Helper()
	objs, err := manifest.Parse(file, []byte(text), manifest.Limits{})
	if err != nil {
		t.Fatalf("Parse(%s): %v", file, err)
	}
	return objs
}

func names(objs []*manifest.Object) []string {
	out := make([]string, len(objs))
	for i, o := range objs {
		out[i] = manifest.KeyOf(o).String()
	}
	return out
}

const head = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n"

func TestParseDocuments(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		why, file, text string
		want            []string
	}{
		"DIR-05 a YAML file has many documents": {
			file: "all.yaml", text: head + "---\n" + strings.ReplaceAll(head, "name: a", "name: b\n  namespace: shop"),
			want: []string{"/ConfigMap//a", "/ConfigMap/shop/b"},
		},
		"DIR-05 a JSON file has one object": {
			file: "one.json", text: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`, want: []string{"/ConfigMap//a"},
		},
		"DIR-06 documents that are no objects are passed over": {
			file: "values.yaml", text: "# only a comment\n---\nreplicas: 3\n---\n- a\n- b\n---\njust text\n---\n~\n---\n" + head,
			want: []string{"/ConfigMap//a"},
		},
		"DIR-06 invalid text without any field of an object is skipped": {
			file: "template.yaml", text: "{{ if .x }}\nfoo: {{ .bar }\n{{ end }}", want: []string{},
		},
		"DIR-06 broken JSON likewise":  {file: "x.json", text: `{"a": [}`, want: []string{}},
		"Empty":                        {file: "e.yaml", text: "", want: []string{}},
		"EmptyJSON":                    {file: "e.json", text: " \n", want: []string{}},
		"OnlySeparators":               {file: "e.yaml", text: "---\n---\n---\n", want: []string{}},
		"ByteOrderMark":                {file: "b.yaml", text: "\ufeff" + head, want: []string{"/ConfigMap//a"}},
		"WindowsLineEnds":              {file: "w.yaml", text: strings.ReplaceAll(head, "\n", "\r\n"), want: []string{"/ConfigMap//a"}},
		"SeparatorInsideABlockOfText":  {file: "s.yaml", text: head + "data:\n  x: |\n    a\n    ---\n    b\n", want: []string{"/ConfigMap//a"}},
		"JSONInAYAMLFile":              {file: "j.yaml", text: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"x":"\ud83d\ude00"}}`, want: []string{"/ConfigMap//a"}},
		"ListsAreOpened":               {file: "l.yaml", text: "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}\n- apiVersion: v1\n  kind: List\n  items:\n  - {apiVersion: v1, kind: Secret, metadata: {name: b}}\n", want: []string{"/ConfigMap//a", "/Secret//b"}},
		"TypedListsGiveTheirItemsKind": {file: "l.yaml", text: "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleList\nitems:\n- metadata: {name: a}\n", want: []string{"rbac.authorization.k8s.io/Role//a"}},
		"EmptyList":                    {file: "l.yaml", text: "apiVersion: v1\nkind: List\nitems:\n", want: []string{}},
		"AKindThatOnlySoundsLikeAList": {file: "l.yaml", text: "apiVersion: x.io/v1\nkind: AllowList\nmetadata: {name: a}\nitems: [b]\n", want: []string{"x.io/AllowList//a"}},
		"AnchorsAndMerges":             {file: "a.yaml", text: head + "data: &d {x: \"1\"}\nextra:\n  <<: *d\n  y: \"2\"\n", want: []string{"/ConfigMap//a"}},
		"GenerateName":                 {file: "g.yaml", text: "apiVersion: batch/v1\nkind: Job\nmetadata: {generateName: migrate-}\n", want: []string{"batch/Job//"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(c.want, names(parse(t, c.file, c.text))); diff != "" {
				t.Errorf("objects (-want +got):\n%s%s", diff, c.why)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	laugh := "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c <= 'i'; c++ {
		laugh += fmt.Sprintf("%c: &%c [*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c]\n", c, c, c-1, c-1, c-1, c-1, c-1, c-1, c-1, c-1, c-1, c-1)
	}
	cases := map[string]struct {
		file, text, says string
		kind             fault.Kind
		limits           manifest.Limits
	}{
		"DIR-06 a manifest with a broken rest": {file: "x.yaml", text: head + "data: [", says: "x.yaml, document 1", kind: fault.Invalid},
		"DIR-06 no kind":                       {file: "x.yaml", text: "apiVersion: v1\nmetadata: {name: a}\n", says: "line 1: kind is missing", kind: fault.Invalid},
		"DIR-06 no apiVersion":                 {file: "x.yaml", text: "\n\nkind: ConfigMap\nmetadata: {name: a}\n", says: "line 3: apiVersion is missing", kind: fault.Invalid},
		"DIR-06 no metadata":                   {file: "x.yaml", text: "apiVersion: v1\nkind: ConfigMap\n", says: "metadata is missing", kind: fault.Invalid},
		"DIR-06 no name":                       {file: "x.yaml", text: head + "---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  labels: {}\n", says: "document 2, line 8: ConfigMap: metadata.name is missing", kind: fault.Invalid},
		"DIR-05 two objects in a JSON file":    {file: "x.json", text: `{"kind":"A"} {"kind":"B"}`, says: "more follows", kind: fault.Invalid},
		"JSONList":                             {file: "x.json", text: `[{"kind":"A"}]`, says: "not a Kubernetes object", kind: fault.Invalid},
		"JSONCutShort":                         {file: "x.json", text: "{\"kind\":\n\"A\",", says: "line 2: not JSON", kind: fault.Invalid},
		"JSONNotText":                          {file: "x.json", text: "{\"kind\":\"\xff\"}", says: "UTF-8", kind: fault.Invalid},
		"KeyTwice":                             {file: "x.yaml", text: head + "data:\n  x: a\n  y: b\n  x: c\n", says: `line 8: key "x" is given twice`, kind: fault.Invalid},
		"KeyTwiceByMeaning":                    {file: "x.yaml", text: head + "data: {1: a, \"1\": b}\n", says: "given twice", kind: fault.Invalid},
		"KeyTwiceInJSON":                       {file: "x.json", text: "{\"kind\":\"A\",\n\"kind\":\"B\"}", says: `line 2: key "kind" is given twice`, kind: fault.Invalid},
		"NameIsANumber":                        {file: "x.yaml", text: "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: 12\n", says: "line 4: ConfigMap: metadata.name is not text; put it in quotes", kind: fault.Invalid},
		"NameWithASlash":                       {file: "x.yaml", text: "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a/b}\n", says: "no name may have", kind: fault.Invalid},
		"AnnotationIsABoolean":                 {file: "x.yaml", text: head + "  annotations:\n    on-fire: yes\n", says: `line 6: ConfigMap a: metadata.annotations "on-fire" is not text`, kind: fault.Invalid},
		"LabelsAreAList":                       {file: "x.yaml", text: head + "  labels: [a]\n", says: "metadata.labels is not a map", kind: fault.Invalid},
		"ApiVersionMalformed":                  {file: "x.yaml", text: "apiVersion: a/b/c\nkind: X\nmetadata: {name: a}\n", says: "malformed", kind: fault.Invalid},
		"KindIsAMap":                           {file: "x.yaml", text: "apiVersion: v1\nkind: {}\nmetadata: {name: a}\n", says: "kind is missing or not text", kind: fault.Invalid},
		"ItemOfAListIsText":                    {file: "x.yaml", text: "apiVersion: v1\nkind: List\nitems: [a]\n", says: "item 0 of List is not an object", kind: fault.Invalid},
		"InfiniteNumber":                       {file: "x.yaml", text: head + "spec: {a: .inf}\n", says: "infinite", kind: fault.Invalid},
		"NumberBeyond64Bits":                   {file: "x.yaml", text: head + "spec:\n  a: 18446744073709551615\n", says: "line 6: a whole number does not fit", kind: fault.Invalid},
		"NumberFarTooLarge":                    {file: "x.json", text: `{"kind":"A","spec":1e999}`, says: "out of range", kind: fault.Invalid},
		"KeyIsAList":                           {file: "x.yaml", text: head + "data:\n  ? [a]\n  : b\n", says: "not text", kind: fault.Invalid},
		"KeyIsNull":                            {file: "x.yaml", text: head + "data: {~: b}\n", says: "key of a map is empty", kind: fault.Invalid},
		"MergeOfText":                          {file: "x.yaml", text: head + "data: {<<: text}\n", says: "can be merged", kind: fault.Invalid},
		"UnknownAnchor":                        {file: "x.yaml", text: head + "data: *nowhere\n", says: "unknown anchor", kind: fault.Invalid},
		"AnchorInItself":                       {file: "x.yaml", text: head + "data: &a {x: *a}\n", says: "contains itself", kind: fault.Invalid},
		"WrongTag":                             {file: "x.yaml", text: head + "data: {x: !!int foo}\n", says: "does not fit its tag", kind: fault.Invalid},
		"SEC-A aliases that multiply":          {file: "x.yaml", text: head + laugh, says: "aliases add more than", kind: fault.Exceeded},
		"SEC-A aliases that repeat long text":  {file: "x.yaml", text: head + "a: &a \"" + strings.Repeat("x", 100_000) + "\"\nb: [" + strings.Repeat("*a,", 200) + "]\n", says: "aliases add", kind: fault.Exceeded},
		"SEC-A too deep":                       {file: "x.yaml", text: head + "a: " + strings.Repeat("[", 300) + strings.Repeat("]", 300), says: "deep", kind: fault.Exceeded},
		"SEC-A too deep in JSON":               {file: "x.json", text: `{"kind":` + strings.Repeat("[", 300) + strings.Repeat("]", 300) + "}", says: "deep", kind: fault.Exceeded},
		"DIR-07 too large":                     {file: "x.yaml", text: head, says: "over the limit", kind: fault.Exceeded, limits: manifest.Limits{MaxBytes: 10}},
		"TooManyDocuments":                     {file: "x.yaml", text: head + "---\n" + head, says: "more than 1 documents", kind: fault.Exceeded, limits: manifest.Limits{MaxDocs: 1}},
		"TooManyObjectsInALIst":                {file: "x.yaml", text: "apiVersion: v1\nkind: ConfigMapList\nitems: [{metadata: {name: a}}, {metadata: {name: b}}]", says: "more than 1 objects", kind: fault.Exceeded, limits: manifest.Limits{MaxDocs: 1}},
		"StrictNoObject":                       {file: "x.yaml", text: "replicas: 3\n", says: "apiVersion is missing", kind: fault.Invalid, limits: manifest.Limits{Strict: true}},
		"StrictText":                           {file: "x.yaml", text: "oops\n", says: "not a Kubernetes object but a single value", kind: fault.Invalid, limits: manifest.Limits{Strict: true}},
		"StrictBroken":                         {file: "x.yaml", text: "a: [", says: "not YAML", kind: fault.Invalid, limits: manifest.Limits{Strict: true}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objs, err := manifest.Parse(c.file, []byte(c.text), c.limits)
			if fault.KindOf(err) != c.kind || objs != nil {
				t.Fatalf("Parse() = %d objects, %v; want kind %s", len(objs), err, c.kind)
			}
			if s := fault.Sentence(err); !strings.Contains(s, c.says) || !strings.HasPrefix(s, c.file) {
				t.Errorf("the error reads %q; want it to begin with the file and contain %q", s, c.says)
			}
		})
	}
}

func TestLastKeyWins(t *testing.T) {
	t.Parallel()
	for file, text := range map[string]string{"x.yaml": head + "data: {x: a, z: b, x: c}\n", "x.json": `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"x":"a","z":"b","x":"c"}}`} {
		objs, err := manifest.Parse(file, []byte(text), manifest.Limits{LastKeyWins: true})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(map[string]any{"x": "c", "z": "b"}, objs[0].Object["data"]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", file, diff)
		}
	}
}

func TestErrorsHoldNoValues(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData: {x: hunter2, x: hunter2}\n",
		"apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData:\n  x: \"hunter2\n",
		"apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData: {x: !!int hunter2}\n",
	} {
		_, err := manifest.Parse("s.yaml", []byte(text), manifest.Limits{})
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("Parse(%q): %v", text, err)
		}
	}
}

func TestScalarsMeanWhatTheyMeanToKubernetes(t *testing.T) {
	t.Parallel()
	text := head + `v:
- [yes, No, on, OFF, y, N, true, False]
- [~, null, ""]
- [1, -7, +3, 0x1F, 0o17, 017, 0b101, 1_000, 08, 9223372036854775807, -9223372036854775808]
- [1.5, 1.0, 1e3, .5, -0.25, 1e300, 9223372036854775808]
- [2024-01-02, 2024-01-02T03:04:05Z, 12:30:45, 1.2.3, 1e, e1, "yes", 'no', 0x, -, +, ., a]
- [!!str 12, !!binary aGk=, !!int 3, !!float 3, !custom text]
`
	objs := parse(t, "s.yaml", text)
	want := []any{
		[]any{true, false, true, false, true, false, true, false},
		[]any{nil, nil, ""},
		[]any{int64(1), int64(-7), int64(3), int64(31), int64(15), int64(15), int64(5), int64(1000), int64(8), int64(9223372036854775807), int64(-9223372036854775808)},
		[]any{1.5, int64(1), int64(1000), 0.5, -0.25, 1e300, 9223372036854775808.0},
		[]any{"2024-01-02", "2024-01-02T03:04:05Z", "12:30:45", "1.2.3", "1e", "e1", "yes", "no", "0x", "-", "+", ".", "a"},
		[]any{"12", "hi", int64(3), int64(3), "text"},
	}
	if diff := cmp.Diff(want, objs[0].Object["v"]); diff != "" {
		t.Errorf("values (-want +got):\n%s", diff)
	}
}

func TestGuideManifests(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("testdata/waves.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"/Namespace//my-app", "batch/Job//db-migration", "apps/Deployment//my-app", "/Service//my-app"}
	if diff := cmp.Diff(want, names(parse(t, "waves.yaml", string(data)))); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
}

// FuzzParse shows that no text makes Parse panic, hang or break its promises:
// what it reads means what sigs.k8s.io/yaml reads, and survives its canonical
// text.
func FuzzParse(f *testing.F) {
	f.Add(head + "data: {a: b}\n---\n" + head)
	f.Add("a: &a [*a]\n")
	f.Add("kind: List\nitems: [{}]\n")
	f.Add(`{"kind":"A","apiVersion":"v1","metadata":{"name":"x","annotations":{"a":1}}}`)
	f.Add("kind: A\napiVersion: v1\nmetadata: {name: x}\nspec: {<<: [{a: 1}, {b: 0x1}], 1: yes, 2.50: on, n: ~}\n")
	f.Add("? [a]\n: {b}\nkind: |+\n x\n")
	f.Fuzz(func(t *testing.T, text string) {
		limits := manifest.Limits{MaxBytes: 64 << 10, MaxDepth: 64, MaxAliasExpansion: 1000}
		for _, file := range []string{"f.yaml", "f.json"} {
			objs, err := manifest.Parse(file, []byte(text), limits)
			if err != nil {
				if k := fault.KindOf(err); k != fault.Invalid && k != fault.Exceeded {
					t.Fatalf("error of kind %s: %v", k, err)
				}
				continue
			}
			for _, o := range objs {
				checkRoundTrip(t, o)
			}
			// The lone tag "!" is the one thing that the node tree does not show.
			if file == "f.yaml" && len(objs) == 1 && !strings.Contains(text, "!") && !strings.Contains(text, "---") && !strings.HasSuffix(objs[0].GetKind(), "List") {
				checkSame(t, text, objs[0])
			}
		}
	})
}

func checkRoundTrip(t *testing.T, o *manifest.Object) {
	t.Helper()
	text, err := manifest.Canonical(o)
	if err != nil {
		t.Fatalf("Canonical(): %v", err)
	}
	back, err := manifest.FromCanonical(text)
	if err != nil {
		t.Fatalf("FromCanonical(%s): %v", text, err)
	}
	again, err := manifest.Canonical(back)
	if err != nil || string(again) != string(text) {
		t.Fatalf("canonical text changes from %s to %s (%v)", text, again, err)
	}
	if diff := cmp.Diff(o.Object, back.Object); diff != "" {
		t.Fatalf("canonical text loses something:\n%s", diff)
	}
}

// checkSame compares with the parser that kubectl uses, where it takes the
// text at all.
func checkSame(t *testing.T, text string, o *manifest.Object) {
	t.Helper()
	js, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		return
	}
	var want map[string]any
	if utiljson.Unmarshal(js, &want) != nil {
		return
	}
	got, meta := o.Object, want["metadata"]
	if m, ok := meta.(map[string]any); ok { // empty names and texts are tidied on purpose
		for _, f := range []string{"name", "generateName", "namespace", "labels", "annotations"} {
			if m[f] == nil {
				delete(m, f)
			}
			if mm, ok := m[f].(map[string]any); ok {
				for k, v := range mm {
					if v == nil {
						mm[k] = ""
					}
				}
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("not what kubectl would read (-kubectl +ours):\n%s", diff)
	}
}

func BenchmarkParse(b *testing.B) {
	data, err := os.ReadFile("testdata/five.yaml")
	if err != nil {
		b.Fatal(err)
	}
	b.Run("FiveSmallDocuments", func(b *testing.B) {
		b.SetBytes(int64(len(data)))
		for b.Loop() {
			if objs, err := manifest.Parse("five.yaml", data, manifest.Limits{}); err != nil || len(objs) != 5 {
				b.Fatal(len(objs), err)
			}
		}
	})
	objs, err := manifest.Parse("five.yaml", data, manifest.Limits{})
	if err != nil {
		b.Fatal(err)
	}
	b.Run("CanonicalOfFive", func(b *testing.B) {
		for b.Loop() {
			for _, o := range objs {
				if _, err := manifest.Canonical(o); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
}
