package manifest_test

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/manifest"
)

func object(kind string, annotations map[string]any) *manifest.Object {
	return &manifest.Object{Object: map[string]any{
		"apiVersion": "v1", "kind": kind, "metadata": map[string]any{"name": "a", "annotations": annotations},
	}}
}

func TestKey(t *testing.T) {
	t.Parallel()
	for text, key := range map[string]manifest.Key{
		"apps/Deployment/shop/web": {Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"},
		"/Namespace//shop":         {Kind: "Namespace", Name: "shop"},
	} {
		if key.String() != text {
			t.Errorf("String() = %q, want %q", key.String(), text)
		}
		if got, err := manifest.ParseKey(text); err != nil || got != key {
			t.Errorf("ParseKey(%q) = %v, %v", text, got, err)
		}
	}
	for _, bad := range []string{"", "a", "a/b/c", "a/b/c/d/e", "//x/y", "a/b/c/"} {
		if _, err := manifest.ParseKey(bad); fault.KindOf(err) != fault.Invalid {
			t.Errorf("ParseKey(%q): %v; want Invalid", bad, err)
		}
	}
}

func TestWave(t *testing.T) {
	t.Parallel()
	const wave, weight = "argocd.argoproj.io/sync-wave", "helm.sh/hook-weight"
	cases := map[string]struct {
		annotations map[string]any
		want        int32
		misread     []string // in what is said
	}{
		"ENG-02 no annotation":                          {want: 0},
		"ENG-02 negative":                               {annotations: map[string]any{wave: "-5"}, want: -5},
		"ENG-02 our own name wins":                      {annotations: map[string]any{wave: "1", "capstan.dev/sync-wave": "2"}, want: 2},
		"ENG-02 a word counts as not set":               {annotations: map[string]any{wave: "first"}, want: 0, misread: []string{`sync-wave is "first"`}},
		"ENG-02 an invalid number is ignored":           {annotations: map[string]any{wave: "1.5"}, want: 0, misread: []string{`sync-wave is "1.5"`}},
		"ENG-02 a large wave comes last":                {annotations: map[string]any{wave: "99999999999"}, want: math.MaxInt32 - 1},
		"ENG-02 a very large one too":                   {annotations: map[string]any{wave: "99999999999999999999"}, want: math.MaxInt32 - 1},
		"ENG-02 a small one first":                      {annotations: map[string]any{wave: "-99999999999"}, want: math.MinInt32 + 1},
		"HELM-19 weight without a wave":                 {annotations: map[string]any{weight: "7"}, want: 7},
		"HELM-19 the wave wins over the weight":         {annotations: map[string]any{weight: "7", wave: "1"}, want: 1},
		"HELM-19 the weight counts without a good wave": {annotations: map[string]any{weight: "7", wave: "x"}, want: 7, misread: []string{`sync-wave is "x"`}},
		"HELM-19 a weight that is no number is 0":       {annotations: map[string]any{weight: "high"}, want: 0, misread: []string{`helm.sh/hook-weight is "high"`}},
		"HELM-19 own hooks make Helm's void":            {annotations: map[string]any{weight: "7", "argocd.argoproj.io/hook": "PreSync"}, want: 0},
		"HOOK-06 an unknown policy is reported": {
			annotations: map[string]any{"argocd.argoproj.io/hook": "Sync", "argocd.argoproj.io/hook-delete-policy": "HookSucceeded,Never"}, misread: []string{`hook-delete-policy names "Never"`},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := object("ConfigMap", c.annotations)
			if got := manifest.Wave(o); got != c.want {
				t.Errorf("Wave() = %d; want %d", got, c.want)
			}
			gotText := manifest.Misread(o)
			if len(gotText) != len(c.misread) {
				t.Fatalf("Misread() = %q; want %q", gotText, c.misread)
			}
			for i, want := range c.misread {
				if !strings.Contains(gotText[i], want) {
					t.Errorf("Misread() = %q; want %q in it", gotText[i], want)
				}
			}
		})
	}
}

