package canary_test

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"testing"

	"github.com/capstan-cd/capstan/integration/rigs/canary"
)

func TestCanaries(t *testing.T) {
	c := canary.New()
	secret := c.Plant("password")
	if c.Plant("password") != secret || c.Plant("token") == secret {
		t.Error("not one secret for each name")
	}
	for name, text := range map[string]string{
		"Plain": "a " + secret + " b", "Base64": base64.StdEncoding.EncodeToString([]byte("user:" + secret)),
		"Shifted": base64.StdEncoding.EncodeToString([]byte("x" + secret + "yz")), "URL": base64.URLEncoding.EncodeToString([]byte(secret)),
	} {
		if found := c.Find(name, []byte(text)); len(found) == 0 || found[0].Canary != "password" {
			t.Errorf("%s: %v", name, found)
		}
	}
	if found := c.Find("x", []byte("canary-nothing")); len(found) != 0 {
		t.Error(found)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte("\x00"+secret), 0o600); err != nil {
		t.Fatal(err)
	}
	if found, err := c.FindInFolder(dir, nil); err != nil || len(found) != 1 {
		t.Error(found, err)
	}
	if found, err := c.FindInProcess(os.Getpid(), true); err != nil || len(found) != 0 {
		t.Error(found, err)
	}
}
