package action_test

import (
	"io/fs"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"sigs.k8s.io/yaml"

	"github.com/capstan-cd/capstan/shared/action"
	"github.com/capstan-cd/capstan/shared/bundled"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/manifest"
)

func read(t *testing.T, name string) []byte {
	t.Helper()
	data, err := fs.ReadFile(bundled.Files(), name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func object(t *testing.T, data []byte) *manifest.Object {
	t.Helper()
	text, err := yaml.YAMLToJSON(data)
	if err != nil {
		t.Fatal(err)
	}
	o, err := manifest.FromCanonical(text)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

type cases struct {
	DiscoveryTests []struct {
		InputPath string `json:"inputPath"`
		Result    []struct {
			Name, DisplayName, IconClass string
			Disabled                     bool
			Params                       []action.Param
		} `json:"result"`
	} `json:"discoveryTests"`
	ActionTests []struct {
		Action               string            `json:"action"`
		InputPath            string            `json:"inputPath"`
		ExpectedOutputPath   string            `json:"expectedOutputPath"`
		ExpectedErrorMessage string            `json:"expectedErrorMessage"`
		Parameters           map[string]string `json:"parameters"`
	} `json:"actionTests"`
}

// rowOf says which row of the contract names the actions of a group.
func rowOf(group string) string {
	switch {
	case group == "apps" || group == "batch":
		return "ACT-08"
	case strings.HasSuffix(group, "argoproj.io"):
		return "ACT-09"
	case strings.HasSuffix(group, "fluxcd.io"):
		return "ACT-10"
	}
	return "ACT-11"
}

// TestBundledCases runs the cases that the Argo project keeps beside each set
// of bundled actions.
func TestBundledCases(t *testing.T) {
	t.Parallel()
	actions := action.New(nil)
	files, err := fs.Glob(bundled.Files(), "*/*/actions/action_test.yaml")
	if err != nil || len(files) < 35 {
		t.Fatalf("%d files of cases: %v", len(files), err)
	}
	count := 0
	for _, f := range files {
		var table cases
		if err := yaml.Unmarshal(read(t, f), &table); err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		dir := path.Dir(f)
		kind := path.Dir(dir)
		row := rowOf(path.Dir(kind))
		for _, c := range table.DiscoveryTests {
			count++
			t.Run(row+" "+kind+" offers with "+path.Base(c.InputPath), func(t *testing.T) {
				t.Parallel()
				got, err := actions.List(t.Context(), object(t, read(t, path.Join(dir, c.InputPath))).Object)
				if err != nil {
					t.Fatal(err)
				}
				want := map[string]action.Action{}
				for _, w := range c.Result {
					want[w.Name] = action.Action{Name: w.Name, DisplayName: w.DisplayName, Icon: w.IconClass, Disabled: w.Disabled, Params: w.Params}
				}
				for _, g := range got { // the Argo project looks at no defaults
					if d := cmp.Diff(want[g.Name], g, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(action.Param{}, "Default")); d != "" {
						t.Error(d)
					}
				}
			})
		}
		for _, c := range table.ActionTests {
			count++
			t.Run(row+" "+kind+" "+c.Action+" with "+path.Base(c.InputPath), func(t *testing.T) {
				t.Parallel()
				runCase(t, actions, dir, c.InputPath, c.Action, c.ExpectedOutputPath, c.ExpectedErrorMessage, c.Parameters)
			})
		}
	}
	t.Logf("%d cases of %d kinds", count, len(files))
}

func runCase(t *testing.T, actions *action.Actions, dir, input, name, output, problem string, params map[string]string) {
	t.Helper()
	source := object(t, read(t, path.Join(dir, input)))
	got, err := actions.Force(t.Context(), source.Object, name, params)
	if problem != "" {
		if err == nil || !strings.Contains(fault.Sentence(err), problem) {
			t.Fatalf("error %v, want %q in it", err, problem)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	want := expected(t, read(t, path.Join(dir, output)))
	for _, change := range got {
		g := struct {
			Create bool
			Object *manifest.Object
		}{change.Create, &manifest.Object{Object: change.Object}}
		at := slices.IndexFunc(want, func(w *manifest.Object) bool {
			return w.GroupVersionKind() == g.Object.GroupVersionKind() && w.GetNamespace() == g.Object.GetNamespace() &&
				(w.GetName() == g.Object.GetName() || g.Create && strings.HasPrefix(w.GetName(), source.GetName()))
		})
		if at < 0 {
			t.Fatalf("%s is not expected", manifest.KeyOf(g.Object).Describe())
		}
		w := want[at]
		if g.Create {
			w.SetName(g.Object.GetName())
		}
		if w.GetKind() == "Deployment" { // the cases were recorded at several times
			for _, field := range []string{"status"} {
				delete(w.Object, field)
			}
			meta := w.Object["metadata"].(map[string]any)
			delete(meta, "generation")
			delete(meta, "creationTimestamp")
		}
		within(t, "", w.Object, g.Object.Object)
	}
}

// within compares as the Argo project compares its cases: what is expected
// must be there; what is there besides is not looked at, nor are times of day.
func within(t *testing.T, at string, want, got any) {
	t.Helper()
	switch w := want.(type) {
	case nil:
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok && len(w) > 0 {
			t.Errorf("%s is %v, want %v", at, got, want)
			return
		}
		for k, v := range w {
			if !timeOfDay(k) {
				within(t, at+"."+k, v, g[k])
			}
		}
	case []any:
		g, ok := got.([]any)
		if !ok && len(w) > 0 || len(g) != len(w) {
			t.Errorf("%s is %v, want %v", at, got, want)
			return
		}
		for i := range w {
			within(t, at+"[]", w[i], g[i])
		}
	default:
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: %s", at, d)
		}
	}
}

func timeOfDay(field string) bool {
	return slices.Contains([]string{
		"kubectl.kubernetes.io/restartedAt", "reconcile.fluxcd.io/requestedAt", "reconcile.fluxcd.io/forceAt", "force-sync", "cnpg.io/reloadedAt",
		"workflows.argoproj.io/scheduled-time", "restartAt", "targetPrimaryTimestamp", "lastTransitionTime",
	}, field)
}

func expected(t *testing.T, data []byte) []*manifest.Object {
	t.Helper()
	if data[0] != '-' {
		return []*manifest.Object{object(t, data)}
	}
	var list []struct {
		Object map[string]any `json:"unstructuredObj"`
	}
	if err := yaml.Unmarshal(data, &list); err != nil {
		t.Fatal(err)
	}
	var out []*manifest.Object
	for _, e := range list {
		text, err := yaml.Marshal(e.Object)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, object(t, text))
	}
	return out
}

const rollout = `{"apiVersion":"argoproj.io/v1alpha1","kind":"Rollout","metadata":{"name":"r","namespace":"n","uid":"u"},"spec":{"replicas":3,"strategy":{"canary":{}},"template":{"metadata":{}}},` +
	`"status":{"pauseConditions":[{"reason":"x"}],"abort":false}}`

func rolloutObject(t *testing.T) map[string]any {
	t.Helper()
	return object(t, []byte(rollout)).Object
}

func set(discovery string, scripts map[string]string, merge bool) func(string, string) (action.Set, bool) {
	return func(group, kind string) (action.Set, bool) {
		return action.Set{Discovery: discovery, Scripts: scripts, MergeBuiltin: merge}, group == "argoproj.io" && kind == "Rollout"
	}
}

func names(all []action.Action) (out []string) {
	for _, a := range all {
		n := a.Name
		if a.Disabled {
			n += "(disabled)"
		}
		out = append(out, n)
	}
	return out
}

func TestUsersActions(t *testing.T) {
	t.Parallel()
	discovery := `actions = {} actions["resume"] = {["disabled"] = false} actions["abort"] = {["disabled"] = false} actions["promote-full"] = {["disabled"] = false} return actions`
	guide := map[string]string{"resume": "obj.status.pauseConditions = nil\nreturn obj", "promote-full": "obj.status.promoteFull = true\nreturn obj"}
	t.Run("ACT-02 a user's actions replace the bundled ones", func(t *testing.T) {
		t.Parallel()
		got, err := action.New(set(discovery, guide, false)).List(t.Context(), rolloutObject(t))
		if d := cmp.Diff([]string{"abort", "promote-full", "resume"}, names(got)); d != "" || err != nil {
			t.Error(d, err)
		}
	})
	t.Run("ACT-02 with mergeBuiltinActions the bundled ones are offered, too", func(t *testing.T) {
		t.Parallel()
		got, err := action.New(set(`return {mine = {}, abort = {disabled = true}}`, nil, true)).List(t.Context(), rolloutObject(t))
		all := names(got)
		if err != nil || !slices.Contains(all, "mine") || !slices.Contains(all, "retry(disabled)") && !slices.Contains(all, "retry") || !slices.Contains(all, "abort(disabled)") {
			t.Error(all, err)
		}
	})
	t.Run("ACT-03 actions have names, icons, parameters and are disabled", func(t *testing.T) {
		t.Parallel()
		got, err := action.New(set(`return {one = {disabled = true, iconClass = "fa fa-x", displayName = "One", params = {{name = "n", type = "number", default = 3}}}, two = {}}`, nil, false)).
			List(t.Context(), rolloutObject(t))
		want := []action.Action{
			{Name: "one", DisplayName: "One", Icon: "fa fa-x", Disabled: true, Params: []action.Param{{Name: "n", Type: "number", Default: "3"}}}, {Name: "two"},
		}
		if d := cmp.Diff(want, got); d != "" || err != nil {
			t.Error(d, err)
		}
	})
	t.Run("ACT-04 an action returns the changed object", func(t *testing.T) {
		t.Parallel()
		source := rolloutObject(t)
		got, err := action.New(set(discovery, guide, false)).Run(t.Context(), source, "resume", nil)
		if err != nil || len(got) != 1 || got[0].Create {
			t.Fatal(got, err)
		}
		body, status := action.Patch(source, got[0].Object)
		if d := cmp.Diff(map[string]any{"status": map[string]any{"pauseConditions": nil}}, status); d != "" || body != nil {
			t.Error(d, body)
		}
	})
	t.Run("ACT-04 an action without a user's script uses the bundled one", func(t *testing.T) {
		t.Parallel()
		if got, err := action.New(set(discovery, guide, false)).Run(t.Context(), rolloutObject(t), "abort", nil); err != nil || len(got) != 1 {
			t.Error(got, err)
		}
	})
	t.Run("ACT-04 parameters have defaults and reach the script", func(t *testing.T) {
		t.Parallel()
		a := action.New(set(`return {scale = {params = {{name = "n", default = "2"}}}}`, map[string]string{"scale": `obj.spec.replicas = tonumber(actionParams.n) return obj`}, false))
		for given, want := range map[string]int64{"": 2, "7": 7} {
			params := map[string]string{"n": given}
			if given == "" {
				params = nil
			}
			source := rolloutObject(t)
			got, err := a.Run(t.Context(), source, "scale", params)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := action.Patch(source, got[0].Object)
			if d := cmp.Diff(map[string]any{"spec": map[string]any{"replicas": want}}, body); d != "" {
				t.Error(d)
			}
		}
		if _, err := a.Run(t.Context(), rolloutObject(t), "scale", map[string]string{"other": "1"}); fault.KindOf(err) != fault.Invalid {
			t.Errorf("a parameter that there is none of: %v", err)
		}
	})
	for _, c := range []struct {
		name, run, script string
		kind              fault.Kind
		want              string
	}{
		{"ACT-03 an action that is not offered is refused", "nothing", ``, fault.Missing, "offers no action"},
		{"ACT-03 an action that is disabled is refused", "off", ``, fault.Conflict, "cannot be run as it is now"},
		{"ACT-03 an action without a script is refused", "bare", ``, fault.Missing, "no script"},
		{"ACT-04 a script that fails is refused", "act", `error("not so", 0)`, fault.Invalid, "not so"},
		{"SEC-B9 a script that loops is refused", "act", `while true do end`, fault.Exceeded, "stopped after"},
		{"ACT-04 a text is no change", "act", `return "x"`, fault.Invalid, "neither an object nor a list"},
		{"ACT-04 nothing is no change", "act", ``, fault.Invalid, "neither an object nor a list"},
		{"ACT-04 another object must not be changed", "act", `obj.metadata.name = "other" return obj`, fault.Invalid, "may change only"},
		{"ACT-04 another namespace must not be changed", "act", `obj.metadata.namespace = "other" return obj`, fault.Invalid, "may change only"},
		{"ACT-04 another kind must not be changed", "act", `obj.kind = "Secret" return obj`, fault.Invalid, "may change only"},
		{"ACT-04 another object in a list must not be changed", "act", `obj.metadata.name = "other" return {{operation = "patch", resource = obj}}`, fault.Invalid, "may change only"},
		{"ACT-04 another operation is refused", "act", `return {{operation = "delete", resource = obj}}`, fault.Invalid, `"delete"`},
		{"ACT-04 a change without an object is refused", "act", `return {{operation = "create"}}`, fault.Invalid, "no resource"},
		{"ACT-04 a new object without a name is refused", "act", `return {{operation = "create", resource = {apiVersion = "v1", kind = "ConfigMap"}}}`, fault.Invalid, "without apiVersion, kind or name"},
		{"ACT-04 too many changes are refused", "act", `local out = {} for i = 1, 51 do out[i] = {operation = "patch", resource = obj} end return out`, fault.Exceeded, "51 changes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a := action.New(set(`return {act = {}, off = {disabled = true}, bare = {}}`, map[string]string{"act": c.script, "off": "return obj"}, false))
			got, err := a.Run(t.Context(), rolloutObject(t), c.run, nil)
			if fault.KindOf(err) != c.kind || !strings.Contains(fault.Sentence(err), c.want) {
				t.Errorf("%v, %v; want %s, %q", got, err, c.kind, c.want)
			}
		})
	}
	t.Run("ACT-04 a new object is in the namespace of its source, without fields that a server sets", func(t *testing.T) {
		t.Parallel()
		a := action.New(set(`return {act = {}}`, map[string]string{"act": `return {{operation = "create", resource = {apiVersion = "v1", kind = "ConfigMap", metadata = {name = "x", uid = "u", resourceVersion = "3"}, data = {}}}}`}, false))
		got, err := a.Run(t.Context(), rolloutObject(t), "act", nil)
		if err != nil || len(got) != 1 || !got[0].Create {
			t.Fatal(got, err)
		}
		want := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "x", "namespace": "n"}, "data": map[string]any{}}
		if d := cmp.Diff(want, got[0].Object); d != "" {
			t.Error(d)
		}
	})
	t.Run("ACT-03 the error of a discovery script is reported", func(t *testing.T) {
		t.Parallel()
		for _, script := range []string{`return 3`, `error("x")`, `no lua`} {
			if _, err := action.New(set(script, nil, false)).List(t.Context(), rolloutObject(t)); fault.KindOf(err) != fault.Invalid {
				t.Errorf("%s: %v", script, err)
			}
		}
	})
	t.Run("ACT-03 a kind without actions offers none", func(t *testing.T) {
		t.Parallel()
		got, err := action.New(nil).List(t.Context(), object(t, []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"}}`)).Object)
		if err != nil || len(got) != 0 {
			t.Error(got, err)
		}
	})
}

func TestPatch(t *testing.T) {
	t.Parallel()
	live := object(t, []byte(`{"a":1,"b":{"c":[1,2],"d":{},"e":null},"gone":{"x":1},"metadata":{"name":"n","resourceVersion":"5","annotations":{"k":"v"}},"status":{"p":1}}`))
	want := object(t, []byte(`{"a":2,"b":{"c":[1],"d":{}},"new":{"y":[]},"metadata":{"name":"n","resourceVersion":"6","uid":"z","annotations":{"k":"v","l":"w"}},"status":{"p":1,"q":null}}`))
	body, status := action.Patch(live.Object, want.Object)
	expect := map[string]any{
		"a": int64(2), "b": map[string]any{"c": []any{int64(1)}}, "gone": nil, "new": map[string]any{"y": []any{}},
		"metadata": map[string]any{"annotations": map[string]any{"l": "w"}},
	}
	if d := cmp.Diff(expect, body); d != "" || status != nil {
		t.Error(d, status)
	}
	if body, status := action.Patch(live.Object, live.Object); body != nil || status != nil {
		t.Errorf("the same object gives the patch %v, %v", body, status)
	}
}
