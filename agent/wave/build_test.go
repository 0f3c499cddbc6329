package wave_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/agent/wave"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// obj makes an object from "wave Kind name", with the group that its kind has
// here, in namespace shop unless it has none.
func obj(text string, change ...func(*wave.Object)) wave.Object {
	var o wave.Object
	if _, err := fmt.Sscanf(text, "%d %s %s", &o.Wave, &o.Key.Kind, &o.Key.Name); err != nil {
		panic(err)
	}
	o.Version = "v1"
	switch o.Key.Kind {
	case "Namespace", "ClusterRole":
	case "CustomResourceDefinition":
		o.Defines = []wave.Kind{{Group: "x.io", Kind: "Widget"}}
	case "Widget":
		o.Key.Group, o.Key.Namespace = "x.io", "shop"
	default:
		o.Key.Namespace = "shop"
	}
	for _, c := range change {
		c(&o)
	}
	return o
}

func hook(phases string, policies ...string) func(*wave.Object) {
	return func(o *wave.Object) { o.Hooks, o.DeletePolicies = strings.Split(phases, ","), policies }
}

func options(list ...string) func(*wave.Object) {
	return func(o *wave.Object) { o.Options = list }
}

func in(namespace string) func(*wave.Object) {
	return func(o *wave.Object) { o.Key.Namespace = namespace }
}

// outline writes a plan in short: a line for each step.
func outline(p wave.Plan) []string {
	var out []string
	if len(p.Prelude) > 0 {
		out = append(out, "first "+group(p.Prelude))
	}
	for _, s := range append(p.Steps, p.OnFailure...) {
		line := fmt.Sprintf("%s %d", s.Phase, s.Wave)
		for _, g := range s.Prunes {
			line += " -" + group(g)
		}
		for _, g := range s.Groups {
			line += " " + group(g)
		}
		out = append(out, line)
	}
	return out
}

func group(items []wave.Item) string {
	names := make([]string, len(items))
	for i, it := range items {
		names[i] = it.Key.Kind + "/" + it.Key.Name
	}
	return strings.Join(names, ",")
}

