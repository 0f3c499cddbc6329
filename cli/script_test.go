package cli_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/crypto/ssh"

	"github.com/capstan-cd/capstan/cli"
	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/api/apitest"
	"github.com/capstan-cd/capstan/hub/store/storetest"
)

// withDatabase runs the tests and stops the database server after them.
type withDatabase struct{ m *testing.M }

func (w withDatabase) Run() int { return storetest.Run(w.m) }

func TestMain(m *testing.M) {
	testscript.Main(withDatabase{m}, map[string]func(){
		"capstan": func() {
			ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
			defer stop()
			os.Exit(cli.Main(ctx, os.Args[1:], cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
		},
		// exits CODE COMMAND… checks how a command ends; testscript alone
		// only tells zero from the rest.
		"exits": exits,
	})
}

// Each script runs the real command against a real hub, signed in as an admin
// of the tenant acme unless it signs in itself.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(env *testscript.Env) error {
			h := apitest.New(env.T().(testing.TB))
			key := filepath.Join(env.WorkDir, "id_ed25519")
			if err := writeKey(key); err != nil {
				return err
			}
			for _, name := range []string{"ca", "other"} {
				if err := writeAuthority(filepath.Join(env.WorkDir, name), name); err != nil {
					return err
				}
			}
			signer, err := writeSigner(filepath.Join(env.WorkDir, "signer.asc"))
			if err != nil {
				return err
			}
			reader := h.User("acme", "reader", hub.RoleReadOnly)
			guide, err := filepath.Abs("../integration/testdata/guide")
			if err != nil {
				return err
			}
			platform := h.User("default", "root", hub.RolePlatformAdmin, hub.RoleTenantAdmin)
			for key, value := range map[string]string{
				"HUB": h.URL, "SIGNER": signer, "HUBHOST": strings.TrimPrefix(h.URL, "http://"), "PASSWORD": apitest.Password, "SETUP": h.SetupLink("acme", hub.RoleReadOnly),
				"ADMIN": h.Admin("acme"), "FRESH": h.Admin("blank"), "GUIDE": guide, "READER": reader, "ROOT": platform, "KEY": key,
				"XDG_CONFIG_HOME": filepath.Join(env.WorkDir, "config"), "HOME": env.WorkDir, "NO_COLOR": "1",
				"CAPSTAN_SERVER": h.URL, "CAPSTAN_TOKEN": h.Admin("acme"),
			} {
				env.Setenv(key, value)
			}
			return nil
		},
	})
}

// writeAuthority makes a certificate that signs itself, and its key, in files
// that end in .crt and .key.
func writeAuthority(file, name string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	of := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
	}
	cert, err := x509.CreateCertificate(rand.Reader, of, of, &key.PublicKey, key)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	for end, block := range map[string]*pem.Block{".crt": {Type: "CERTIFICATE", Bytes: cert}, ".key": {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(file+end, pem.EncodeToMemory(block), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// writeKey makes a private key for SSH.
func writeKey(file string) error {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	block, err := ssh.MarshalPrivateKey(key, "script")
	if err != nil {
		return err
	}
	return os.WriteFile(file, pem.EncodeToMemory(block), 0o600)
}

// writeSigner makes a key that signs commits, writes its public half and
// returns its id.
func writeSigner(file string) (id string, err error) {
	key, err := openpgp.NewEntity("Signer", "", "signer@example.com", nil)
	if err != nil {
		return "", err
	}
	var text bytes.Buffer
	w, err := armor.Encode(&text, openpgp.PublicKeyType, nil)
	if err == nil {
		err = key.Serialize(w)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%016X", key.PrimaryKey.KeyId), os.WriteFile(file, text.Bytes(), 0o600)
}
