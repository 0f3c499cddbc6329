package diff_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/shared/diff"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/manifest"
)

const manager = "capstan"

// live reads the Deployment as an API server gave it back after our apply,
// with defaults, an injected sidecar, and what the controller wrote.
func live(t testing.TB) *manifest.Object {
	t.Helper()
	data, err := os.ReadFile("testdata/deployment.json")
	if err != nil {
		t.Fatal(err)
	}
	o, err := manifest.FromCanonical(data)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func own(t testing.TB, o *manifest.Object, rules ...diff.Rule) (diff.Owned, *diff.Ignore) {
	t.Helper()
	ignore, err := diff.NewIgnore(rules)
	if err != nil {
		t.Fatal(err)
	}
	rec, err := diff.Own(o, manager, [32]byte{1}, ignore)
	if err != nil {
		t.Fatal(err)
	}
	return rec, ignore
}

func compare(t testing.TB, rec diff.Owned, o *manifest.Object, ignore *diff.Ignore) diff.Result {
	t.Helper()
	v, err := rec.Compare(o, ignore)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// at returns the map at a path; numbers are places in lists.
func at(o *manifest.Object, path ...any) map[string]any {
	var v any = o.Object
	for _, p := range path {
		switch p := p.(type) {
		case string:
			v = v.(map[string]any)[p]
		case int:
			v = v.([]any)[p]
		}
	}
	return v.(map[string]any)
}

func container(o *manifest.Object, i int) map[string]any {
	return at(o, "spec", "template", "spec", "containers", i)
}

func TestCompare(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		why    string
		change func(o *manifest.Object)
		want   []string
	}{
		"nothing": {change: func(*manifest.Object) {}},
		"what the server and controllers write": {why: "nothing of it is ours", change: func(o *manifest.Object) {
			at(o, "metadata")["resourceVersion"] = "999"
			at(o, "metadata")["generation"] = int64(9)
			at(o, "metadata", "annotations")["deployment.kubernetes.io/revision"] = "7"
			at(o, "status")["replicas"] = int64(1)
			at(o, "spec")["progressDeadlineSeconds"] = int64(1)
			container(o, 0)["terminationMessagePath"] = "/x"
			delete(at(o, "metadata"), "managedFields")
		}},
		"a sidecar and an extra variable of others": {why: "items of others in a keyed list are none of ours", change: func(o *manifest.Object) {
			container(o, 1)["image"] = "other"
			c := container(o, 0)
			c["env"] = append(c["env"].([]any), map[string]any{"name": "INJECTED", "value": "x"})
		}},
		"keyed items in another order": {why: "order in a keyed list means nothing to us", change: func(o *manifest.Object) {
			l := at(o, "spec", "template", "spec")["containers"].([]any)
			l[0], l[1] = l[1], l[0]
		}},
		"a number changes":             {change: func(o *manifest.Object) { at(o, "spec")["replicas"] = int64(5) }, want: []string{"spec.replicas"}},
		"a number changes type":        {why: "3 and 3.0 are the same number", change: func(o *manifest.Object) { at(o, "spec")["replicas"] = float64(3) }},
		"a field is removed":           {change: func(o *manifest.Object) { delete(at(o, "spec"), "replicas") }, want: []string{"spec.replicas"}},
		"a field becomes null":         {change: func(o *manifest.Object) { at(o, "spec")["replicas"] = nil }, want: []string{"spec.replicas"}},
		"an image changes":             {change: func(o *manifest.Object) { container(o, 0)["image"] = "evil" }, want: []string{"spec.template.spec.containers[name=web].image"}},
		"our label changes":            {change: func(o *manifest.Object) { at(o, "metadata", "labels")["app.kubernetes.io/name"] = "x" }, want: []string{`metadata.labels["app.kubernetes.io/name"]`}},
		"another manager adds a label": {change: func(o *manifest.Object) { at(o, "metadata", "labels")["team"] = "x" }},
		"our annotation is gone":       {change: func(o *manifest.Object) { delete(at(o, "metadata", "annotations"), "argocd.argoproj.io/tracking-id") }, want: []string{`metadata.annotations["argocd.argoproj.io/tracking-id"]`}},
		"a whole map is ours":          {why: "the selector is atomic", change: func(o *manifest.Object) { at(o, "spec", "selector", "matchLabels")["x"] = "y" }, want: []string{"spec.selector"}},
		"an item is removed":           {change: func(o *manifest.Object) { container(o, 0)["env"] = []any{} }, want: []string{"spec.template.spec.containers[name=web].env[name=LOG_LEVEL]", "spec.template.spec.containers[name=web].env[name=LOG_LEVEL].name", "spec.template.spec.containers[name=web].env[name=LOG_LEVEL].value"}},
		"a finalizer is removed":       {change: func(o *manifest.Object) { at(o, "metadata")["finalizers"] = []any{"other"} }, want: []string{`metadata.finalizers["example.org/keep"]`}},
		"a finalizer is added":         {change: func(o *manifest.Object) { at(o, "metadata")["finalizers"] = []any{"other", "example.org/keep"} }},
		"a port with two keys":         {change: func(o *manifest.Object) { container(o, 0)["ports"].([]any)[0].(map[string]any)["name"] = "x" }, want: []string{"spec.template.spec.containers[name=web].ports[containerPort=8080,protocol=TCP].name"}},
		"an empty map of ours":         {why: "strategy: {} is ours, and whatever is put in is seen once", change: func(o *manifest.Object) { at(o, "spec", "strategy")["type"] = "Recreate" }, want: []string{"spec.strategy"}},
		"a map becomes something":      {why: "odd types are a difference, not a crash", change: func(o *manifest.Object) { o.Object["spec"] = "text" }, want: nil},
		"an item appears twice": {why: "keyed paths hash every matching item", change: func(o *manifest.Object) {
			c := container(o, 0)
			c["env"] = append(c["env"].([]any), map[string]any{"name": "LOG_LEVEL", "value": "debug"})
		}, want: []string{"spec.template.spec.containers[name=web].env[name=LOG_LEVEL]", "spec.template.spec.containers[name=web].env[name=LOG_LEVEL].name", "spec.template.spec.containers[name=web].env[name=LOG_LEVEL].value"}},
	}
	for name, c := range cases {
		t.Run("INV-6 "+name, func(t *testing.T) {
			t.Parallel()
			rec, _ := own(t, live(t))
			o := live(t)
			c.change(o)
			before, _ := manifest.Canonical(o)
			v := compare(t, rec, o, nil)
			if name == "a map becomes something" {
				if v.Equal || len(v.Fields) < 5 {
					t.Fatalf("Compare() = %+v", v)
				}
				return
			}
			if diff := cmp.Diff(c.want, v.Fields); diff != "" || v.Equal != (c.want == nil) || v.Void != "" {
				t.Errorf("Compare() = %+v (-want +got):\n%s%s", v, diff, c.why)
			}
			if after, _ := manifest.Canonical(o); string(after) != string(before) {
				t.Error("the live object was changed")
			}
		})
	}
}

func TestWriters(t *testing.T) {
	t.Parallel()
	entry := func(manager, operation, sub string, fields map[string]any) any {
		return map[string]any{"manager": manager, "operation": operation, "subresource": sub, "fieldsV1": fields}
	}
	replicas := map[string]any{"f:spec": map[string]any{"f:replicas": map[string]any{}}}
	other := map[string]any{"f:metadata": map[string]any{"f:annotations": map[string]any{"f:deployment.kubernetes.io/revision": map[string]any{}}}}
	cases := map[string]struct {
		why     string
		change  bool
		entries []any
		want    []string
	}{
		"the manager of the field":         {why: "who wrote last wrote something else", change: true, entries: []any{entry("kubectl-edit", "Update", "", replicas), entry("kube-controller-manager", "Update", "", other)}, want: []string{"kubectl-edit"}},
		"two hold it":                      {change: true, entries: []any{entry("robot", "Apply", "", replicas), entry("hpa", "Update", "scale", replicas)}, want: []string{"hpa", "robot"}},
		"our own applies are not an edit":  {change: true, entries: []any{entry(manager, "Apply", "", replicas)}},
		"our manager in another's hand":    {change: true, entries: []any{entry(manager, "Update", "", replicas)}, want: []string{manager}},
		"a status report is not an edit":   {change: true, entries: []any{entry("kubelet", "Update", "status", replicas)}},
		"a missing field has no manager":   {change: true, entries: []any{entry("kubectl-edit", "Update", "", other)}},
		"fields that do not differ":        {entries: []any{entry("kubectl-edit", "Update", "", replicas)}},
		"an entry that cannot be read":     {change: true, entries: []any{"odd", entry("odd", "Update", "", map[string]any{"f:spec": "odd"})}},
		"an object without managed fields": {change: true},
	}
	for name, c := range cases {
		t.Run("AUTO-08 "+name, func(t *testing.T) {
			t.Parallel()
			rec, _ := own(t, live(t))
			o := live(t)
			if c.change {
				at(o, "spec")["replicas"] = int64(5)
			}
			at(o, "metadata")["managedFields"] = c.entries
			if diff := cmp.Diff(c.want, compare(t, rec, o, nil).Writers(o, manager)); diff != "" {
				t.Errorf("Writers() (-want +got):\n%s%s", diff, c.why)
			}
		})
	}
}

func TestVoid(t *testing.T) {
	t.Parallel()
	rec, _ := own(t, live(t))
	for name, c := range map[string]struct {
		change func(o *manifest.Object)
		rules  []diff.Rule
	}{
		"OtherVersion": {change: func(o *manifest.Object) { o.SetAPIVersion("apps/v1beta1") }},
		"OtherObject":  {change: func(o *manifest.Object) { o.SetUID("another") }},
		"OtherRules":   {change: func(*manifest.Object) {}, rules: []diff.Rule{{Group: "apps", Kind: "*", JSONPointers: []string{"/spec/replicas"}}}},
	} {
		o := live(t)
		c.change(o)
		ignore, err := diff.NewIgnore(c.rules)
		if err != nil {
			t.Fatal(err)
		}
		if v := compare(t, rec, o, ignore); v.Void == "" || v.Equal {
			t.Errorf("%s: Compare() = %+v; want it void", name, v)
		}
	}
	dry := live(t)
	dry.SetUID("")
	expected, err := diff.Expect(dry, manager, [32]byte{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if v := compare(t, expected, live(t), nil); !v.Equal {
		t.Errorf("what a dry run expected of a new object is not equal to it: %+v", v)
	}
	if _, err := diff.Own(live(t), "nobody", [32]byte{}, nil); fault.KindOf(err) != fault.Missing {
		t.Errorf("Own() for a manager that owns nothing: %v; want Missing", err)
	}
}

func TestIgnore(t *testing.T) {
	t.Parallel()
	rule := func(r diff.Rule) diff.Rule {
		r.Group, r.Kind = "apps", "Deploy*"
		return r
	}
	scale := func(o *manifest.Object) { at(o, "spec")["replicas"] = int64(9) }
	image := func(o *manifest.Object) { container(o, 0)["image"] = "new" }
	cases := map[string]struct {
		rule   diff.Rule
		change func(o *manifest.Object)
		want   []string
	}{
		"DIFF-06 pointer":                {rule(diff.Rule{JSONPointers: []string{"/spec/replicas"}}), scale, nil},
		"DIFF-06 pointer to another":     {rule(diff.Rule{JSONPointers: []string{"/spec/paused"}}), scale, []string{"spec.replicas"}},
		"DIFF-06 pointer with index":     {rule(diff.Rule{JSONPointers: []string{"/spec/template/spec/containers/0/image"}}), image, nil},
		"DIFF-06 pointer with escapes":   {rule(diff.Rule{JSONPointers: []string{"/metadata/labels/app.kubernetes.io~1name"}}), func(o *manifest.Object) { at(o, "metadata", "labels")["app.kubernetes.io/name"] = "x" }, nil},
		"DIFF-06 pointer above":          {rule(diff.Rule{JSONPointers: []string{"/spec"}}), scale, nil},
		"DIFF-06 inside an atomic map":   {rule(diff.Rule{JSONPointers: []string{"/spec/selector/matchLabels/app"}}), func(o *manifest.Object) { at(o, "spec", "selector", "matchLabels")["app"] = "x" }, nil},
		"DIFF-06 a removed field":        {rule(diff.Rule{JSONPointers: []string{"/spec/replicas"}}), func(o *manifest.Object) { delete(at(o, "spec"), "replicas") }, nil},
		"DIFF-06 other group":            {diff.Rule{Group: "", Kind: "Deployment", JSONPointers: []string{"/spec/replicas"}}, scale, []string{"spec.replicas"}},
		"DIFF-06 globs":                  {diff.Rule{Group: "*", Kind: "*", JSONPointers: []string{"/spec/replicas"}}, scale, nil},
		"DIFF-06 other name":             {diff.Rule{Group: "apps", Kind: "Deployment", Name: "api", JSONPointers: []string{"/spec/replicas"}}, scale, []string{"spec.replicas"}},
		"DIFF-06 name and namespace":     {diff.Rule{Group: "apps", Kind: "Deployment", Name: "web", Namespace: "shop", JSONPointers: []string{"/spec/replicas"}}, scale, nil},
		"DIFF-07 jq by name":             {rule(diff.Rule{JQ: []string{`.spec.template.spec.containers[] | select(.name == "web").image`}}), image, nil},
		"DIFF-07 jq iteration":           {rule(diff.Rule{JQ: []string{`.spec.template.spec.containers[].env[]?.value`}}), func(o *manifest.Object) { at(o, "spec", "template", "spec", "containers", 0, "env", 0)["value"] = "x" }, nil},
		"DIFF-07 jq whole item":          {rule(diff.Rule{JQ: []string{`.spec.template.spec.containers[] | select(.name | test("^we"))`}}), image, nil},
		"DIFF-07 jq everywhere":          {rule(diff.Rule{JQ: []string{`.. | objects | .image?`}}), image, nil},
		"DIFF-07 jq that does not match": {rule(diff.Rule{JQ: []string{`.spec.nothing[].image`}}), image, []string{"spec.template.spec.containers[name=web].image"}},
		"DIFF-07 jq on numbers":          {rule(diff.Rule{JQ: []string{`.spec | select(.replicas > 0).replicas`}}), scale, nil},
		"DIFF-08 manager that took over": {rule(diff.Rule{Managers: []string{"hpa-controller"}}), func(o *manifest.Object) { scale(o); manage(o, "hpa-controller", `{"f:spec":{"f:replicas":{}}}`) }, nil},
		"DIFF-08 manager of others":      {rule(diff.Rule{Managers: []string{"someone"}}), func(o *manifest.Object) { scale(o); manage(o, "hpa-controller", `{"f:spec":{"f:replicas":{}}}`) }, []string{"spec.replicas"}},
		"DIFF-08 manager of another":     {rule(diff.Rule{Managers: []string{"hpa-controller"}}), func(o *manifest.Object) { image(o); manage(o, "hpa-controller", `{"f:spec":{"f:replicas":{}}}`) }, []string{"spec.template.spec.containers[name=web].image"}},
		"DIFF-08 manager of a whole map": {rule(diff.Rule{Managers: []string{"m"}}), func(o *manifest.Object) { image(o); manage(o, "m", `{"f:spec":{"f:template":{}}}`) }, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rec, ignore := own(t, live(t), c.rule)
			o := live(t)
			c.change(o)
			before, _ := manifest.Canonical(o)
			if v := compare(t, rec, o, ignore); v.Void != "" || !cmp.Equal(v.Fields, c.want) || v.Equal != (c.want == nil) {
				t.Errorf("Compare() = %+v, want %v", v, c.want)
			}
			if after, _ := manifest.Canonical(o); string(after) != string(before) {
				t.Error("the live object was changed")
			}
		})
	}
}

func manage(o *manifest.Object, who, fields string) {
	var f map[string]any
	if err := json.Unmarshal([]byte(fields), &f); err != nil {
		panic(err)
	}
	meta := at(o, "metadata")
	meta["managedFields"] = append(meta["managedFields"].([]any), map[string]any{"manager": who, "operation": "Update", "fieldsV1": f, "subresource": "scale"})
}

func TestManagersOfStrippedObjects(t *testing.T) {
	t.Parallel()
	rec, ignore := own(t, live(t), diff.Rule{Group: "apps", Kind: "Deployment", Managers: []string{"hpa"}})
	o := live(t)
	at(o, "spec")["replicas"] = int64(9)
	delete(at(o, "metadata"), "managedFields")
	if v := compare(t, rec, o, ignore); v.Equal {
		t.Error("without managedFields nothing says that hpa owns the field")
	}
	others := []diff.Managed{{Manager: "hpa", Fields: []byte(`{"f:spec":{"f:replicas":{}}}`)}, {Manager: "x", Fields: []byte("broken")}}
	v, err := diff.Comparer{}.CompareWith(rec, o, ignore, others)
	if err != nil || !v.Equal {
		t.Errorf("DIFF-08: CompareWith() = %+v, %v", v, err)
	}
	if diff := cmp.Diff([]string{"hpa"}, ignore.Managers(manifest.KeyOf(o))); diff != "" {
		t.Errorf("Managers() %s", diff)
	}
}

func TestRulesThatAreRefused(t *testing.T) {
	t.Parallel()
	cases := map[string]diff.Rule{
		"PointerWithoutSlash": {JSONPointers: []string{"spec/replicas"}},
		"PointerToAll":        {JSONPointers: []string{"/"}},
		"BadGlob":             {Kind: "[a"},
		"NotJQ":               {JQ: []string{".spec["}},
		"NoPath":              {JQ: []string{"nosuchfunction(.)"}},
		"LongText":            {JQ: []string{"." + strings.Repeat("a", 5000)}},
	}
	for _, expr := range []string{
		`reduce range(1e9) as $i (""; . + "x")`, `"\(.)\(.)"`, `. * 1e9`, `[.,.]`, `{a: .}`, `def f: f; f`, `env.PATH`, `$ENV`, `input`, `now`,
		`foreach .[] as $x (0; 1)`, `label $out | break $out`, `@base64`, `.[1:]`, `. as $x | $x`, `del(.a)`, `.a = 1`, `.a |= 1`, `range(10)`, `limit(1; repeat(.))`,
		`ltrimstr([.,.])`, `select(.a | contains(.))`, `if [.,.] then . else . end`, `try error([.,.]) catch .`, `.["\(.)"]`, `import "a" as b; .`, `halt`, `getpath([.])`,
	} {
		cases[expr] = diff.Rule{JQ: []string{expr}}
	}
	for name, rule := range cases {
		if _, err := diff.NewIgnore([]diff.Rule{rule}); fault.KindOf(err) != fault.Invalid {
			t.Errorf("%s: NewIgnore() = %v; want Invalid", name, err)
		}
	}
}

func TestJQIsStopped(t *testing.T) {
	t.Parallel()
	for _, expr := range []string{`.. | .. | .. | .. | .. | ..`, `recurse(.)`, `until(false; .)`, strings.Repeat("(.,.)|", 60) + "."} {
		ignore, err := diff.NewIgnore([]diff.Rule{{Group: "*", Kind: "*", JQ: []string{expr}}})
		if err != nil {
			t.Errorf("%s: %v", expr, err)
			continue
		}
		if _, err := diff.Own(live(t), manager, [32]byte{}, ignore); fault.KindOf(err) != fault.Exceeded {
			t.Errorf("DIFF-07 %s: Own() = %v; want Exceeded", expr, err)
		}
	}
}

func TestReplaced(t *testing.T) {
	t.Parallel()
	desired, err := manifest.Parse("d.yaml", []byte("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, namespace: shop, labels: {app.kubernetes.io/name: web}}\n"+
		"spec: {replicas: 3, template: {spec: {containers: [{name: web, image: \"registry.example.org/shop/web:v1\"}], tolerations: [{key: a}]}}}\n"), manifest.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	rec, err := diff.Comparer{}.Replaced(desired[0], live(t), manager, [32]byte{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if v := compare(t, rec, live(t), nil); !v.Equal {
		t.Errorf("SYNC-20: Compare() = %+v", v)
	}
	o := live(t)
	container(o, 0)["image"] = "x"
	container(o, 0)["imagePullPolicy"] = "Never"
	o.SetName("other")
	if v := compare(t, rec, o, nil); !cmp.Equal(v.Fields, []string{"spec.template.spec.containers[name=web].image"}) {
		t.Errorf("SYNC-20: Compare() = %+v", v)
	}
}

func TestKeyedRecordsRevealNothing(t *testing.T) {
	t.Parallel()
	a, b := diff.Comparer{Key: []byte("one")}, diff.Comparer{Key: []byte("two")}
	x, err := a.Own(live(t), manager, [32]byte{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	y, err := b.Own(live(t), manager, [32]byte{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if x.Hash == y.Hash || string(x.Leaves[:8]) == string(y.Leaves[:8]) {
		t.Error("records under different keys can be compared")
	}
	o := live(t)
	at(o, "spec")["replicas"] = int64(5)
	if v, err := a.Compare(x, o, nil); err != nil || !cmp.Equal(v.Fields, []string{"spec.replicas"}) {
		t.Errorf("Compare() = %+v, %v", v, err)
	}
}

func TestOwnedSurvivesJSON(t *testing.T) {
	t.Parallel()
	rec, _ := own(t, live(t), diff.Rule{Group: "*", Kind: "*", JSONPointers: []string{"/x"}})
	text, err := json.Marshal(rec)
	if err != nil {
		t.Fatal(err)
	}
	var back diff.Owned
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(rec, back); d != "" {
		t.Error(d)
	}
	if err := json.Unmarshal([]byte(`{"h":"short"}`), &back); err == nil {
		t.Error("a cut hash was read")
	}
	for _, bad := range []string{"", "{", `{"f:a"}`, `{"x:a":{}}`, `{"k:{}":{}}`, `{"k:1":{}}`, `{"i:-1":{}}`, `{"f:a":{}}}`, `{"f:a":1}`, `{"v:":{}}`, strings.Repeat(`{"f:a":`, 1000)} {
		rec.Fields = []byte(bad)
		if _, err := rec.Compare(live(t), must(diff.NewIgnore([]diff.Rule{{Group: "*", Kind: "*", JSONPointers: []string{"/x"}}}))); fault.KindOf(err) != fault.Invalid {
			t.Errorf("Compare() by the fields %q: %v; want Invalid", bad, err)
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestSummary(t *testing.T) {
	t.Parallel()
	rec, _ := own(t, live(t))
	o := live(t)
	at(o, "spec")["replicas"] = int64(5)
	container(o, 0)["image"] = strings.Repeat("é", 80)
	delete(at(o, "metadata", "labels"), "app.kubernetes.io/name")
	at(o, "spec", "selector")["x"] = "y"
	v := compare(t, rec, o, nil)
	got := v.Summary(live(t), o, 3)
	want := `metadata.labels["app.kubernetes.io/name"]: web → (none); spec.replicas: 3 → 5; spec.selector: changed; 1 more`
	if got != want {
		t.Errorf("Summary() = %q\nwant        %q", got, want)
	}
	if s := v.Summary(nil, o, 9); !strings.Contains(s, "spec.replicas: now 5") || !strings.Contains(s, "…") {
		t.Errorf("Summary() without the desired object = %q", s)
	}
	if s := (diff.Result{Void: "x"}).Summary(nil, o, 1); s != "not comparable: x" {
		t.Errorf("Summary() of a void verdict = %q", s)
	}
}

func TestSummaryHidesSecrets(t *testing.T) {
	t.Parallel()
	secret := func(v string) *manifest.Object {
		return &manifest.Object{Object: map[string]any{
			"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "db", "managedFields": []any{map[string]any{
				"manager": manager, "operation": "Apply", "fieldsV1": map[string]any{"f:data": map[string]any{"f:password": map[string]any{}}},
			}}}, "data": map[string]any{"password": v},
		}}
	}
	rec, _ := own(t, secret("aHVudGVyMg=="))
	o := secret("b3RoZXI=")
	if s := compare(t, rec, o, nil).Summary(secret("aHVudGVyMg=="), o, 5); s != "data.password: changed" {
		t.Errorf("SEC-C1: Summary() = %q", s)
	}
}

func BenchmarkCompare(b *testing.B) {
	o := live(b)
	rec, _ := own(b, o)
	changed := live(b)
	at(changed, "spec")["replicas"] = int64(5)
	ignored, ignore := own(b, o, diff.Rule{Group: "apps", Kind: "Deployment", JSONPointers: []string{"/spec/replicas"}})
	jq, ignoreJQ := own(b, o, diff.Rule{Group: "apps", Kind: "Deployment", JQ: []string{`.spec.template.spec.containers[] | select(.name == "web").image`}})
	b.Run("Equal", func(b *testing.B) { benchmark(b, rec, o, nil, true) })
	b.Run("Different", func(b *testing.B) { benchmark(b, rec, changed, nil, false) })
	b.Run("Pointer", func(b *testing.B) { benchmark(b, ignored, o, ignore, true) })
	b.Run("JQ", func(b *testing.B) { benchmark(b, jq, o, ignoreJQ, true) })
	b.Run("Own", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := diff.Own(o, manager, [32]byte{}, nil); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func benchmark(b *testing.B, rec diff.Owned, o *manifest.Object, ignore *diff.Ignore, equal bool) {
	b.Helper()
	b.ReportAllocs()
	for b.Loop() {
		if v, err := rec.Compare(o, ignore); err != nil || v.Equal != equal {
			b.Fatal(v, err)
		}
	}
}