func TestBuild(t *testing.T) {
	t.Parallel()
	prune := wave.Options{Operation: "op", Prune: true, Namespace: "shop"}
	with := func(change func(*wave.Options)) wave.Options {
		o := prune
		change(&o)
		return o
	}
	all := []wave.Object{obj("0 Deployment web"), obj("0 ConfigMap c"), obj("0 Job pre", hook("PreSync")), obj("0 Job fail", hook("SyncFail"))}
	cases := map[string]struct {
		objects, prunes []wave.Object
		options         wave.Options
		want            []string
		durable         bool
	}{
		"ENG-01 phases in order": {
			objects: []wave.Object{obj("0 Job after", hook("PostSync")), obj("0 Job fail", hook("SyncFail")), obj("0 Deployment web"), obj("0 Job before", hook("PreSync"))},
			want:    []string{"PreSync 0 Job/before", "Sync 0 Deployment/web", "PostSync 0 Job/after", "SyncFail 0 Job/fail"}, durable: true,
		},
		"ENG-02 waves in order": {
			objects: []wave.Object{obj("5 ConfigMap c"), obj("-1 ConfigMap a"), obj("0 ConfigMap b")},
			want:    []string{"Sync -1 ConfigMap/a", "Sync 0 ConfigMap/b", "Sync 5 ConfigMap/c"}, durable: true,
		},
		"ENG-03 kinds, then names, unknown kinds last": {
			objects: []wave.Object{obj("0 Zebra z"), obj("0 Apple z"), obj("0 Ingress i"), obj("0 Deployment b"), obj("0 Deployment a"), obj("0 Service s"), obj("0 Namespace shop")},
			want:    []string{"Sync 0 Namespace/shop Service/s Deployment/a,Deployment/b Ingress/i Apple/z Zebra/z"},
		},
		"ENG-05 a namespace is moved to who needs it": {
			objects: []wave.Object{obj("3 Namespace shop"), obj("0 Job pre", hook("PreSync")), obj("1 Deployment web"), obj("0 ConfigMap elsewhere", in("other"))},
			want:    []string{"PreSync 0 Namespace/shop Job/pre", "Sync 0 ConfigMap/elsewhere", "Sync 1 Deployment/web"}, durable: true,
		},
		"ENG-05 a definition is moved to its objects": {
			objects: []wave.Object{obj("3 CustomResourceDefinition widgets"), obj("0 Widget w"), obj("0 ConfigMap c")},
			want:    []string{"Sync 0 ConfigMap/c CustomResourceDefinition/widgets Widget/w"},
		},
		"ENG-05 a CRD comes before its objects regardless of the order of kinds": {
			objects: []wave.Object{obj("0 CustomResourceDefinition x", func(o *wave.Object) { o.Defines = []wave.Kind{{"x.io", "NetworkPolicy"}} }), obj("0 NetworkPolicy n", func(o *wave.Object) { o.Key.Group = "x.io" })},
			want:    []string{"Sync 0 CustomResourceDefinition/x NetworkPolicy/n"},
		},
		"ENG-05 no move if no earlier object needs it": {
			objects: []wave.Object{obj("1 Namespace shop"), obj("2 Deployment web")},
			want:    []string{"Sync 1 Namespace/shop", "Sync 2 Deployment/web"}, durable: true,
		},
		"ENG-06 prunes go first, the dependent ones at the front": {
			objects: []wave.Object{obj("0 ConfigMap new")}, prunes: []wave.Object{obj("0 ConfigMap old"), obj("0 Deployment old"), obj("0 Ingress old")},
			want: []string{"Sync 0 -Ingress/old -Deployment/old -ConfigMap/old ConfigMap/new"},
		},
		"ENG-07 prune waves are mirrored among those present": {
			prunes: []wave.Object{obj("-1 ConfigMap a"), obj("0 ConfigMap b"), obj("7 ConfigMap c")}, objects: []wave.Object{obj("3 ConfigMap new")},
			want: []string{"Sync -1 -ConfigMap/c", "Sync 0 -ConfigMap/b", "Sync 3 ConfigMap/new", "Sync 7 -ConfigMap/a"}, durable: true,
		},
		"SYNC-19 PruneLast of the application": {
			options: with(func(o *wave.Options) { o.SyncOptions = []string{"PruneLast=true"} }),
			objects: []wave.Object{obj("2 ConfigMap new")}, prunes: []wave.Object{obj("-5 ConfigMap old")}, want: []string{"Sync 2 ConfigMap/new", "Sync 3 -ConfigMap/old"}, durable: true,
		},
		"SYNC-19 PruneLast of one object": {
			objects: []wave.Object{obj("0 ConfigMap new")}, prunes: []wave.Object{obj("0 ConfigMap old", options("PruneLast=true")), obj("0 ConfigMap other")},
			want: []string{"Sync 0 -ConfigMap/other ConfigMap/new", "Sync 1 -ConfigMap/old"}, durable: true,
		},
		"SYNC-14 the object's option wins": {
			options: with(func(o *wave.Options) { o.SyncOptions = []string{"Prune=false"} }),
			prunes:  []wave.Object{obj("0 ConfigMap a", options("Prune=true")), obj("0 ConfigMap b")}, want: []string{"Sync 0 -ConfigMap/a"},
		},
		"INV-3 without Prune nothing is deleted":              {options: wave.Options{}, prunes: []wave.Object{obj("0 ConfigMap a")}, want: nil},
		"INV-3 what is applied is never pruned":               {objects: []wave.Object{obj("0 ConfigMap a")}, prunes: []wave.Object{obj("0 ConfigMap a")}, want: []string{"Sync 0 ConfigMap/a"}},
		"INV-3 an object that becomes a hook is never pruned": {objects: []wave.Object{obj("0 Job a", hook("PreSync"))}, prunes: []wave.Object{obj("0 Job a")}, want: []string{"PreSync 0 Job/a"}, durable: true},
		"SYNC-11 Prune=false":                                 {prunes: []wave.Object{obj("0 ConfigMap a", options("Prune=false"))}, want: nil},
		"SYNC-13 Prune=confirm is in the plan and durable":    {prunes: []wave.Object{obj("0 ConfigMap a", options("Prune=confirm"))}, want: []string{"Sync 0 -ConfigMap/a"}, durable: true},
		"SYNC-02 strategy apply runs no hooks":                {options: with(func(o *wave.Options) { o.SkipHooks = true }), objects: all, want: []string{"Sync 0 ConfigMap/c Deployment/web"}},
		"SYNC-03 HOOK-15 selective sync": {
			options: with(func(o *wave.Options) { o.Resources = []string{":Deployment:shop/web"} }), objects: all, prunes: []wave.Object{obj("0 ConfigMap old")}, want: []string{"Sync 0 Deployment/web"},
		},
		"SYNC-03 without namespace, and prunes": {
			options: with(func(o *wave.Options) { o.Resources = []string{":ConfigMap:*"} }), objects: all, prunes: []wave.Object{obj("0 ConfigMap old"), obj("0 Secret old")}, want: []string{"Sync 0 -ConfigMap/old ConfigMap/c"},
		},
		"SYNC-03 exclude": {
			options: with(func(o *wave.Options) { o.Resources = []string{"!:Deployment:web"} }), objects: all, want: []string{"Sync 0 ConfigMap/c"},
		},
		"SYNC-26 the namespace is made first": {
			options: with(func(o *wave.Options) { o.SyncOptions = []string{"CreateNamespace=true"} }), objects: all[:3],
			want: []string{"first Namespace/shop", "PreSync 0 Job/pre", "Sync 0 ConfigMap/c Deployment/web"}, durable: true,
		},
		"SYNC-26 making the namespace is no step of its own": {
			options: with(func(o *wave.Options) { o.SyncOptions = []string{"CreateNamespace=true"} }), objects: all[:2], want: []string{"first Namespace/shop", "Sync 0 ConfigMap/c Deployment/web"},
		},
		"SYNC-27 managed metadata visits the namespace": {options: with(func(o *wave.Options) { o.NamespaceMetadata = true }), want: []string{"first Namespace/shop"}},
		"SYNC-27 a Namespace in Git wins":               {options: with(func(o *wave.Options) { o.SyncOptions = []string{"CreateNamespace=true"} }), objects: []wave.Object{obj("0 Namespace shop")}, want: []string{"Sync 0 Namespace/shop"}},
		"SYNC-26 never pruned and made at once":         {options: with(func(o *wave.Options) { o.SyncOptions = []string{"CreateNamespace=true"} }), prunes: []wave.Object{obj("0 Namespace shop")}, want: []string{"first Namespace/shop"}},
		"HOOK-02 HOOK-03 Skip":                          {objects: []wave.Object{obj("0 Job a", hook("Skip"))}, want: nil},
		"HOOK-16 hooks of a deletion do not run":        {objects: []wave.Object{obj("0 Job a", hook("PreDelete,PostDelete"))}, want: nil},
		"HOOK-01 several phases":                        {objects: []wave.Object{obj("0 Job a", hook("PreSync,PostSync"))}, want: []string{"PreSync 0 Job/a", "PostSync 0 Job/a"}, durable: true},
		"HOOK-10 waves order hooks":                     {objects: []wave.Object{obj("2 Job b", hook("PreSync")), obj("1 Job a", hook("PreSync"))}, want: []string{"PreSync 1 Job/a", "PreSync 2 Job/b"}, durable: true},
		"the same object twice":                         {objects: []wave.Object{obj("0 ConfigMap a"), obj("1 ConfigMap a")}, want: []string{"Sync 1 ConfigMap/a"}},
		"nothing":                                       {want: nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if cmp.Equal(c.options, wave.Options{}) && !strings.Contains(name, "without Prune") {
				c.options = prune
			}
			p, err := wave.Build(c.objects, c.prunes, c.options)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, outline(p)); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
			if p.Durable() != c.durable || p.Check != c.durable {
				t.Errorf("Durable() = %v, Check = %v; want %v", p.Durable(), p.Check, c.durable)
			}
			for _, it := range p.Skipped {
				if it.Keep == "" {
					t.Errorf("%s is skipped without a reason", it.Key)
				}
			}
		})
	}
}