func TestHooks(t *testing.T) {
	t.Parallel()
	const hook, policy = "argocd.argoproj.io/hook", "argocd.argoproj.io/hook-delete-policy"
	cases := map[string]struct {
		annotations     map[string]any
		hooks, policies []string
	}{
		"no hook":                         {nil, nil, []string{"BeforeHookCreation"}},
		"HOOK-01 several":                 {map[string]any{hook: "PostSync, PreSync,PreSync"}, []string{"PreSync", "PostSync"}, []string{"BeforeHookCreation"}},
		"HOOK-01 of a deletion":           {map[string]any{hook: "PreDelete,PostDelete"}, []string{"PreDelete", "PostDelete"}, []string{"BeforeHookCreation"}},
		"HOOK-01 our own name":            {map[string]any{"capstan.dev/hook": "Sync", hook: "PreSync"}, []string{"Sync"}, []string{"BeforeHookCreation"}},
		"HOOK-02 Skip":                    {map[string]any{hook: "Skip"}, []string{"Skip"}, []string{"BeforeHookCreation"}},
		"HOOK-02 Skip with others":        {map[string]any{hook: "Skip,Sync"}, []string{"Sync"}, []string{"BeforeHookCreation"}},
		"HOOK-03 unknown":                 {map[string]any{hook: "BeforeEverything"}, []string{"Skip"}, []string{"BeforeHookCreation"}},
		"HOOK-03 empty":                   {map[string]any{hook: ""}, []string{"Skip"}, []string{"BeforeHookCreation"}},
		"HOOK-06 policies":                {map[string]any{hook: "Sync", policy: "HookSucceeded,HookFailed, HookSucceeded"}, []string{"Sync"}, []string{"HookSucceeded", "HookFailed"}},
		"HOOK-06 unknown policy":          {map[string]any{hook: "Sync", policy: "Never"}, []string{"Sync"}, []string{"BeforeHookCreation"}},
		"HELM-18 pre-install and upgrade": {map[string]any{"helm.sh/hook": "pre-install,pre-upgrade"}, []string{"PreSync"}, []string{"BeforeHookCreation"}},
		"HELM-18 post-install":            {map[string]any{"helm.sh/hook": "post-install"}, []string{"PostSync"}, []string{"BeforeHookCreation"}},
		"HELM-18 deletion":                {map[string]any{"helm.sh/hook": "pre-delete,post-delete"}, []string{"PreDelete", "PostDelete"}, []string{"BeforeHookCreation"}},
		"HELM-18 crd-install is ordinary": {map[string]any{"helm.sh/hook": "crd-install"}, nil, []string{"BeforeHookCreation"}},
		"HELM-18 test is ignored":         {map[string]any{"helm.sh/hook": "test"}, []string{"Skip"}, []string{"BeforeHookCreation"}},
		"HELM-18 rollback is ignored":     {map[string]any{"helm.sh/hook": "post-rollback"}, []string{"Skip"}, []string{"BeforeHookCreation"}},
		"HELM-19 policies":                {map[string]any{"helm.sh/hook": "post-install", "helm.sh/hook-delete-policy": "hook-succeeded,before-hook-creation"}, []string{"PostSync"}, []string{"HookSucceeded", "BeforeHookCreation"}},
		"HELM-19 own hooks win":           {map[string]any{"helm.sh/hook": "post-install", "helm.sh/hook-delete-policy": "hook-failed", hook: "PreSync"}, []string{"PreSync"}, []string{"BeforeHookCreation"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := object("Job", c.annotations)
			got, err := manifest.Hooks(o)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.hooks, got); diff != "" {
				t.Errorf("Hooks() (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.policies, manifest.DeletePolicies(o)); diff != "" {
				t.Errorf("DeletePolicies() (-want +got):\n%s", diff)
			}
		})
	}
	if diff := cmp.Diff([]string{"Presync"}, manifest.UnknownHooks(object("Job", map[string]any{hook: "Presync,Sync"}))); diff != "" {
		t.Errorf("UnknownHooks() (-want +got):\n%s", diff)
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	o := object("ConfigMap", map[string]any{"argocd.argoproj.io/sync-options": "Prune=false, Replace=true,,Force", "helm.sh/resource-policy": "keep"})
	got := manifest.Options(o)
	if diff := cmp.Diff([]string{"Prune=false", "Replace=true", "Force", "Prune=false", "Delete=false"}, got); diff != "" {
		t.Errorf("HELM-23: Options() (-want +got):\n%s", diff)
	}
	for name, want := range map[string]string{"Replace": "true", "Force": "true", "Delete": "false", "Nothing": ""} {
		if v, ok := manifest.Option(got, name); v != want || ok != (want != "") {
			t.Errorf("Option(%s) = %q, %v; want %q", name, v, ok, want)
		}
	}
	if v, _ := manifest.Option([]string{"Prune=false", "Prune=true"}, "Prune"); v != "true" {
		t.Errorf("SYNC-14: Option() = %q; the last one wins", v)
	}
}

func TestNormalize(t *testing.T) {
	t.Parallel()
	read := func(text string) *manifest.Object { return parse(t, "n.yaml", text)[0] }
	t.Run("ServerFieldsGo", func(t *testing.T) {
		t.Parallel()
		o := read("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, uid: x, resourceVersion: '1', creationTimestamp: null, generation: 3, selfLink: y, managedFields: [], labels: {a: b}}\nstatus: {}\ndata: {k: v}\n")
		if err := manifest.Normalize(o); err != nil {
			t.Fatal(err)
		}
		want := read("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, labels: {a: b}}\ndata: {k: v}\n")
		if diff := cmp.Diff(want.Object, o.Object); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
	t.Run("StringDataBecomesData", func(t *testing.T) {
		t.Parallel()
		o := read("apiVersion: v1\nkind: Secret\nmetadata: {name: a}\ndata: {keep: b2xk, both: b2xk, empty: null, lines: \"aGVs\\nbG8=\\n\", placeholder: \"<path:x>\\n\"}\nstringData: {both: new, more: hi}\n")
		for range 2 { // normalizing twice is normalizing once
			if err := manifest.Normalize(o); err != nil {
				t.Fatal(err)
			}
			want := map[string]any{"keep": "b2xk", "both": "bmV3", "more": "aGk=", "empty": "", "lines": "aGVsbG8=", "placeholder": "<path:x>\n"}
			if diff := cmp.Diff(want, o.Object["data"]); diff != "" {
				t.Errorf("data (-want +got):\n%s", diff)
			}
			if _, left := o.Object["stringData"]; left {
				t.Error("stringData is left")
			}
		}
	})
	t.Run("OtherKindsKeepStringData", func(t *testing.T) {
		t.Parallel()
		o := read("apiVersion: x.io/v1\nkind: Secret\nmetadata: {name: a}\nstringData: {a: b}\n")
		if err := manifest.Normalize(o); err != nil || o.Object["stringData"] == nil {
			t.Errorf("a Secret of another group was changed (%v)", err)
		}
	})
	for name, text := range map[string]string{
		"NumberInData": "data: {password: 12345678}", "MapInStringData": "stringData: {password: {a: hunter2}}", "DataIsText": "data: hunter2",
	} {
		t.Run("SEC-C2 Refuses"+name, func(t *testing.T) {
			t.Parallel()
			err := manifest.Normalize(read("apiVersion: v1\nkind: Secret\nmetadata: {name: db}\n" + text + "\n"))
			if fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), "Secret db") {
				t.Fatalf("Normalize(): %v; want Invalid, with the object", err)
			}
			if strings.Contains(err.Error(), "12345678") || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the error holds the value: %v", err)
			}
		})
	}
}

