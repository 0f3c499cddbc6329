package api_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"

	"github.com/capstan-cd/capstan/hub"
)

// publicKey makes a key and returns its id, its public and its private part.
func publicKey(t *testing.T, name string) (id, public, private string) {
	t.Helper()
	e, err := openpgp.NewEntity(name, "", "key@example.com", nil)
	if err != nil {
		t.Fatal(err)
	}
	text := func(kind string, write func(*bytes.Buffer) error) string {
		var raw, out bytes.Buffer
		if err := write(&raw); err != nil {
			t.Fatal(err)
		}
		w, err := armor.Encode(&out, kind, nil)
		if err == nil {
			_, err = w.Write(raw.Bytes())
		}
		if err == nil {
			err = w.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	public = text(openpgp.PublicKeyType, func(b *bytes.Buffer) error { return e.Serialize(b) })
	private = text(openpgp.PrivateKeyType, func(b *bytes.Buffer) error { return e.SerializePrivate(b, nil) })
	return fmt.Sprintf("%016X", e.PrimaryKey.KeyId), public, private
}

func TestPublicKeys(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin, reader, stranger := w.Admin("acme"), w.User("acme", "reader", hub.RoleReadOnly), w.Admin("other")
	id, public, private := publicKey(t, "Release")
	other, otherPublic, _ := publicKey(t, "Other")
	type list struct {
		Items []struct{ KeyID, Fingerprint, Owner, SubType, KeyData string }
	}
	t.Run("CRED-19 keys are added, listed, shown and deleted", func(t *testing.T) {
		var added struct {
			Created []struct{ KeyID string }
			Skipped []string
		}
		w.call(admin, "POST", "/api/v1/gpgkeys", map[string]any{"keyData": public + "\n" + otherPublic}).ok(200).into(&added)
		w.call(admin, "POST", "/api/v1/gpgkeys", map[string]any{"keyData": public}).ok(200).into(&added)
		if len(added.Skipped) != 1 || added.Skipped[0] != id {
			t.Errorf("%+v", added)
		}
		var all list
		w.call(reader, "GET", "/api/v1/gpgkeys", nil).ok(200).into(&all)
		if len(all.Items) != 2 || all.Items[0].Owner == "" || len(all.Items[0].Fingerprint) != 40 || all.Items[0].SubType == "" {
			t.Errorf("%+v", all)
		}
		var one struct{ KeyID, Owner string }
		w.call(reader, "GET", "/api/v1/gpgkeys/"+strings.ToLower(id), nil).ok(200).into(&one)
		if one.KeyID != id || one.Owner != "Release <key@example.com>" {
			t.Errorf("%+v", one)
		}
		w.call(admin, "DELETE", "/api/v1/gpgkeys/"+other, nil).ok(204)
		w.call(admin, "DELETE", "/api/v1/gpgkeys/"+other, nil).fails(404)
	})
	t.Run("CRED-19 another tenant sees none of them", func(t *testing.T) {
		var all list
		w.call(stranger, "GET", "/api/v1/gpgkeys", nil).ok(200).into(&all)
		if len(all.Items) != 0 {
			t.Errorf("%+v", all)
		}
		w.call(stranger, "GET", "/api/v1/gpgkeys/"+id, nil).fails(404)
	})
	t.Run("CRED-19 a reader changes nothing", func(t *testing.T) {
		w.call(reader, "POST", "/api/v1/gpgkeys", map[string]any{"keyData": otherPublic}).fails(403)
		w.call(reader, "DELETE", "/api/v1/gpgkeys/"+id, nil).fails(403)
	})
	t.Run("CRED-19 a private key is refused, and nothing of it is said again", func(t *testing.T) {
		why := w.call(admin, "POST", "/api/v1/gpgkeys", map[string]any{"keyData": private}).fails(400)
		if !strings.Contains(why.Message, "private key") || why.Fix == "" || strings.Contains(fmt.Sprint(why), strings.Split(private, "\n")[3]) {
			t.Errorf("%+v", why)
		}
		w.call(admin, "POST", "/api/v1/gpgkeys", map[string]any{"keyData": "nonsense"}).fails(400)
	})
	t.Run("CRED-19 the ConfigMap declares them, each under its own id", func(t *testing.T) {
		var applied struct {
			Failed  int
			Results []struct{ Error struct{ Message string } }
		}
		text := func(name string) string {
			return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: argocd-gpg-keys-cm, namespace: argocd}\ndata:\n  " + name + ": |\n    " + strings.ReplaceAll(otherPublic, "\n", "\n    ") + "\n"
		}
		w.call(admin, "POST", "/api/v1/apply", text(id)).ok(200).into(&applied)
		if applied.Failed != 1 || !strings.Contains(applied.Results[0].Error.Message, other) {
			t.Errorf("%+v", applied)
		}
		w.call(admin, "POST", "/api/v1/apply", text(other)).ok(200).into(&applied)
		var one struct{ KeyID string }
		w.call(admin, "GET", "/api/v1/gpgkeys/"+other, nil).ok(200).into(&one)
		if one.KeyID != other {
			t.Errorf("%+v", one)
		}
	})
}

func TestSignaturePoliciesOfProjects(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin := w.Admin("acme")
	policies := func(p ...map[string]any) map[string]any {
		return map[string]any{"sourceIntegrity": map[string]any{"git": map[string]any{"policies": p}}}
	}
	repos := []any{map[string]any{"url": "*"}}
	t.Run("PROJ-16 policies that would verify less than they seem to are refused", func(t *testing.T) {
		for name, spec := range map[string]map[string]any{
			"no repository":   policies(map[string]any{"gpg": map[string]any{"mode": "head", "keys": []any{"4AEE18F83AFDEB23"}}}),
			"nothing":         policies(map[string]any{"repos": repos}),
			"the mode":        policies(map[string]any{"repos": repos, "gpg": map[string]any{"mode": "lax", "keys": []any{"4AEE18F83AFDEB23"}}}),
			"no key":          policies(map[string]any{"repos": repos, "gpg": map[string]any{"mode": "head"}}),
			"no id of a key":  policies(map[string]any{"repos": repos, "gpg": map[string]any{"mode": "strict", "keys": []any{"release@example.com"}}}),
			"signatureKeys":   {"signatureKeys": []any{map[string]any{"keyID": "short"}}},
			"sourceIntegrity": {"signatureKeys": []any{map[string]any{"keyID": "4AEE18F83AFDEB23"}}, "sourceIntegrity": map[string]any{}},
		} {
			if why := w.call(admin, "POST", "/api/v1/projects", project("p", open(spec))).fails(400); !strings.Contains(why.Message, name) {
				t.Errorf("%s: %+v", name, why)
			}
		}
	})
	t.Run("PROJ-16 PROJ-15 both forms are stored, without a warning, and come back", func(t *testing.T) {
		for name, spec := range map[string]map[string]any{
			"whole": policies(map[string]any{"repos": repos, "gpg": map[string]any{"mode": "strict", "keys": []any{"4AEE18F83AFDEB23"}}}),
			"older": {"signatureKeys": []any{map[string]any{"keyID": "4AEE18F83AFDEB23"}}},
		} {
			var made struct {
				Spec     map[string]any
				Warnings []string
			}
			w.call(admin, "POST", "/api/v1/projects", project(name, open(spec))).ok(201).into(&made)
			for key, want := range spec {
				if fmt.Sprint(made.Spec[key]) != fmt.Sprint(want) || len(made.Warnings) > 0 {
					t.Errorf("%s: %+v", name, made)
				}
			}
		}
	})
}