func TestBuildDetails(t *testing.T) {
	t.Parallel()
	build := func(objects []wave.Object, o wave.Options) []wave.Item {
		p, err := wave.Build(objects, nil, o)
		if err != nil {
			t.Fatal(err)
		}
		return p.Items()
	}
	generated := func(o *wave.Object) { o.Key.Name, o.GenerateName = "", "migrate-" }
	long := func(o *wave.Object) { o.Key.Name, o.GenerateName = "", strings.Repeat("x", 70) }
	t.Run("HOOK-05 generated names are those of the operation", func(t *testing.T) {
		t.Parallel()
		o := wave.Options{Operation: "op", Revision: "0123456789abcdef", Created: time.Unix(1700000000, 0)}
		items := build([]wave.Object{obj("0 Job x", hook("PreSync"), generated), obj("0 Job y", hook("PreSync"), generated), obj("0 Job z", hook("PostSync"), long)}, o)
		got := []string{items[0].Key.Name, items[1].Key.Name, items[2].Key.Name}
		want := []string{"migrate-0123456-presync-1700000000", "migrate-0123456-presync-1700000000-2", strings.Repeat("x", 60-27) + "0123456-postsync-1700000000"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if items[0].Instance != "op/PreSync" || !items[0].Has(manifest.BeforeHookCreation) {
			t.Errorf("item = %+v", items[0])
		}
	})
	t.Run("namespaces and kinds that the operation creates are marked", func(t *testing.T) {
		t.Parallel()
		items := build([]wave.Object{obj("0 Namespace shop"), obj("0 CustomResourceDefinition c"), obj("0 Widget w", in("other")), obj("0 ConfigMap c"), obj("0 ConfigMap d", in("other"))}, wave.Options{})
		for _, it := range items {
			if want := it.Key.Name == "w" || it.Key.Namespace == "shop"; it.MadeHere != want {
				t.Errorf("%s: MadeHere = %v, want %v", it.Key, it.MadeHere, want)
			}
		}
	})
	t.Run("ENG-08 Force requires a pre-flight", func(t *testing.T) {
		t.Parallel()
		for _, option := range []string{"Replace=true", "Force=true"} {
			if p, _ := wave.Build([]wave.Object{obj("0 ConfigMap c", options(option))}, nil, wave.Options{}); !p.Check || p.Durable() {
				t.Errorf("%s: Check = %v, Durable() = %v", option, p.Check, p.Durable())
			}
		}
	})
	t.Run("wait=false for one object and for all", func(t *testing.T) {
		t.Parallel()
		items := build([]wave.Object{obj("0 ConfigMap a", func(o *wave.Object) { o.NoWait = true }), obj("0 ConfigMap b")}, wave.Options{})
		all := build([]wave.Object{obj("0 ConfigMap a")}, wave.Options{SyncOptions: []string{"capstan.dev/wait=false"}})
		if !items[0].NoWait || items[1].NoWait || !all[0].NoWait {
			t.Errorf("NoWait = %v, %v, %v", items[0].NoWait, items[1].NoWait, all[0].NoWait)
		}
	})
	t.Run("Warnings", func(t *testing.T) {
		t.Parallel()
		p, _ := wave.Build([]wave.Object{obj("0 ConfigMap a"), obj("1 ConfigMap a")}, nil, wave.Options{})
		if len(p.Warnings) != 1 || !strings.Contains(p.Warnings[0], "ConfigMap shop/a") {
			t.Errorf("Warnings = %q", p.Warnings)
		}
	})
	for _, bad := range []string{"", "Deployment", "apps:Deployment", "apps::web", "apps:Deployment:", "!"} {
		if _, err := wave.Build(nil, nil, wave.Options{Resources: []string{bad}}); fault.KindOf(err) != fault.Invalid {
			t.Errorf("SYNC-03: resource %q: %v; want Invalid", bad, err)
		}
	}
}

func TestBuildDelete(t *testing.T) {
	t.Parallel()
	hooks := []wave.Object{obj("0 Job bye", hook("PreDelete")), obj("0 Job gone", hook("PostDelete,PreSync")), obj("0 Job pre", hook("PreSync"))}
	objects := []wave.Object{
		obj("0 ConfigMap a"), obj("5 Deployment d"), obj("-2147483648 Namespace shop"), obj("5 Ingress i"), obj("0 CustomResourceDefinition c"),
		obj("0 Secret keep", options("Delete=false")), obj("0 Secret ask", options("Delete=confirm")), obj("0 Secret prune", options("Prune=false")),
	}
	p := wave.BuildDelete(hooks, objects, wave.Options{Operation: "op"})
	want := []string{"PreDelete 0 Job/bye", "Delete -5 -Ingress/i -Deployment/d", "Delete 0 -ConfigMap/a -Secret/ask,Secret/prune", "Delete 2147483647 -Namespace/shop", "PostDelete 0 Job/gone"}
	if diff := cmp.Diff(want, outline(p)); diff != "" {
		t.Errorf("DEL-02 (-want +got):\n%s", diff)
	}
	t.Run("ENG-16 HOOK-16 HOOK-17 the hooks of a deletion are checked before anything is deleted", func(t *testing.T) {
		if !p.Check {
			t.Error("there is no pre-flight")
		}
	})
	t.Run("SYNC-12 DEL-03 objects with Delete=false and CRDs are kept", func(t *testing.T) {
		if got := group(p.Skipped); got != "CustomResourceDefinition/c,Secret/keep" {
			t.Errorf("kept are %s", got)
		}
	})
	p = wave.BuildDelete(nil, objects, wave.Options{})
	if p.Approve != "Secret shop/ask asks for it with Delete=confirm" || !p.Durable() || p.Check {
		t.Errorf("DEL-04: Approve = %q, Durable() = %v, Check = %v", p.Approve, p.Durable(), p.Check)
	}
	p = wave.BuildDelete(nil, objects[:1], wave.Options{})
	if p.Approve != "" || p.Durable() {
		t.Errorf("DEL-04: nobody asks, but Approve = %q, Durable() = %v", p.Approve, p.Durable())
	}
}

func TestDescribe(t *testing.T) {
	t.Parallel()
	read := func(text string) *manifest.Object {
		objs, err := manifest.Parse("x.yaml", []byte(text), manifest.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		return objs[0]
	}
	got, err := wave.Describe(3, read("apiVersion: batch/v1\nkind: Job\nmetadata: {generateName: m-, annotations: {argocd.argoproj.io/hook: PreSync, argocd.argoproj.io/sync-wave: '4', argocd.argoproj.io/sync-options: Force=true, capstan.dev/wait: 'false'}}\n"), "shop")
	want := wave.Object{
		Index: 3, Key: manifest.Key{Group: "batch", Kind: "Job", Namespace: "shop"}, Version: "v1", GenerateName: "m-", Wave: 4,
		Hooks: []string{"PreSync"}, DeletePolicies: []string{"BeforeHookCreation"}, Options: []string{"Force=true"}, NoWait: true,
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	got, err = wave.Describe(0, read("apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: widgets.x.io}\nspec: {group: x.io, names: {kind: Widget}}\n"), "")
	if diff := cmp.Diff([]wave.Kind{{Group: "x.io", Kind: "Widget"}}, got.Defines); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	got, err = wave.Describe(0, read("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, annotations: {argocd.argoproj.io/sync-wave: first}}\n"), "")
	if err != nil || got.Wave != 0 {
		t.Errorf("ENG-02: Describe() of a wave that is no number: %d, %v; want 0", got.Wave, err)
	}
	got, err = wave.Describe(0, read("apiVersion: v1\nkind: ConfigMap\nmetadata: {generateName: m-}\n"), "shop")
	if want := (manifest.Key{Kind: "ConfigMap", Namespace: "shop", Name: "m-*"}); err != nil || got.Key != want {
		t.Errorf("SRC-20: Describe() of what only has generateName: %v, %v; want %v", got.Key, err, want)
	}
}

func BenchmarkBuild(b *testing.B) {
	var objects []wave.Object
	for i := range 5000 {
		objects = append(objects, obj(fmt.Sprintf("%d ConfigMap c%d", i%5, i)))
	}
	for i := range 50 {
		objects = append(objects, obj(fmt.Sprintf("0 Namespace n%d", i)))
	}
	for b.Loop() {
		if _, err := wave.Build(objects, nil, wave.Options{}); err != nil {
			b.Fatal(err)
		}
	}
}