func TestMask(t *testing.T) {
	t.Parallel()
	text := "apiVersion: v1\nkind: Secret\nmetadata: {name: a, annotations: {kubectl.kubernetes.io/last-applied-configuration: '{\"data\":{\"x\":\"aHVudGVyMg==\"}}', note: keep}}\n" +
		"data: {x: aHVudGVyMg==, same: aHVudGVyMg==, other: b3RoZXI=}\nstringData: {z: hunter2}\n"
	o := parse(t, "s.yaml", text)[0]
	before, _ := manifest.Canonical(o)
	m := manifest.Mask(o, []byte("key"))
	got, err := manifest.Canonical(m)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"hunter2", "aHVudGVyMg", "b3RoZXI"} {
		if strings.Contains(string(got), secret) {
			t.Errorf("SEC-C1: %s can be read in %s", secret, got)
		}
	}
	data, plain := m.Object["data"].(map[string]any), m.Object["stringData"].(map[string]any)
	t.Run("DIFF-14 SEC-C9 equal values look equal, others differ, and a mask shows no length", func(t *testing.T) {
		if data["x"] != data["same"] || data["x"] != plain["z"] || data["x"] == data["other"] {
			t.Errorf("%v %v", data, plain)
		}
		for name, value := range data {
			if s, _ := value.(string); !strings.HasPrefix(s, "hmac:") || len(s) != 21 {
				t.Errorf("%s is %q", name, s)
			}
		}
	})
	t.Run("SEC-C9 another key, that of another tenant, makes another mask", func(t *testing.T) {
		if data["x"] == manifest.Mask(o, []byte("other key")).Object["data"].(map[string]any)["x"] {
			t.Error("the key makes no difference")
		}
	})
	if v, _ := manifest.RawAnnotation(m, "note"); v != "keep" {
		t.Error("other annotations are masked too")
	}
	if after, _ := manifest.Canonical(o); string(after) != string(before) {
		t.Error("the object itself was changed")
	}
	c := parse(t, "c.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {x: y}\n")[0]
	if diff := cmp.Diff(c.Object, manifest.Mask(c, []byte("key")).Object); diff != "" {
		t.Errorf("another kind was changed:\n%s", diff)
	}
	odd := &manifest.Object{Object: map[string]any{"apiVersion": "v1", "kind": "Secret", "data": "hunter2", "stringData": []any{"hunter2"}}}
	if got, err := manifest.Canonical(manifest.Mask(odd, nil)); err != nil || strings.Contains(string(got), "hunter2") {
		t.Errorf("DIFF-14: a malformed Secret leaks: %s (%v)", got, err)
	}
}

