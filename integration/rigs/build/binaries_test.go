package build

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestSourceHashFollowsTheSources(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	hash := func() string {
		t.Helper()
		key, err := sourceHash(dir)
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	write("go.mod", "module m\n\nrequire (\n\tk8s.io/kubernetes v1.2.3\n)\n")
	write("cmd/main.go", "package main\n")
	first := hash()
	if !strings.HasPrefix(first, "v1.2.3-") {
		t.Errorf("the key is %q, want one that begins with the version", first)
	}
	write("notes.txt", "not compiled\n")
	write("nested/go.mod", "module other\n")
	write("nested/main.go", "package main\n")
	if hash() != first {
		t.Error("the key follows files that are not compiled")
	}
	write("cmd/main.go", "package main // changed\n")
	if hash() == first {
		t.Error("the key does not follow the code")
	}
}

func TestCounterDistinguishesPackagesFromMessages(t *testing.T) {
	t.Parallel()
	var progress bytes.Buffer
	c := &counter{progress: &progress, name: "x", total: 10, begun: time.Now().Add(-time.Hour)}
	for _, part := range []string{"internal/ab", "i\nk8s.io/api/core/v1\n# exam", "ple.test/m\n./a.go:1:2: undefined: b\n"} {
		if _, err := c.Write([]byte(part)); err != nil {
			t.Fatal(err)
		}
	}
	if c.done != 2 || len(c.complaints) != 2 || c.complaints[1] != "./a.go:1:2: undefined: b" {
		t.Errorf("counted %d packages and kept %q", c.done, c.complaints)
	}
	if !strings.Contains(progress.String(), "x: 1 of at most 10 packages") {
		t.Errorf("progress is %q", progress.String())
	}
}

func TestOnlyOneProcessBuilds(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := waitForLock(t.Context(), path, func() { t.Error("waited for nobody") })
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := waitForLock(ctx, path, cancel); !errors.Is(err, context.Canceled) {
		t.Errorf("a second one got the lock: %v", err)
	}
	unlock()
	again, err := waitForLock(t.Context(), path, func() {})
	if err != nil {
		t.Fatal(err)
	}
	again()
}

func TestClusterKnowsItsVersion(t *testing.T) {
	t.Parallel()
	const v = "k8s.io/component-base/version."
	want := "-s -w -X " + v + "gitVersion=v1.37.2 -X " + v + "gitMajor=1 -X " + v + "gitMinor=37 -X " + v + "gitTreeState=clean"
	if got := linkFlags("v1.37.2"); got != want {
		t.Errorf("flags %q, want %q", got, want)
	}
	if got := linkFlags(""); got != "-s -w" {
		t.Errorf("flags %q for a module without a version", got)
	}
}
