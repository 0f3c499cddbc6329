package caching_test

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/integration/rigs/gitserver"
	"github.com/capstan-cd/capstan/integration/rigs/process"
)

// sockets are the inodes of the sockets that a process has.
func sockets(pid int) (out []string) {
	fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err == nil && strings.HasPrefix(to, "socket:[") {
			out = append(out, strings.TrimSuffix(strings.TrimPrefix(to, "socket:["), "]"))
		}
	}
	return out
}

// internet are the sockets of the Internet protocols on this machine, by inode,
// and whether they accept connections.
func internet(t *testing.T) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	for _, name := range []string{"tcp", "tcp6", "udp", "udp6"} {
		f, err := os.Open("/proc/net/" + name)
		if err != nil {
			continue
		}
		for lines := bufio.NewScanner(f); lines.Scan(); {
			if words := strings.Fields(lines.Text()); len(words) > 9 {
				out[words[9]] = words[3] == "0A" // LISTEN
			}
		}
		f.Close()
	}
	return out
}

// There is no connection to a renderer that could be without encryption, and
// no port of one that others could use.
func TestRenderersHaveNoPort(t *testing.T) {
	repo, err := s.Repository(within(t), "ports", gitserver.RepositoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	commit := push(t, repo, "a/a.yaml", configMap("a", "0"))
	if _, err := s.API.Apply(within(t), application("ports", "", source(repo, "a"))); err != nil {
		t.Fatal(err)
	}
	shows(t, commit, "ports")
	workers := process.Children(s.Hub.PID())
	if len(workers) == 0 {
		t.Fatal("the hub has no renderer, although it has just rendered")
	}
	all := internet(t)
	t.Run("REPO-13 SEC-J1 renderers have no socket of a network: their only connection is inherited from the hub", func(t *testing.T) {
		for _, pid := range workers {
			own := sockets(pid)
			if slices.ContainsFunc(own, func(inode string) bool { _, is := all[inode]; return is }) {
				t.Errorf("renderer %d has a socket of a network", pid)
			}
			if len(own) == 0 {
				t.Errorf("renderer %d has no connection at all: this test looks at the wrong process", pid)
			}
		}
	})
	t.Run("REPO-13 REPO-14 SEC-J1 the hub accepts connections at its configured ports and no others", func(t *testing.T) {
		listens := 0
		for _, inode := range sockets(s.Hub.PID()) {
			if all[inode] {
				listens++
			}
		}
		if listens != 3 {
			t.Errorf("the hub accepts connections at %d ports, want those of the API, of agents and of metrics", listens)
		}
	})
}
