package agenttest_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/capstan-cd/capstan/agent/daemon"
	"github.com/capstan-cd/capstan/shared/tunnel"
)

func TestDoctor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	conf, err := shared.RESTConfig()
	if err != nil {
		t.Fatal(err)
	}
	w.application().deploy(configMap("web", "red")) // the agent is attached
	examine := func(c daemon.Config) (string, error) {
		var out bytes.Buffer
		err := daemon.Doctor(t.Context(), c, &out)
		return out.String(), err
	}
	expect := func(t *testing.T, text string, lines ...string) {
		t.Helper()
		for _, l := range lines {
			if !strings.Contains(text, l) {
				t.Errorf("no line has %q:\n%s", l, text)
			}
		}
	}
	t.Run("FT-L10 beside an agent that runs", func(t *testing.T) {
		text, err := examine(daemon.Config{Namespace: w.home, REST: conf, Upgrades: true})
		if err != nil {
			t.Errorf("Doctor() = %v", err)
		}
		expect(t, text, "ok    upgrades", "ok    Kubernetes API  ready", "ok    fingerprint", "ok    own rights", "ok    rights", "ok    identity", "ok    link TLS", "ok    hub")
		if strings.Contains(text, "FAIL") || strings.Contains(text, "warn") {
			t.Errorf("all is well and it says:\n%s", text)
		}
	})
	t.Run("FT-L10 before enrolment, with a token that was used", func(t *testing.T) {
		text, err := examine(daemon.Config{Namespace: "default", REST: conf, JoinToken: w.token})
		if err == nil {
			t.Error("the doctor is content")
		}
		expect(t, text, "ok    enrolment", "FAIL  join token", "used before")
		parsed, err := tunnel.ParseJoinToken(w.token)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(text, string(parsed.Secret)) {
			t.Error("SEC-C3 the token is printed")
		}
	})
	t.Run("FT-L10 without anything", func(t *testing.T) {
		text, err := examine(daemon.Config{Namespace: "default", REST: &rest.Config{Host: "https://127.0.0.1:1"}})
		if err == nil {
			t.Error("the doctor is content")
		}
		expect(t, text, "FAIL  Kubernetes API", "NO_PROXY", "skip  rights", "FAIL  enrolment", "capstan cluster enroll")
	})
	t.Run("FT-L10 in a namespace that does not exist", func(t *testing.T) {
		text, err := examine(daemon.Config{Namespace: "nowhere", REST: conf, JoinToken: w.token})
		if err == nil {
			t.Error("the doctor is content")
		}
		expect(t, text, "FAIL  own rights", "namespace nowhere: it does not exist", "create it")
	})
	t.Run("FT-L10 with insufficient rights", func(t *testing.T) {
		weak := rest.CopyConfig(conf)
		weak.Impersonate = rest.ImpersonationConfig{UserName: "nobody", Groups: []string{"system:authenticated"}}
		text, err := examine(daemon.Config{Namespace: w.home, REST: weak})
		if err == nil {
			t.Error("the doctor is content")
		}
		expect(t, text, "FAIL  own rights", "ServiceAccount", "warn  rights")
		if strings.Contains(text, "upgrades") {
			t.Errorf("nobody allowed upgrades, and it says:\n%s", text)
		}
	})
}

// TestNoListener looks at the sockets of an agent's process.
func TestNoListener(t *testing.T) {
	w := newWorld(t)
	bin := agentBinary(t)
	w.stop()
	p := w.process(bin)
	defer p.end(syscall.SIGTERM)
	w.application().deploy(configMap("web", "red")) // the process is attached
	t.Run("SEC-K8 an agent listens nowhere", func(t *testing.T) {
		open := map[string]bool{}
		fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", p.cmd.Process.Pid))
		if err != nil || len(fds) == 0 {
			t.Fatalf("no file descriptors: %v", err)
		}
		for _, fd := range fds {
			if to, err := os.Readlink(fd); err == nil {
				open[to] = true
			}
		}
		var sockets int
		for _, kind := range []string{"tcp", "tcp6", "udp", "udp6"} {
			table, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", p.cmd.Process.Pid, kind))
			if err != nil {
				continue
			}
			for _, line := range strings.Split(string(table), "\n")[1:] {
				f := strings.Fields(line)
				if len(f) < 10 || !open["socket:["+f[9]+"]"] {
					continue
				}
				sockets++
				state, _ := strconv.ParseInt(f[3], 16, 32)
				if state == 0x0A || strings.HasPrefix(kind, "udp") && state == 0x07 {
					t.Errorf("it listens at %s (%s)", f[1], kind)
				}
			}
		}
		if sockets == 0 {
			t.Error("none of its sockets was found, so this test shows nothing")
		}
	})
}
