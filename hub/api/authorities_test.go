package api_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
)

// caPEM makes the certificate of an authority.
func caPEM(t *testing.T, name string) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	of := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, of, of, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func tlsBody(server, data string, upsert bool) map[string]any {
	return map[string]any{"tls": []map[string]string{{"serverName": server, "data": data}}, "upsert": upsert}
}

func TestTLSCertificates(t *testing.T) {
	t.Parallel()
	const path = "/api/v1/certificates"
	w := newWorld(t)
	admin, other := w.Admin("acme"), w.Admin("bolt")
	reader, keeper := w.User("acme", "reader", hub.RoleReadOnly), w.User("acme", "keeper")
	storetest.In(t, w.DB, w.Tenant("acme"), func(ctx context.Context, tx *store.Tenant) error {
		return tx.SetPolicy(ctx, "p, keeper, certificates, *, *.example.com, allow\n")
	})
	one, two := caPEM(t, "one"), caPEM(t, "two")
	stored := func(secret string) string {
		t.Helper()
		var l struct {
			Items []struct{ ServerName, Type, SubType, Data, Info, Fingerprint, ExpiresAt string }
		}
		w.call(secret, http.MethodGet, path, nil).ok(200).into(&l)
		var out []string
		for _, i := range l.Items {
			if i.Type == "https" {
				if i.Data == "" || i.SubType != "ecdsa" || !strings.HasPrefix(i.Fingerprint, "SHA256:") || i.ExpiresAt == "" {
					t.Errorf("incomplete: %+v", i)
				}
				out = append(out, i.ServerName+" "+i.Info)
			}
		}
		return strings.Join(out, ";")
	}
	t.Run("CRED-18 certificates are stored by server, shown one by one, and never another tenant's", func(t *testing.T) {
		w.call(admin, http.MethodPost, path, tlsBody("Git.Example.com", one+two, false)).ok(200)
		w.call(keeper, http.MethodPost, path, tlsBody("b.example.com", two, false)).ok(200)
		const all = "b.example.com CN=two;git.example.com CN=one;git.example.com CN=two"
		for _, secret := range []string{admin, reader, keeper} {
			if got := stored(secret); got != all {
				t.Errorf("stored are %q", got)
			}
		}
		if got := stored(other); got != "" {
			t.Errorf("ISO-6 another tenant sees %q", got)
		}
	})
	t.Run("CRED-18 the same again changes nothing, others need upsert", func(t *testing.T) {
		w.call(admin, http.MethodPost, path, tlsBody("git.example.com", one+"\n"+two, false)).ok(200)
		if p := w.call(admin, http.MethodPost, path, tlsBody("git.example.com", two, false)).fails(409); !strings.Contains(p.Cause+p.Message+p.Fix, "--upsert") {
			t.Errorf("%+v", p)
		}
		w.call(admin, http.MethodPost, path, tlsBody("git.example.com", two, true)).ok(200)
		if got := stored(admin); got != "b.example.com CN=two;git.example.com CN=two" {
			t.Errorf("stored are %q", got)
		}
	})
	t.Run("CRED-18(refused) what is no certificate names server, entry and cause", func(t *testing.T) {
		const canary = "c2VjcmV0IG1hdGVyaWFs"
		for data, says := range map[string]string{
			canary: "no certificate",
			one + "-----BEGIN PRIVATE KEY-----\n" + canary + "\n-----END PRIVATE KEY-----\n": "entry 2 is a PRIVATE KEY",
		} {
			a := w.call(admin, http.MethodPost, path, tlsBody("c.example.com", data, false))
			p := a.fails(400)
			if text := p.Object + p.Cause + p.Message; !strings.Contains(text, says) || !strings.Contains(text, "c.example.com") || strings.Contains(string(a.body), canary) {
				t.Errorf("%s", a.body)
			}
		}
		w.call(admin, http.MethodPost, path, tlsBody("c.example.com:8443", one, false)).fails(400)
		w.call(admin, http.MethodPost, path, map[string]any{}).fails(400)
		w.call(admin, http.MethodPost, path, map[string]any{"knownHosts": hostKey, "tls": tlsBody("a", one, false)["tls"]}).fails(400)
		w.call(reader, http.MethodPost, path, tlsBody("c.example.com", one, false)).fails(403)
		w.call(keeper, http.MethodPost, path, tlsBody("git.else.test", one, false)).fails(403)
		if got := stored(admin); strings.Contains(got, "c.example") || strings.Contains(w.Log.String(), canary) {
			t.Errorf("stored are %q", got)
		}
	})
	t.Run("CRED-18 the ConfigMap argocd-tls-certs-cm is merged, and refused with key and entry", func(t *testing.T) {
		config := func(server, data string) string {
			return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: argocd-tls-certs-cm, namespace: argocd}\ndata:\n  %s: |\n    %s\n", server, indent(data))
		}
		for _, want := range []string{"configured", "unchanged"} {
			if body := string(w.call(keeper, http.MethodPost, "/api/v1/apply", config("d.example.com", one)).ok(200).body); !strings.Contains(body, `"result":"`+want+`"`) {
				t.Errorf("want %s: %s", want, body)
			}
		}
		body := string(w.call(admin, http.MethodPost, "/api/v1/apply", config("e.example.com", one+two[:len(two)-60])).body)
		if !strings.Contains(body, "e.example.com") || !strings.Contains(body, "entry 2 is cut off") {
			t.Errorf("%s", body)
		}
		if got := stored(admin); !strings.Contains(got, "d.example.com CN=one") || strings.Contains(got, "e.example") {
			t.Errorf("stored are %q", got)
		}
	})
	t.Run("CRED-18 deleted certificates are gone, host keys of the server stay where https alone is asked for", func(t *testing.T) {
		w.call(admin, http.MethodPost, path, map[string]any{"knownHosts": hostKey}).ok(200)
		w.call(other, http.MethodDelete, path+"?serverName=git.example.com", nil).fails(404)
		w.call(reader, http.MethodDelete, path+"?serverName=git.example.com&type=https", nil).fails(403)
		w.call(admin, http.MethodDelete, path+"?serverName=git.example.com&type=https&subType=rsa", nil).fails(400)
		w.call(admin, http.MethodDelete, path+"?serverName=git.example.com&type=https", nil).ok(200)
		w.call(admin, http.MethodDelete, path+"?serverName=git.example.com&type=https", nil).fails(404)
		w.call(keeper, http.MethodDelete, path+"?serverName=b.example.com", nil).ok(200)
		if got := stored(admin); got != "d.example.com CN=one" {
			t.Errorf("stored are %q", got)
		}
		if body := string(w.call(admin, http.MethodGet, path, nil).ok(200).body); !strings.Contains(body, `"serverName":"git.example.com"`) {
			t.Errorf("the host key is gone: %s", body)
		}
		w.call(admin, http.MethodDelete, path+"?serverName=git.example.com", nil).ok(200)
	})
	t.Run("CRED-18 each change is in the audit log under the server's name", func(t *testing.T) {
		body := string(w.call(admin, http.MethodGet, "/api/v1/audit", nil).ok(200).body)
		for _, want := range []string{"https SHA256:", "git.example.com", "d.example.com"} {
			if !strings.Contains(body, want) {
				t.Errorf("no %q", want)
			}
		}
	})
}
