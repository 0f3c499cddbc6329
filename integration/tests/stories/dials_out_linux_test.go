package stories_test

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
)

// A socket is one end of a TCP connection of a process, or a port that it
// listens on.
type socket struct {
	local, remote string // ports
	listens       bool
}

// socketsOf reads the sockets of a process from the kernel.
func socketsOf(t *testing.T, pid int) []socket {
	t.Helper()
	mine := map[string]bool{}
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		target, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "fd", e.Name()))
		if inode, is := strings.CutPrefix(target, "socket:["); err == nil && is {
			mine[strings.TrimSuffix(inode, "]")] = true
		}
	}
	var out []socket
	for _, table := range []string{"tcp", "tcp6"} {
		f, err := os.Open(fmt.Sprintf("/proc/%d/net/%s", pid, table))
		if err != nil {
			t.Fatal(err)
		}
		for lines := bufio.NewScanner(f); lines.Scan(); {
			// slot, local, remote, state, queues, timer, retransmits, uid, timeout, inode
			fields := strings.Fields(lines.Text())
			if len(fields) < 10 || !mine[fields[9]] {
				continue
			}
			out = append(out, socket{portOf(t, fields[1]), portOf(t, fields[2]), fields[3] == "0A"})
		}
		_ = f.Close()
	}
	return out
}

func portOf(t *testing.T, address string) string {
	t.Helper()
	_, port, _ := strings.Cut(address, ":")
	b, err := hex.DecodeString(port)
	if err != nil || len(b) != 2 {
		t.Fatalf("%q is no address of the kernel's table: %v", address, err)
	}
	return strconv.Itoa(int(b[0])<<8 | int(b[1]))
}

// TestAgentsDialOut looks at the sockets of hub and agent, and for what opens the
// cluster in all that the hub stores.
func TestAgentsDialOut(t *testing.T) {
	cluster, agent := s.Clusters["in-cluster"], s.Agents["in-cluster"]
	_, link, err := net.SplitHostPort(s.Hub.Link)
	if err != nil {
		t.Fatal(err)
	}
	_, api, err := net.SplitHostPort(strings.TrimPrefix(cluster.URL(), "https://"))
	if err != nil {
		t.Fatal(err)
	}
	repo := repository(t, "dials-out", map[string]string{"app/a.yaml": configMap("a", "one")})
	deploy(t, "dials-out", repo.URL(), "app", "")
	settled(t, "dials-out")
	hubs, agents := socketsOf(t, s.Hub.PID()), socketsOf(t, agent.PID())
	t.Run("AGT-01 the agent dials the hub", func(t *testing.T) {
		dialled := false
		for _, c := range agents {
			dialled = dialled || !c.listens && c.remote == link
		}
		if !dialled {
			t.Errorf("the agent has no connection to port %s: %+v", link, agents)
		}
	})
	t.Run("AGT-01 the hub connects to no port of the agent, and not to the API server", func(t *testing.T) {
		listening := map[string]bool{api: true}
		for _, c := range agents {
			if c.listens {
				listening[c.local] = true
			}
		}
		for _, c := range hubs {
			if !c.listens && listening[c.remote] {
				t.Errorf("the hub has a connection to port %s", c.remote)
			}
		}
	})
	t.Run("AGT-01 the hub stores nothing that opens the cluster", func(t *testing.T) {
		config, err := clientcmd.LoadFromFile(agent.Kubeconfig())
		if err != nil {
			t.Fatal(err)
		}
		secrets := 0
		stored := storedByTheHub(t)
		for name, user := range config.AuthInfos {
			for _, secret := range []string{user.Token, string(user.ClientKeyData)} {
				if secret == "" {
					continue
				}
				secrets++
				if strings.Contains(stored, secret) || strings.Contains(stored, hex.EncodeToString([]byte(secret))) {
					t.Errorf("the database holds what %q signs in with", name)
				}
			}
		}
		if secrets == 0 || !strings.Contains(stored, "dials-out") {
			t.Fatalf("%d secrets were looked for in %d bytes", secrets, len(stored))
		}
	})
}

// storedByTheHub is all that the database holds, as text.
func storedByTheHub(t *testing.T) string {
	t.Helper()
	dump := exec.CommandContext(t.Context(), "pg_dump", "--inserts", s.Postgres.Superuser("capstan"))
	out, err := dump.Output()
	if err != nil {
		t.Fatalf("pg_dump: %v", err)
	}
	return string(out)
}
