package sops_test

import (
	"strings"
	"testing"

	"filippo.io/age"
	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/agent/secrets/sops"
	"github.com/capstan-cd/capstan/integration/rigs/sopsfile"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// plainSecret has its keys in no alphabetical order, as people write them.
const plainSecret = `apiVersion: v1
kind: Secret
metadata:
  name: shop
  namespace: shop
type: Opaque
stringData:
  user: admin
  password: correct horse
  empty: ""
data:
  raw: aGVsbG8=
`

func newKey(t *testing.T) *age.X25519Identity {
	t.Helper()
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func parse(t *testing.T, name, text string) *manifest.Object {
	t.Helper()
	all, err := manifest.Parse(name, []byte(text), manifest.Limits{})
	if err != nil || len(all) != 1 {
		t.Fatalf("%d objects, %v\n%s", len(all), err, text)
	}
	return all[0]
}

// normal is what becomes of an object on its way through the hub.
func normal(t *testing.T, o *manifest.Object) *manifest.Object {
	t.Helper()
	if err := manifest.Normalize(o); err != nil {
		t.Fatal(err)
	}
	text, err := manifest.Canonical(o)
	if err != nil {
		t.Fatal(err)
	}
	out, err := manifest.FromCanonical(text)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestDecrypt(t *testing.T) {
	t.Parallel()
	id := newKey(t)
	e := sopsfile.Encryptor{Recipients: []age.Recipient{id.Recipient()}}
	t.Run("an encrypted Secret becomes the object that was encrypted, and its code fits although the hub sorts its keys", func(t *testing.T) {
		o := normal(t, parse(t, "a.yaml", e.Encrypt(t, plainSecret)))
		got, leaves, err := sops.Decrypt(o, []age.Identity{id}, sops.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(parse(t, "b.yaml", plainSecret).Object, got.Object); diff != "" {
			t.Error(diff)
		}
		if len(leaves) != 3 { // the empty text is not encrypted
			t.Errorf("%d leaves", len(leaves))
		}
		if !manifest.Encrypted(o) {
			t.Error("the encrypted object itself was changed")
		}
	})
	t.Run("numbers, truths and lists keep their types", func(t *testing.T) {
		text := "apiVersion: v1\nkind: Thing\nmetadata: {name: a}\ndata: {z: 5, f: 1.5, b: true, list: [x, why, 3], in: {deep: s}}\n"
		got, _, err := sops.Decrypt(normal(t, parse(t, "a.yaml", e.Encrypt(t, text))), []age.Identity{id}, sops.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(parse(t, "b.yaml", text).Object, got.Object); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("another key does not decrypt it, and the error says which is needed", func(t *testing.T) {
		_, _, err := sops.Decrypt(parse(t, "a.yaml", e.Encrypt(t, plainSecret)), []age.Identity{newKey(t)}, sops.Options{})
		if fault.KindOf(err) != fault.Denied {
			t.Error(err)
		}
	})
}

func TestTampering(t *testing.T) {
	t.Parallel()
	id := newKey(t)
	e := sopsfile.Encryptor{Recipients: []age.Recipient{id.Recipient()}}
	only := sopsfile.Encryptor{Recipients: e.Recipients, Only: true}
	for name, c := range map[string]struct {
		from   sopsfile.Encryptor
		change func(o *manifest.Object)
		opts   sops.Options
		says   string // empty: it is accepted
	}{
		"nothing":              {e, func(*manifest.Object) {}, sops.Options{}, ""},
		"another kind":         {e, func(o *manifest.Object) { o.SetKind("ConfigMap") }, sops.Options{}, "was changed after it was encrypted"},
		"another namespace":    {e, func(o *manifest.Object) { o.SetNamespace("evil") }, sops.Options{}, "was changed after it was encrypted"},
		"a label is added":     {e, func(o *manifest.Object) { o.SetLabels(map[string]string{"a": "b"}) }, sops.Options{}, "was changed after it was encrypted"},
		"by Kustomize":         {only, func(o *manifest.Object) { o.SetLabels(map[string]string{"a": "b"}); o.SetNamespace("other") }, sops.Options{}, ""},
		"ignored by the owner": {e, func(o *manifest.Object) { o.SetNamespace("other") }, sops.Options{IgnoreMAC: true}, ""},
		"a value is removed":   {only, func(o *manifest.Object) { delete(o.Object["stringData"].(map[string]any), "user") }, sops.Options{}, "was changed after it was encrypted"},
		"values are exchanged": {only, func(o *manifest.Object) {
			m := o.Object["stringData"].(map[string]any)
			m["user"], m["password"] = m["password"], m["user"]
		}, sops.Options{IgnoreMAC: true}, "moved from another field"},
		"a plain value":     {only, func(o *manifest.Object) { o.Object["stringData"].(map[string]any)["user"] = "root" }, sops.Options{IgnoreMAC: true}, "is not an encrypted value"},
		"a value elsewhere": {only, func(o *manifest.Object) { o.Object["type"] = o.Object["stringData"].(map[string]any)["user"] }, sops.Options{IgnoreMAC: true}, "says that it is not"},
	} {
		t.Run("SEC-C a changed object is refused: "+name, func(t *testing.T) {
			o := parse(t, "a.yaml", c.from.Encrypt(t, plainSecret))
			c.change(o)
			_, _, err := sops.Decrypt(o, []age.Identity{id}, c.opts)
			switch {
			case c.says == "" && err != nil, c.says != "" && (err == nil || !strings.Contains(fault.Sentence(err), c.says)):
				t.Errorf("%v, want %q", err, c.says)
			case err != nil && (strings.Contains(err.Error(), "horse") || strings.Contains(err.Error(), "admin")):
				t.Errorf("the error has a value: %v", err)
			}
		})
	}
}

func TestUnsupported(t *testing.T) {
	t.Parallel()
	id := newKey(t)
	for name, c := range map[string]struct {
		change func(block map[string]any)
		says   string
	}{
		"key groups":     {func(b map[string]any) { b["key_groups"] = []any{map[string]any{}} }, "Shamir"},
		"KMS alone":      {func(b map[string]any) { b["kms"], b["age"] = []any{map[string]any{"arn": "x"}}, nil }, "kms"},
		"comment rules":  {func(b map[string]any) { b["encrypted_comment_regex"] = "x" }, "comment"},
		"no recipient":   {func(b map[string]any) { b["age"] = nil }, "names no age recipient"},
		"a bad time":     {func(b map[string]any) { b["lastmodified"] = "soon" }, "lastmodified"},
		"a bad pattern":  {func(b map[string]any) { b["encrypted_regex"] = "(" }, "regular expression"},
		"a bad data key": {func(b map[string]any) { b["age"] = []any{map[string]any{"enc": "nothing"}} }, "none of the age keys"},
		"another code":   {func(b map[string]any) { b["mac"] = "nothing" }, "message authentication code"},
	} {
		t.Run(name, func(t *testing.T) {
			e := sopsfile.Encryptor{Recipients: []age.Recipient{id.Recipient()}, Block: c.change}
			_, _, err := sops.Decrypt(parse(t, "a.yaml", e.Encrypt(t, plainSecret)), []age.Identity{id}, sops.Options{})
			if err == nil || !strings.Contains(fault.Sentence(err), c.says) {
				t.Errorf("%v, want %q", err, c.says)
			}
		})
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	e := sopsfile.Encryptor{Recipients: []age.Recipient{newKey(t).Recipient()}, Encrypts: func([]string) bool { return true }}
	_, err := manifest.Parse("a.yaml", []byte(e.Encrypt(t, plainSecret)), manifest.Limits{})
	if err == nil || !strings.Contains(fault.Sentence(err), "--encrypted-regex") {
		t.Errorf("a file whose kind is encrypted: %v", err)
	}
}
