package hub

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
	"pgregory.net/rapid"

	"github.com/capstan-cd/capstan/integration/rigs/machine"
	"github.com/capstan-cd/capstan/shared/fault"
)

func hostLine(t *testing.T, host string) string {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	public, err := ssh.NewPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	return host + " " + string(ssh.MarshalAuthorizedKey(public))
}

// The keys of the public hosts are those whose fingerprints they publish.
func TestBuiltInHostKeys(t *testing.T) {
	t.Parallel()
	want := map[string]string{
		"github.com ssh-ed25519":            "SHA256:+DiY3wvvV6TuJJhbpZisF/zLDA0zPMSvHdkr4UvCOqU",
		"github.com ecdsa-sha2-nistp256":    "SHA256:p2QAMXNIC1TJYWeIOttrVc98/R1BUFWu3/LiyKgUfQM",
		"github.com ssh-rsa":                "SHA256:uNiVztksCsDhcc0u9e8BujQXVUpKZIDTMczCvj3tD2s",
		"gitlab.com ssh-ed25519":            "SHA256:eUXGGm1YGsMAS7vkcx6JOJdOGHPem5gQp4taiCfCLB8",
		"gitlab.com ecdsa-sha2-nistp256":    "SHA256:HbW3g8zUjNSksFbqTiUWPWg2Bq1x8xdGUrliXFzSnUw",
		"gitlab.com ssh-rsa":                "SHA256:ROQFvPThGrW4RuWLoL9tq9I9zJ42fK4XywyRtbOz/EQ",
		"bitbucket.org ssh-ed25519":         "SHA256:ybgmFkzwOSotHTHLJgHO0QN8L0xErw6vd0VhFA9m3SM",
		"bitbucket.org ecdsa-sha2-nistp256": "SHA256:FC73VB6C4OQLSCrjEayhMp9UMxS97caD/Yyi2bhW/J0",
		"ssh.dev.azure.com ssh-rsa":         "SHA256:ohD8VZEXGWo6Ez8GSEJQ9WpafgLFsOfLOtGGQCQo6Og",
		"vs-ssh.visualstudio.com ssh-rsa":   "SHA256:ohD8VZEXGWo6Ez8GSEJQ9WpafgLFsOfLOtGGQCQo6Og",
	}
	keys := BuiltInHostKeys()
	if len(keys) != len(want) {
		t.Errorf("%d keys, want %d", len(keys), len(want))
	}
	for _, k := range keys {
		if got := k.Fingerprint(); got != want[k.Host+" "+k.Type] {
			t.Errorf("%s %s is %s", k.Host, k.Type, got)
		}
	}
	t.Run("CRED-07 a key of the tenant replaces them", func(t *testing.T) {
		own, err := ParseKnownHosts(hostLine(t, "github.com"))
		if err != nil {
			t.Fatal(err)
		}
		if got := HostKeysOf(own, "github.com"); len(got) != 1 || got[0].BuiltIn {
			t.Errorf("keys %v", got)
		}
		if got := HostKeysOf(own, "gitlab.com"); len(got) != 3 {
			t.Errorf("keys %v", got)
		}
		if got := HostKeysOf(own, "[github.com]:2222"); got != nil {
			t.Errorf("another port is another server: %v", got)
		}
	})
}

