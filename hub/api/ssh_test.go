package api_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/capstan-cd/capstan/hub"
)

func privateKey(t *testing.T) string {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(key, "test")
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(block))
}

func indent(text string) string { return strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n    ") }

func TestRepositoriesOverSSH(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin := w.Admin("acme")
	key := privateKey(t)
	canary := strings.Split(key, "\n")[2]
	t.Run("CRED-07 a Secret of Argo CD with sshPrivateKey", func(t *testing.T) {
		text := fmt.Sprintf(`apiVersion: v1
kind: Secret
metadata: {name: one, labels: {argocd.argoproj.io/secret-type: repository}}
stringData:
  type: git
  url: deploy@git.example.com:team/app.git
  insecureIgnoreHostKey: "true"
  sshPrivateKey: |
    %[1]s
---
apiVersion: v1
kind: Secret
metadata: {name: two, labels: {argocd.argoproj.io/secret-type: repo-creds}}
stringData:
  url: git@git.example.com:team
  sshPrivateKey: |
    %[1]s
`, indent(key))
		a := w.call(admin, "POST", "/api/v1/apply", text).ok(200)
		var out struct {
			Failed  int
			Results []struct {
				Result   string
				Warnings []string
			}
		}
		a.into(&out)
		if out.Failed != 0 || out.Results[0].Result != "created" || !strings.Contains(strings.Join(out.Results[0].Warnings, ";"), "host key is not verified") {
			t.Fatalf("%s", a.body)
		}
		list := string(w.call(admin, "GET", "/api/v1/repositories", nil).ok(200).body)
		if !strings.Contains(list, `"ssh://git.example.com/team/app"`) || !strings.Contains(list, `"deploy"`) || !strings.Contains(list, `"insecure":true`) {
			t.Errorf("%s", list)
		}
		for _, path := range []string{"/api/v1/repositories", "/api/v1/repository-credentials", "/api/v1/audit"} {
			if body := string(w.call(admin, "GET", path, nil).ok(200).body); strings.Contains(body, canary) || strings.Contains(body, "PRIVATE KEY") {
				t.Errorf("SEC-C1 %s shows the key: %s", path, body)
			}
		}
	})
	t.Run("SEC-C3 bad keys are refused without being repeated", func(t *testing.T) {
		for name, body := range map[string]map[string]any{
			"half a key":          {"url": "git@h.test:a/b", "sshPrivateKey": key[:len(key)-90]},
			"over HTTP":           {"url": "https://h.test/a/b", "sshPrivateKey": key},
			"a password over SSH": {"url": "git@h.test:a/b", "password": canary},
		} {
			a := w.call(admin, "POST", "/api/v1/repositories", body)
			if a.fails(400); strings.Contains(string(a.body), canary) {
				t.Errorf("%s: %s", name, a.body)
			}
		}
		if strings.Contains(w.Log.String(), canary) {
			t.Error("the log holds the key")
		}
	})
}

func TestCertificates(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin, other := w.Admin("acme"), w.Admin("bolt")
	reader := w.User("acme", "reader", hub.RoleReadOnly)
	names := func(secret string) string {
		var l struct {
			Items []struct {
				ServerName, SubType, Fingerprint string
				BuiltIn                          bool
			}
		}
		w.call(secret, "GET", "/api/v1/certificates", nil).ok(200).into(&l)
		var out []string
		for _, i := range l.Items {
			if !i.BuiltIn {
				out = append(out, i.ServerName+" "+i.SubType)
			}
		}
		return strings.Join(out, ";")
	}
	t.Run("CRED-18 the ConfigMap of Argo CD is merged", func(t *testing.T) {
		text := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: argocd-ssh-known-hosts-cm}\ndata:\n  ssh_known_hosts: |\n    " + hostKey + "\n"
		for _, want := range []string{"created", "unchanged"} {
			if body := string(w.call(admin, "POST", "/api/v1/apply", text).ok(200).body); !strings.Contains(body, `"result":"`+want+`"`) {
				t.Errorf("want %s: %s", want, body)
			}
		}
		for _, secret := range []string{admin, reader} {
			if got := names(secret); got != "git.example.com ssh-ed25519" {
				t.Errorf("known are %q", got)
			}
		}
		if got := names(other); got != "" {
			t.Errorf("ISO-6 another tenant knows %q", got)
		}
	})
	t.Run("CRED-18 bad lines change nothing and are named", func(t *testing.T) {
		p := w.call(admin, "POST", "/api/v1/certificates", map[string]any{"knownHosts": strings.Replace(hostKey, "git.", "fresh.", 1) + "\nnonsense"}).fails(400)
		if !strings.Contains(p.Cause+p.Message, "line 2") || strings.Contains(names(admin), "fresh") {
			t.Errorf("%+v; known are %q", p, names(admin))
		}
		w.call(reader, "POST", "/api/v1/certificates", map[string]any{"knownHosts": hostKey}).fails(403)
		w.call(other, "DELETE", "/api/v1/certificates?serverName=git.example.com", nil).fails(404)
		w.call(reader, "DELETE", "/api/v1/certificates?serverName=git.example.com", nil).fails(403)
		w.call(admin, "DELETE", "/api/v1/certificates?serverName=github.com", nil).fails(404)
	})
	t.Run("CRED-18 deleted keys are gone", func(t *testing.T) {
		w.call(admin, "DELETE", "/api/v1/certificates?serverName=git.example.com&subType=ssh-rsa", nil).fails(404)
		w.call(admin, "DELETE", "/api/v1/certificates?serverName=git.example.com", nil).ok(200)
		if got := names(admin); got != "" {
			t.Errorf("known are %q", got)
		}
	})
}
