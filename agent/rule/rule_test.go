package rule_test

import (
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/capstan-cd/capstan/agent/health"
	"github.com/capstan-cd/capstan/agent/rule"
	"github.com/capstan-cd/capstan/shared/manifest"
)

func parse(t testing.TB, text string) *manifest.Object {
	t.Helper()
	o, err := manifest.FromCanonical([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// only returns one script for one kind.
func only(group, kind, source string, open bool) func(string, string) (rule.Script, bool) {
	return func(g, k string) (rule.Script, bool) {
		return rule.Script{Lua: source, OpenLibs: open}, g == group && k == kind
	}
}

const widget = `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w","namespace":"n","uid":"u1","managedFields":[{"manager":"x"}]},"spec":{"n":3},"status":{"phase":"Ready"}}`

func TestUsersRules(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, script string
		open         bool
		want         string // "State: part of the message"; none: no health
	}{
		{"HLT-08 a user's rule judges a kind without another", `return {status = "Healthy", message = obj.status.phase}`, false, "Healthy: Ready"},
		{"HLT-09 the object is the global obj, integers and all", `return {status = "Progressing", message = obj.metadata.name .. obj.spec.n}`, false, "Progressing: w3"},
		{"HLT-09 a status that there is none of is Unknown", `return {status = "Fine", message = "yes"}`, false, `Unknown: returned the status "Fine"`},
		{"HLT-09 a table without a status is Unknown", `return {message = "yes"}`, false, "Unknown: no status"},
		{"HLT-09 no table is Unknown", `return "Healthy"`, false, "Unknown: no table"},
		{"HLT-05 nothing returned says nothing", `local x = 1`, false, "none"},
		{"HLT-05 an empty table says nothing", `return {}`, false, "none"},
		{"HLT-09 a script that fails makes the object Unknown with its error", "local x = nil\nreturn x.y", false, "Unknown: line 2: attempt to index"},
		{"HLT-09 a script that is no Lua makes the object Unknown", `if then`, false, "Unknown: not valid Lua"},
		{"HLT-09 a script that loops makes the object Unknown", `while true do end`, false, "Unknown: stopped after"},
		{"HLT-09 a script that allocates makes the object Unknown", `local s = "x" while true do s = s .. s end`, false, "Unknown: text of more than"},
		{"HLT-09 standard libraries only if they are opened", `return {status = "Healthy", message = string.upper("x")}`, false, "Unknown: attempt to index"},
		{"HLT-09 standard libraries if they are opened", `return {status = "Healthy", message = string.upper("x")}`, true, "Healthy: X"},
		{"HLT-09 time and date always", `local os = require("os") if os.time() > 0 and os.date("!%Y") ~= "" then return {status = "Healthy"} end`, false, "Healthy"},
		{"HLT-09 nothing of the system", `os.execute("true")`, true, "Unknown: call"},
		{"HLT-09 managed fields are not shown", `return {status = "Healthy", message = tostring(obj.metadata.managedFields)}`, false, "Healthy: nil"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := parse(t, widget)
			got, ok := rule.New(only("example.com", "Widget", c.script, c.open)).Of(t.Context(), o)
			state, message, _ := strings.Cut(c.want, ": ")
			if state == "none" {
				if ok {
					t.Errorf("Of() = %+v, want none", got)
				}
				return
			}
			if !ok || got.State != state || !strings.Contains(got.Message, message) {
				t.Errorf("Of() = %+v, %v; want %s", got, ok, c.want)
			}
			if before, _ := manifest.Canonical(parse(t, widget)); true {
				if after, _ := manifest.Canonical(o); string(before) != string(after) {
					t.Error("the object was changed")
				}
			}
		})
	}
}

func TestSecretsStayHidden(t *testing.T) {
	t.Parallel()
	o := parse(t, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s","annotations":{"kubectl.kubernetes.io/last-applied-configuration":"aHVudGVyMg=="}},"data":{"k":"aHVudGVyMg=="}}`)
	r := rule.New(only("", "Secret", `local all = {} for k, v in pairs(obj.data) do all[#all + 1] = k .. "=" .. v end
		for k, v in pairs(obj.metadata.annotations or {}) do all[#all + 1] = v end return {status = "Healthy", message = table.concat(all, ",")}`, false))
	if got, ok := r.Of(t.Context(), o); !ok || got.Message != "k=" {
		t.Errorf("SEC a rule sees of a Secret %+v", got)
	}
}

func TestOrderOfRules(t *testing.T) {
	t.Parallel()
	certificate := `{"apiVersion":"cert-manager.io/v1","kind":"Certificate","metadata":{"name":"c"},"status":{"conditions":[{"type":"Ready","status":"False","message":"no issuer"}]}}`
	deployment := `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"},"spec":{"paused":true}}`
	mine := `return {status = "Suspended", message = "mine"}`
	for _, c := range []struct {
		name, object string
		own          func(string, string) (rule.Script, bool)
		want         string
	}{
		{"HLT-07 a user's rule wins over a bundled one", certificate, only("cert-manager.io", "Certificate", mine, false), "Suspended"},
		{"HLT-07 a user's rule wins over one in Go", deployment, only("apps", "Deployment", mine, false), "Suspended"},
		{"HLT-07 a bundled rule holds where no user has one", certificate, only("other.io", "Certificate", mine, false), "Degraded"},
		{"HLT-07 a bundled rule with a star holds where none has the name", `{"apiVersion":"x.aws.upbound.io/v1","kind":"Any","metadata":{"name":"d"},"status":{"conditions":[{"type":"Ready","status":"True"},{"type":"Synced","status":"True"}]}}`, nil, "Healthy"},
		{"HLT-07 a rule in Go holds where nothing else does", deployment, nil, "Suspended"},
		{"HLT-05 a kind without any rule has no health", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"d"}}`, nil, ""},
		{"HLT-06 an object that is being deleted is Progressing whatever its rule says", strings.Replace(widget, `"uid"`, `"deletionTimestamp":"2026-01-01T00:00:00Z","uid"`, 1), only("example.com", "Widget", mine, false), "Progressing"},
		{"HLT-25 no rule is bundled for child applications", `{"apiVersion":"argoproj.io/v1alpha1","kind":"Application","metadata":{"name":"a"},"status":{"health":{"status":"Degraded"}}}`, nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got, _ := rule.New(c.own).Of(t.Context(), parse(t, c.object)); got.State != c.want {
				t.Errorf("Of() = %+v, want %q", got, c.want)
			}
		})
	}
	t.Run("HLT-25 a user's rule computes the health of child applications", func(t *testing.T) {
		t.Parallel()
		r := rule.New(only("argoproj.io", "Application", `hs = {} hs.status = "Progressing" hs.message = "" if obj.status ~= nil then if obj.status.health ~= nil then hs.status = obj.status.health.status
			if obj.status.health.message ~= nil then hs.message = obj.status.health.message end end end return hs`, false))
		for object, want := range map[string]string{
			`{"apiVersion":"argoproj.io/v1alpha1","kind":"Application","metadata":{"name":"a"},"status":{"health":{"status":"Degraded","message":"m"}}}`: "Degraded",
			`{"apiVersion":"argoproj.io/v1alpha1","kind":"Application","metadata":{"name":"a"}}`:                                                         "Progressing",
		} {
			if got, ok := r.Of(t.Context(), parse(t, object)); !ok || got.State != want {
				t.Errorf("Of() = %+v, want %s", got, want)
			}
		}
	})
}

func TestRulesFollowTheSettings(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	script := `return {status = "Healthy"}`
	r := rule.New(func(string, string) (rule.Script, bool) {
		mu.Lock()
		defer mu.Unlock()
		return rule.Script{Lua: script}, script != ""
	})
	state := func() string { s, _ := r.Of(t.Context(), parse(t, widget)); return s.State }
	set := func(s string) { mu.Lock(); script = s; mu.Unlock() }
	if got := state(); got != "Healthy" {
		t.Fatal(got)
	}
	t.Run("HLT-08 a changed script applies at once", func(t *testing.T) {
		set(`while true do end`)
		if got := state(); got != "Unknown" {
			t.Error(got)
		}
		set(`return {status = "Degraded"}`)
		if got := state(); got != "Degraded" {
			t.Errorf("%s, although the script that passed its limit is gone", got)
		}
		set("")
		if got := state(); got != "" {
			t.Error(got)
		}
	})
	t.Run("SEC-B9 a script that exceeded its limit is not run again at once for the same object", func(t *testing.T) {
		set(`if obj.metadata.uid == "u1" then while true do end end return {status = "Healthy"}`)
		for range 2000 { // each would take a good part of a second
			if got := state(); got != "Unknown" {
				t.Fatal(got)
			}
		}
		other := parse(t, strings.Replace(widget, `"u1"`, `"u2"`, 1))
		if s, _ := r.Of(t.Context(), other); s.State != "Healthy" {
			t.Errorf("another object of the kind is %+v", s)
		}
	})
}

// TestGuide runs the rule of the guide's section on custom health.
func TestGuide(t *testing.T) {
	t.Parallel()
	script, err := os.ReadFile("testdata/certificate.lua")
	if err != nil {
		t.Fatal(err)
	}
	r := rule.New(only("cert-manager.io", "Certificate", string(script), false))
	for status, want := range map[string]health.Status{
		`{}`: {State: "Progressing", Message: "Waiting for certificate"},
		`{"conditions":[{"type":"Issuing","status":"True"}]}`:                {State: "Progressing", Message: "Waiting for certificate"},
		`{"conditions":[{"type":"Ready","status":"True"}]}`:                  {State: "Healthy", Message: "Certificate is ready"},
		`{"conditions":[{"type":"Ready","status":"False","message":"why"}]}`: {State: "Degraded", Message: "why"},
	} {
		o := parse(t, `{"apiVersion":"cert-manager.io/v1","kind":"Certificate","metadata":{"name":"c"},"status":`+status+`}`)
		if got, ok := r.Of(t.Context(), o); !ok || got != want {
			t.Errorf("%s: %+v, want %+v", status, got, want)
		}
	}
}

func BenchmarkBundledRule(b *testing.B) {
	r := rule.New(nil)
	o := parse(b, `{"apiVersion":"cert-manager.io/v1","kind":"Certificate","metadata":{"name":"c"},"status":{"conditions":[{"type":"Ready","status":"True"}]}}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := r.Of(b.Context(), o); !ok {
			b.Fatal("no health")
		}
	}
}
