package secrets

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/manifest"
)

func TestParts(t *testing.T) {
	t.Parallel()
	ref := func(path, key string, more ...string) part {
		return part{ref: &reference{path: path, key: key, modifiers: more}}
	}
	versioned := part{ref: &reference{path: "a/b", key: "k", version: 3}}
	for text, c := range map[string]struct {
		form form
		want []part
		says string
	}{
		"<path:a/b#k>":                               {form{}, []part{ref("a/b", "k")}, ""},
		"x<path:a/b#k>y<path:c/d#e>":                 {form{}, []part{{literal: "x"}, ref("a/b", "k"), {literal: "y"}, ref("c/d", "e")}, ""},
		"<path:a/b#k#3>":                             {form{}, []part{versioned}, ""},
		"<path:a/b#k | base64decode | base64encode>": {form{}, []part{ref("a/b", "k", "base64decode", "base64encode")}, ""},
		"<path:a/b#k|jsonPath {.a}>":                 {form{}, []part{ref("a/b", "k", "jsonPath {.a}")}, ""},
		"<k>":                                        {form{}, []part{{literal: "<k>"}}, ""},
		"<k> and <other | sha256sum>":                {form{short: shortForm, path: "s"}, []part{ref("s", "k"), {literal: " and "}, ref("s", "other", "sha256sum")}, ""},
		"<path:v:a/b#k>":                             {form{}, []part{{ref: &reference{store: "v", path: "a/b", key: "k"}}}, ""},
		"<path:a/b>":                                 {form{}, nil, "malformed"},
		"<path:a/b#k#x>":                             {form{}, nil, "whole number"},
		"<path:a/b#k":                                {form{}, nil, "malformed"},
		"<path:a/b#k <path:a/b#k>":                   {form{}, nil, "malformed"},
		"<path:a/b#k | shell>":                       {form{}, nil, "not supported"},
		"<path:a/b#k | jsonPath>":                    {form{}, nil, "needs a path"},
		"<path:a/b#k | indent x>":                    {form{}, nil, "needs a number"},
		"<path:a/b#k | base64encode 3>":              {form{}, nil, "no argument"},
	} {
		got, err := c.form.parts(text)
		if c.says != "" {
			if err == nil || !strings.Contains(fault.Sentence(err), c.says) {
				t.Errorf("%s: %v, want %q", text, err, c.says)
			}
			continue
		}
		if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(part{}, reference{})); diff != "" || err != nil {
			t.Errorf("%s: %v\n%s", text, err, diff)
		}
	}
}

func TestModify(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		modifiers []string
		in, want  any
	}{
		"encode":            {[]string{"base64encode"}, "a", "YQ=="},
		"decode":            {[]string{"base64decode"}, "YQ\n==", "a"},
		"of a number":       {[]string{"base64encode"}, json.Number("12"), "MTI="},
		"path in text":      {[]string{"jsonPath {.a.b}"}, `{"a": {"b": "c"}}`, "c"},
		"path in a value":   {[]string{"jsonPath {.a}"}, map[string]any{"a": "c"}, "c"},
		"indent":            {[]string{"indent 2"}, "a\nb", "a\n  b"},
		"sum":               {[]string{"sha256sum"}, "a", "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"},
		"one after another": {[]string{"base64decode", "jsonPath {.a}", "base64encode"}, "eyJhIjoiYiJ9", "Yg=="},
	} {
		got, err := reference{modifiers: c.modifiers}.modify(c.in)
		if err != nil || got != c.want {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	_, err := reference{path: "p", key: "k", modifiers: []string{"base64decode"}}.modify("not base64, hunter2")
	if err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("an error with a value: %v", err)
	}
}

func TestPermits(t *testing.T) {
	t.Parallel()
	rules := []Permit{{Paths: []string{"secret/data/{namespace}/*"}}, {Paths: []string{"kv/**"}, Namespaces: []string{"team-*"}, Projects: []string{"pay"}}}
	for path, c := range map[string]struct {
		owner Owner
		want  bool
	}{
		"secret/data/shop/db":     {Owner{"shop", "x"}, true},
		"secret/data/shop/a/b":    {Owner{"shop", "x"}, false},
		"secret/data/other/db":    {Owner{"shop", "x"}, false},
		"secret/data//db":         {Owner{"", "x"}, false},
		"secret/data/any/db":      {Owner{"*", "x"}, false},
		"secret/data/shop/../a/b": {Owner{"shop", "x"}, false},
		"kv/a/b":                  {Owner{"team-a", "pay"}, true},
		"kv/a":                    {Owner{"team-a", "other"}, false},
		"kv/b":                    {Owner{"", "pay"}, false},
	} {
		if got := permits(rules, path, c.owner); got != c.want {
			t.Errorf("%s for %+v: %t", path, c.owner, got)
		}
	}
	for _, bad := range []string{"", "/a", "a/", "a//b", "a/./b", "a/../b", "a/%2e%2e/b", "a?b", "a#b", `a\b`, "a/\x00", "a/ b", strings.Repeat("a", 2000)} {
		if checkPath(bad) == nil {
			t.Errorf("the path %q is accepted", bad)
		}
	}
	for _, bad := range []string{"sys/seal", "auth/token/lookup", "SYS/seal", "identity/entity", "cubbyhole/x", "secret"} {
		if checkVaultPath(bad) == nil {
			t.Errorf("the path %q of Vault is accepted", bad)
		}
	}
}