func TestOrder(t *testing.T) {
	t.Parallel()
	make := func(kind, ns, name string) *manifest.Object {
		return &manifest.Object{Object: map[string]any{"apiVersion": "v1", "kind": kind, "metadata": map[string]any{"namespace": ns, "name": name}}}
	}
	objs := []*manifest.Object{
		make("Zebra", "", "z"), make("Ingress", "a", "i"), make("Deployment", "b", "d"), make("Deployment", "a", "e"), make("Deployment", "a", "d"),
		make("APIService", "", "s"), make("Apple", "", "z"), make("CustomResourceDefinition", "", "c"), make("Namespace", "", "n"), make("ConfigMap", "a", "c"),
	}
	manifest.Order(objs)
	want := []string{
		"/Namespace//n", "/ConfigMap/a/c", "/CustomResourceDefinition//c", "/Deployment/a/d", "/Deployment/a/e", "/Deployment/b/d",
		"/Ingress/a/i", "/APIService//s", "/Apple//z", "/Zebra//z",
	}
	if diff := cmp.Diff(want, names(objs)); diff != "" {
		t.Errorf("ENG-03, ENG-04 (-want +got):\n%s", diff)
	}
	list := strings.Fields("Namespace NetworkPolicy ResourceQuota LimitRange PodSecurityPolicy PodDisruptionBudget ServiceAccount Secret ConfigMap StorageClass " +
		"PersistentVolume PersistentVolumeClaim CustomResourceDefinition ClusterRole ClusterRoleBinding Role RoleBinding Service DaemonSet Pod ReplicationController " +
		"ReplicaSet Deployment HorizontalPodAutoscaler StatefulSet Job CronJob IngressClass Ingress APIService Other")
	for i := 1; i < len(list); i++ {
		if manifest.KindOrder(list[i-1]) >= manifest.KindOrder(list[i]) {
			t.Errorf("ENG-04: %s does not come before %s", list[i-1], list[i])
		}
	}
}

func TestCanonical(t *testing.T) {
	t.Parallel()
	value := rapid.Deferred(func() *rapid.Generator[any] { return anyValue(3) })
	rapid.Check(t, func(t *rapid.T) {
		o := &manifest.Object{Object: map[string]any{"kind": "X", "v": value.Draw(t, "v"), "w": value.Draw(t, "w")}}
		text, err := manifest.Canonical(o)
		if err != nil {
			t.Fatal(err)
		}
		back, err := manifest.FromCanonical(text)
		if err != nil {
			t.Fatalf("FromCanonical(%s): %v", text, err)
		}
		again, err := manifest.Canonical(back)
		if err != nil || string(again) != string(text) {
			t.Fatalf("%s becomes %s (%v)", text, again, err)
		}
	})
	for name, v := range map[string]any{"Channel": make(chan int), "Function": func() {}} {
		if _, err := manifest.Canonical(&manifest.Object{Object: map[string]any{"v": v}}); err == nil {
			t.Errorf("%s was written", name)
		}
	}
	for _, bad := range []string{"", "null", "[]", "{", `"x"`} {
		if _, err := manifest.FromCanonical([]byte(bad)); fault.KindOf(err) != fault.Invalid {
			t.Errorf("FromCanonical(%q): %v; want Invalid", bad, err)
		}
	}
	got, err := manifest.AppendCanonical(nil, map[string]any{"b": []any{1, int64(2), 2.0, 2.5, nil, true}, "a": "<&>\u2028\n\"é"})
	if want := `{"a":"<&>\u2028\n\"é","b":[1,2,2,2.5,null,true]}`; err != nil || string(got) != want {
		t.Errorf("AppendCanonical() = %s, %v; want %s", got, err, want)
	}
}

func anyValue(depth int) *rapid.Generator[any] {
	flat := rapid.OneOf(
		rapid.Map(rapid.String(), func(v string) any { return v }), rapid.Map(rapid.Int64(), func(v int64) any { return v }),
		rapid.Map(rapid.Float64(), func(v float64) any { return v }), rapid.Map(rapid.Bool(), func(v bool) any { return v }), rapid.Just[any](nil),
	)
	if depth == 0 {
		return flat
	}
	deeper := anyValue(depth - 1)
	return rapid.OneOf(flat,
		rapid.Map(rapid.SliceOfN(deeper, 0, 4), func(v []any) any { return v }),
		rapid.Map(rapid.MapOfN(rapid.String(), deeper, 0, 4), func(v map[string]any) any { return v }))
}
