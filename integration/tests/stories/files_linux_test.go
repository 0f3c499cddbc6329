package stories_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/capstan-cd/capstan/integration/rigs/poll"
	"github.com/capstan-cd/capstan/integration/rigs/stack"
)

// TestOutOfFiles takes the hub's file descriptors away.
func TestOutOfFiles(t *testing.T) {
	in := s.Clusters["in-cluster"]
	repo := repository(t, "files", map[string]string{"app/a.yaml": configMap("a", "one")})
	deploy(t, "files", repo.URL(), "app", "")
	settled(t, "files")
	pid := s.Hub.PID()
	files := func() int {
		list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	var usual unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &usual); err != nil {
		t.Fatal(err)
	}
	log, err := os.ReadFile(s.Hub.LogFile())
	if err != nil {
		t.Fatal(err)
	}
	before := len(log)
	since := func(text string) (n int) {
		log, err := os.ReadFile(s.Hub.LogFile())
		if err != nil {
			t.Fatal(err)
		}
		return bytes.Count(log[before:], []byte(text))
	}
	few := usual
	few.Cur = uint64(files())
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &few, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Prlimit(pid, unix.RLIMIT_NOFILE, &usual, nil) })
	at, err := url.Parse(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	var crowd []net.Conn
	t.Cleanup(func() {
		for _, c := range crowd {
			_ = c.Close()
		}
	})
	err = poll.Until(within(t, waitLimit), func(context.Context) error {
		// It may close some meanwhile, so more and more come.
		c, err := net.Dial("tcp", at.Host)
		if err != nil {
			return err
		}
		crowd = append(crowd, c)
		if since("too many open files") == 0 {
			return errors.New("the hub has files left")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := repo.Commit(t.Context(), "two", map[string]string{"app/a.yaml": configMap("a", "two")}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &usual, nil); err != nil {
		t.Fatal(err)
	}
	t.Run("FT-H10 a hub without free file descriptors recovers, and what was pushed meanwhile arrives", func(t *testing.T) {
		if _, err := in.WaitFor(within(t, waitLimit), configMaps, "files", "a", value("two")); err != nil {
			t.Fatal(err)
		}
		settled(t, "files")
		var list struct{ Items []stack.App }
		if err := s.API.Do(within(t, waitLimit), http.MethodGet, "/api/v1/applications", nil, &list); err != nil || len(list.Items) == 0 {
			t.Errorf("%d applications, %v", len(list.Items), err)
		}
	})
	t.Run("FT-H10 FT-L2 it has lost neither its agents nor its own process", func(t *testing.T) {
		if s.Hub.PID() != pid || unix.Kill(pid, 0) != nil {
			t.Error("the hub is another process")
		}
		p, err := cluster(t.Context())
		if err != nil || p.Connection != "Connected" || since("agent connected") != 0 {
			t.Errorf("cluster %+v, %v; %d agents have come anew", p, err, since("agent connected"))
		}
	})
}