func TestPolicy(t *testing.T) {
	t.Parallel()
	vault := func(change func(*Vault)) Policy {
		v := Vault{Address: "https://vault.test:8200", Role: "r", Permit: []Permit{{Paths: []string{"a/*"}}}}
		change(&v)
		return Policy{Vault: []Vault{v}}
	}
	for name, p := range map[string]Policy{
		"without TLS":           vault(func(v *Vault) { v.Address = "http://vault.test:8200" }),
		"no address":            vault(func(v *Vault) { v.Address = "" }),
		"a path in the address": vault(func(v *Vault) { v.Address += "/v1/sys" }),
		"a password":            vault(func(v *Vault) { v.Address = "https://a:b@vault.test" }),
		"no role":               vault(func(v *Vault) { v.Role = "" }),
		"another engine":        vault(func(v *Vault) { v.KVVersion = 3 }),
		"the cluster's name":    vault(func(v *Vault) { v.Name = "kubernetes" }),
		"a mount that goes up":  vault(func(v *Vault) { v.Mount = "../sys" }),
		"no paths":              vault(func(v *Vault) { v.Permit = []Permit{{}} }),
		"a bad glob":            vault(func(v *Vault) { v.Permit = []Permit{{Paths: []string{"a/[b"}}} }),
		"two of one name":       {Vault: append(vault(func(*Vault) {}).Vault, vault(func(*Vault) {}).Vault...)},
		"too often":             {Refresh: Duration(1)},
		"no namespace":          {Kubernetes: Kubernetes{Permit: []Permit{{Paths: []string{"name"}}}}},
		"no Secret":             {SOPS: SOPS{Age: []AgeKey{{}}}},
	} {
		if err := p.Validate(); fault.KindOf(err) != fault.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, address := range []string{"https://vault.test", "http://127.0.0.1:8200"} {
		if err := vault(func(v *Vault) { v.Address = address }).Validate(); err != nil {
			t.Errorf("%s: %v", address, err)
		}
	}
}

func TestValues(t *testing.T) {
	t.Parallel()
	key := manifest.Key{Kind: "ConfigMap", Namespace: "shop", Name: "postgres-config"}
	var v Values
	v.Set(key, []Leaf{
		{Path: []string{"data", "p"}, Value: "correct horse"}, {Path: []string{"data", "s"}, Value: "x1"},
		{Path: []string{"data", "n"}, Value: "postgres"}, {Path: []string{"spec", "port"}, Value: int64(54321)},
	})
	for text, want := range map[string]string{
		"it is correct horse!": "it is (secret)!", "q=correct+horse": "q=(secret)", "in Y29ycmVjdCBob3JzZQ==": "in (secret)==",
		"x1 is short": "x1 is short", "the postgres-config": "the postgres-config", "port 54321": "port 54321", "": "",
	} {
		if got := v.Text(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
	o := &manifest.Object{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "x1", "labels": map[string]any{"a": "x1"}},
		"spec": map[string]any{"a": "x1", "b": "correct horse in text", "c": "fine", "list": []any{map[string]any{"name": "e", "value": "other"}}},
	}}
	got := v.Mask(o, [][]string{{"spec", "list", "name=e", "value"}, {"spec", "none"}}, []byte("k"))
	spec := got.Object["spec"].(map[string]any)
	for _, field := range []string{"a", "b"} {
		if !strings.HasPrefix(spec[field].(string), "hmac:") {
			t.Errorf("%s is %v", field, spec[field])
		}
	}
	if spec["c"] != "fine" || got.GetName() != "x1" || !strings.HasPrefix(got.GetLabels()["a"], "hmac:") ||
		!strings.HasPrefix(spec["list"].([]any)[0].(map[string]any)["value"].(string), "hmac:") {
		t.Errorf("masked as %v", got.Object)
	}
	if o.Object["spec"].(map[string]any)["a"] != "x1" {
		t.Error("the object itself was changed")
	}
	v.Set(key, []Leaf{{Path: []string{"data", "p"}, Value: "new password"}})
	if v.Text("correct horse new password") != "(secret) (secret)" {
		t.Error("an earlier value is shown after a rotation")
	}
}

func TestResolveLeavesOthersAlone(t *testing.T) {
	t.Parallel()
	r, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	o := &manifest.Object{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"a": "<b>text</b>"}}}
	got, err := r.Resolve(context.Background(), Request{Object: o})
	if err != nil || len(got.Leaves) != 0 || got.Object != o {
		t.Errorf("%v, %v", got, err)
	}
	o.Object["data"] = map[string]any{"a": "<path:a/b#c>"}
	if _, err = r.Resolve(context.Background(), Request{Object: o}); fault.KindOf(err) != fault.Denied {
		t.Errorf("without a policy: %v", err)
	}
}
