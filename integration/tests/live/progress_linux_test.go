package live_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/capstan-cd/capstan/integration/rigs/poll"
)

// terminalOf opens a pseudo-terminal: what its programs write is read from near.
func terminalOf(t *testing.T) (near, far *os.File) {
	t.Helper()
	near, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = near.Close() })
	if err := unix.IoctlSetPointerInt(int(near.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(near.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if far, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	return near, far
}

// command is the command line, signed in as the admin.
func command(ctx context.Context, env []string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, filepath.Join(binaries, "capstan"), args...)
	own := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "NO_COLOR=") })
	c.Env = append(own, "TERM=xterm", "CAPSTAN_SERVER="+s.URL(), "CAPSTAN_TOKEN="+s.API.Token)
	c.Env = append(c.Env, env...)
	return c
}

func TestProgress(t *testing.T) {
	deploy(t, "progress", 1, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {colour: red}\n")
	drift := func(colour string) {
		t.Helper()
		if _, err := s.API.CLI(within(t), "", "app", "patch-resource", "progress", "--kind", "ConfigMap", "--resource-name", "settings", "--patch", `{"data":{"colour":"`+colour+`"}}`); err != nil {
			t.Fatal(err)
		}
		if err := poll.Until(within(t), func(ctx context.Context) error {
			var x struct {
				Status struct{ Sync struct{ Status string } }
			}
			if err := s.API.Do(ctx, http.MethodGet, "/api/v1/applications/argocd/progress", nil, &x); err != nil {
				return err
			}
			if x.Status.Sync.Status != "OutOfSync" {
				return fmt.Errorf("it is %s", x.Status.Sync.Status)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	// atTerminal runs a sync whose streams are a terminal.
	atTerminal := func(env ...string) string {
		t.Helper()
		near, far := terminalOf(t)
		c := command(within(t), env, "app", "sync", "progress")
		c.Stdin, c.Stdout, c.Stderr = far, far, far
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		_ = far.Close()
		out, _ := io.ReadAll(near) // it ends with an error, when the last program has closed it
		if err := c.Wait(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	t.Run("UX-CLI-3 at a terminal app sync shows each object that changes, in colours", func(t *testing.T) {
		drift("green")
		out := atTerminal()
		if !strings.Contains(out, "ConfigMap progress/settings  \x1b[32mSynced\x1b[0m") || !strings.Contains(out, "\x1b[32mSucceeded\x1b[0m") {
			t.Errorf("%q", out)
		}
	})
	t.Run("UX-CLI-3 NO_COLOR leaves the words of a terminal plain", func(t *testing.T) {
		drift("blue")
		out := atTerminal("NO_COLOR=1")
		if !strings.Contains(out, "ConfigMap progress/settings  Synced") || strings.Contains(out, "\x1b") {
			t.Errorf("%q", out)
		}
	})
	t.Run("UX-CLI-3 piped there are plain lines beside the result", func(t *testing.T) {
		drift("black")
		var out, errs bytes.Buffer
		c := command(within(t), nil, "app", "sync", "progress", "-o", "name")
		c.Stdout, c.Stderr = &out, &errs
		if err := c.Run(); err != nil {
			t.Fatalf("%v: %s", err, errs.String())
		}
		if strings.Contains(out.String()+errs.String(), "\x1b") || strings.Count(out.String(), "\n") != 1 || !strings.Contains(errs.String(), "ConfigMap progress/settings  Synced") || !strings.Contains(errs.String(), "sync  Succeeded") {
			t.Errorf("%q beside %q", errs.String(), out.String())
		}
	})
}