func TestParseKnownHosts(t *testing.T) {
	t.Parallel()
	line := hostLine(t, "Git.Example.COM,[git.example.com]:2222,[10.0.0.1]:22")
	got, err := ParseKnownHosts("# a comment\n\n" + line + line)
	if err != nil || len(got) != 3 {
		t.Fatalf("ParseKnownHosts() = %v, %v", got, err)
	}
	for i, name := range []string{"git.example.com", "[git.example.com]:2222", "10.0.0.1"} {
		if got[i].Host != name || !got[i].Matches(name) || got[i].Matches("x"+name) {
			t.Errorf("key %d is of %q, want %q", i, got[i].Host, name)
		}
	}
	words := strings.Fields(line)
	for name, text := range map[string]string{
		"two words":               "host ssh-ed25519",
		"a marker":                "@cert-authority *.example.com " + words[1] + " " + words[2],
		"a revoked key":           "@revoked host " + words[1] + " " + words[2],
		"DSA":                     "host ssh-dss " + words[2],
		"a key of another type":   "host ssh-rsa " + words[2],
		"no base64":               "host ssh-ed25519 !!!",
		"a short key":             "host ssh-ed25519 AAAA",
		"an exclusion":            "*.example.com,!bad.example.com " + words[1] + " " + words[2],
		"everything":              "* " + words[1] + " " + words[2],
		"everything, disguised":   "*.?* " + words[1] + " " + words[2],
		"an unknown hash":         "|2|aa|bb " + words[1] + " " + words[2],
		"two keys of one type":    hostLine(t, "host") + hostLine(t, "host"),
		"a web page":              "<html><body>sign in</body></html>",
		"a line that is too long": "host ssh-ed25519 " + strings.Repeat("A", 20000),
		"a text that is too long": strings.Repeat("#", 2<<20),
	} {
		if keys, err := ParseKnownHosts(text); err == nil || fault.KindOf(err) == fault.Internal || len(keys) > 0 {
			t.Errorf("%s: %v, %v", name, keys, err)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String().Draw(t, "text")
		keys, err := ParseKnownHosts(text)
		if err == nil {
			for _, k := range keys {
				if again, err := ParseKnownHosts(k.Line()); err != nil || len(again) != 1 || again[0] != k {
					t.Fatalf("%q → %v, %v", k.Line(), again, err)
				}
			}
		}
	})
}

// What OpenSSH's own program hashes is understood.
func TestHashedKnownHosts(t *testing.T) {
	t.Parallel()
	tool, err := exec.LookPath("ssh-keygen")
	if err != nil {
		machine.Lacks(t, "no ssh-keygen on this machine")
	}
	file := filepath.Join(t.TempDir(), "known_hosts")
	if err := os.WriteFile(file, []byte(hostLine(t, "git.example.com")+hostLine(t, "[git.example.com]:2222")), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(tool, "-H", "-f", file).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := ParseKnownHosts(string(text))
	if err != nil || len(keys) != 2 || strings.Contains(keys[0].Host, "example") {
		t.Fatalf("%v, %v", keys, err)
	}
	if !keys[0].Matches("git.example.com") || keys[0].Matches("[git.example.com]:2222") || !keys[1].Matches(HostKeyName("Git.example.com", "2222")) {
		t.Error("names do not match")
	}
}

func TestNormalizeSSHKey(t *testing.T) {
	t.Parallel()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	write := func(k any) string {
		block, err := ssh.MarshalPrivateKey(k, "x")
		if err != nil {
			t.Fatal(err)
		}
		return string(pem.EncodeToMemory(block))
	}
	good := write(key)
	locked, err := ssh.MarshalPrivateKeyWithPassphrase(key, "x", []byte("open sesame"))
	if err != nil {
		t.Fatal(err)
	}
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"as it is": good, "Windows line ends": strings.ReplaceAll(good, "\n", "\r\n"), "cut at its ends": "\n " + strings.TrimSpace(good)} {
		if got, err := NormalizeSSHKey(text); err != nil || got != good {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, c := range map[string]struct{ text, want string }{
		"a passphrase":       {string(pem.EncodeToMemory(locked)), "encrypted with a passphrase"},
		"a public key":       {hostLine(t, "")[1:], "public key"},
		"PuTTY":              {"PuTTY-User-Key-File-3: ssh-ed25519\nEncryption: none\n", "PuTTY"},
		"nothing":            {"", "empty"},
		"half of it":         {good[:len(good)/2], "cannot be read"},
		"another PEM":        {"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "cannot be read"},
		"a weak key":         {write(weak), "fewer than 2048 bits"},
		"much too much text": {strings.Repeat("x", 100000), "64 KiB"},
	} {
		_, err := NormalizeSSHKey(c.text)
		if fault.KindOf(err) != fault.Invalid || !strings.Contains(fault.Sentence(err), c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if lines := strings.Split(c.text, "\n"); len(lines) > 2 && strings.Contains(err.Error(), lines[1]) {
			t.Errorf("%s: SEC-C3 the error repeats the key: %v", name, err)
		}
	}
}
