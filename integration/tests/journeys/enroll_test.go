package journeys_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/capstan-cd/capstan/integration/rigs/connectproxy"
	"github.com/capstan-cd/capstan/integration/rigs/kube"
	"github.com/capstan-cd/capstan/integration/rigs/process"
	"github.com/capstan-cd/capstan/shared/tunnel"
)

// An enrolment is the machine of the owner of the second cluster: a shell with
// capstan-agent in its path and a kubeconfig.
type enrolment struct {
	t          *testing.T
	home       string
	kubeconfig string // with the rights of the agent
	powerless  string // without any
	proxy      string // which wants a password
}

func newEnrolment(t *testing.T) *enrolment {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	rights, err := kube.AgentRights("cluster")
	if err != nil {
		t.Fatal(err)
	}
	if err := in.second.Apply(ctx, rights); err != nil {
		t.Fatal(err)
	}
	proxy := connectproxy.New(t)
	proxy.User, proxy.Password = "ann", "right"
	address, err := url.Parse(proxy.HTTP.URL)
	if err != nil {
		t.Fatal(err)
	}
	address.User = url.UserPassword("ann", "wrong")
	e := &enrolment{t: t, home: t.TempDir(), proxy: address.String()}
	var err2 error
	e.kubeconfig, err = in.second.AccountKubeconfig(ctx, kube.AgentNamespace, "capstan-agent")
	e.powerless, err2 = in.second.AccountKubeconfig(ctx, "default", "default")
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	return e
}

// enroll pastes the copied command into a shell, as it is, and leaves it running.
func (e *enrolment) enroll(_ context.Context, command string) (string, error) {
	agent, err := process.Start(process.Command{
		Name: "the copied command", Path: "/bin/bash", Args: []string{"-c", "exec " + command}, Env: e.environment(e.kubeconfig),
		Log: filepath.Join(e.home, "agent.log"), Orphan: syscall.SIGTERM,
	})
	if err != nil {
		return "", err
	}
	e.t.Cleanup(func() {
		if e.t.Failed() {
			text, _ := os.ReadFile(filepath.Join(e.home, "agent.log"))
			e.t.Logf("the copied command wrote:\n%s", text)
		}
		_ = agent.Stop(syscall.SIGTERM, waitLimit)
	})
	return "", nil
}

func (e *enrolment) environment(kubeconfig string) []string {
	return []string{"HOME=" + e.home, "KUBECONFIG=" + kubeconfig, "PATH=" + in.bin + ":" + os.Getenv("PATH")}
}

var joinToken = regexp.MustCompile(`capstan-join-v1\.[A-Za-z0-9_-]+`)

// check pastes the copied check, after the name of a fault and a space, into a
// shell that has the fault, and gives what it writes.
func (e *enrolment) check(ctx context.Context, body string) (string, error) {
	fault, command, _ := strings.Cut(body, " ")
	kubeconfig, address, more := e.kubeconfig, "", ""
	switch fault {
	case "none":
	case "DNS":
		address = "hub.invalid:443"
	case "proxy":
		address, more = "hub.example.com:443", "HTTPS_PROXY="+e.proxy
	case "TLS": // an address at which another server is
		to, err := url.Parse(in.second.URL())
		if err != nil {
			return "", err
		}
		address = to.Host
	case "rights":
		kubeconfig = e.powerless
	default:
		return "", fmt.Errorf("there is no fault %q", fault)
	}
	if address != "" {
		elsewhere, err := leadTo(address, joinToken.FindString(command))
		if err != nil {
			return "", err
		}
		command = joinToken.ReplaceAllLiteralString(command, elsewhere)
	}
	shell := exec.CommandContext(ctx, "/bin/bash", "-c", command)
	shell.Env = append(append(os.Environ(), e.environment(kubeconfig)...), more)
	out, err := shell.CombinedOutput()
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) {
		return "", err
	}
	return string(out), nil
}

// leadTo is a join token with another address of the hub: as it would be where
// the network leads somewhere else.
func leadTo(address, token string) (string, error) {
	parsed, err := tunnel.ParseJoinToken(token)
	if err != nil {
		return "", err
	}
	parsed.Addresses = []string{address}
	return parsed.Encode()
}
