package stack

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/capstan-cd/capstan/integration/rigs/kube"
	"github.com/capstan-cd/capstan/integration/rigs/poll"
	"github.com/capstan-cd/capstan/integration/rigs/postgres"
	"github.com/capstan-cd/capstan/integration/rigs/process"
)

// HubOptions say how a hub is started.
type HubOptions struct {
	Bin      string // folder with capstan-hub
	Dir      string // configuration, keys, mirrors and log
	Database postgres.URLs
	Secret   string // that GitHub webhooks are signed with
	Replica  string
	Settings map[string]any // merged into the configuration
	Env      []string       // added to the hub's environment

	MasterKey string // file; empty: one of its own
	Internal  bool   // with a port for other replicas
	PublicURL string // of the console; empty: the hub's own address
	Agents    string // host:port that agents dial; empty: the hub's own
}

// A Hub is the real binary as a process of its own.
type Hub struct {
	URL  string // of the API and the console
	Link string // host:port that agents dial

	metrics int // port
	options HubOptions
	process *process.Process
}

// StartHub migrates the database, writes a configuration and starts the hub.
func StartHub(ctx context.Context, o HubOptions) (*Hub, error) {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the hub's folder: %w", err)
	}
	web, err := process.FreePort()
	if err != nil {
		return nil, err
	}
	link, err := process.FreePort()
	if err != nil {
		return nil, err
	}
	metrics, err := process.FreePort()
	if err != nil {
		return nil, err
	}
	h := &Hub{metrics: metrics, URL: fmt.Sprintf("http://127.0.0.1:%d", web), Link: fmt.Sprintf("127.0.0.1:%d", link), options: o}
	if err := h.configure(web); err != nil {
		return nil, fmt.Errorf("configure the hub: %w", err)
	}
	if _, err := h.Command(ctx, "migrate"); err != nil {
		return nil, err
	}
	return h, h.Start(ctx)
}

func (h *Hub) file(name string) string { return filepath.Join(h.options.Dir, name) }

func (h *Hub) configure(web int) error {
	key := cmp.Or(h.options.MasterKey, h.file("master.key"))
	if _, err := os.Stat(key); errors.Is(err, os.ErrNotExist) {
		if out, err := exec.Command(filepath.Join(h.options.Bin, "capstan-hub"), "master-key", key).CombinedOutput(); err != nil {
			return fmt.Errorf("make a master key: %w: %s", err, out)
		}
	}
	if err := os.WriteFile(h.file("webhook.secret"), []byte(h.options.Secret), 0o600); err != nil {
		return err
	}
	listen := map[string]any{"http": fmt.Sprintf("127.0.0.1:%d", web), "link": h.Link, "metrics": fmt.Sprintf("127.0.0.1:%d", h.metrics)}
	if h.options.Internal {
		port, err := process.FreePort()
		if err != nil {
			return err
		}
		listen["internal"] = fmt.Sprintf("127.0.0.1:%d", port)
	}
	config := map[string]any{
		"listen":     listen,
		"publicURL":  cmp.Or(h.options.PublicURL, h.URL),
		"agentHosts": []string{cmp.Or(h.options.Agents, h.Link)},
		"database":   map[string]any{"app": h.options.Database.App, "system": h.options.Database.System, "owner": h.options.Database.Owner},
		"stateDir":   h.file("state"),
		"masterKey":  key,
		"sources":    map[string]any{"allowPrivate": []string{"127.0.0.0/8"}},
		"limits":     map[string]any{"requestsPerSecond": 1000, "burst": 5000},
	}
	if h.options.Secret != "" {
		config["webhook"] = map[string]any{"githubSecretFile": h.file("webhook.secret")}
	}
	if h.options.Replica != "" {
		config["replica"] = h.options.Replica
	}
	for k, v := range h.options.Settings {
		config[k] = v
	}
	b, err := json.MarshalIndent(config, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(h.file("hub.yaml"), b, 0o600)
}

// Command runs a command of the hub's binary to its end and gives what it
// printed.
func (h *Hub) Command(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(h.options.Bin, "capstan-hub"), append([]string{name, "--config", h.file("hub.yaml")}, args...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("capstan-hub %s: %w: %s", name, err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

// Start starts the hub, or starts it again on the same ports, and waits until
// it serves.
func (h *Hub) Start(ctx context.Context) error {
	var err error
	h.process, err = process.Start(process.Command{
		Name: "capstan-hub", Path: filepath.Join(h.options.Bin, "capstan-hub"), Args: []string{"serve", "--config", h.file("hub.yaml")},
		Log: h.LogFile(), Orphan: syscall.SIGTERM, Env: h.options.Env,
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute) // a limit for what hangs
	defer cancel()
	return h.process.Ready(ctx, func(ctx context.Context) error { return poll.OK(ctx, h.URL+"/readyz") })
}

// Use makes the next Start run the program of another folder, such as that of
// another release.
func (h *Hub) Use(bin string) { h.options.Bin = bin }

// Dir is where the hub keeps its configuration, mirrors and log.
func (h *Hub) Dir() string { return h.options.Dir }

// LogFile is where the hub logs to.
func (h *Hub) LogFile() string { return h.file("hub.log") }

// PID is the hub's process.
func (h *Hub) PID() int { return h.process.PID() }

// Signal sends the hub a signal, such as SIGSTOP and SIGCONT.
func (h *Hub) Signal(sig syscall.Signal) error { return h.process.Signal(sig) }

// MasterKeyFile is where its master key is.
func (h *Hub) MasterKeyFile() string { return cmp.Or(h.options.MasterKey, h.file("master.key")) }

// Ended is closed when the hub's process, as it is now, has ended.
func (h *Hub) Ended() <-chan struct{} { return h.process.Done() }

// Kill ends the hub as a crash would.
func (h *Hub) Kill() error { return h.process.Stop(syscall.SIGKILL, time.Second) }

// Stop ends the hub in order.
func (h *Hub) Stop() error { return h.process.Stop(syscall.SIGTERM, 35*time.Second) }

// AgentOptions say how an agent is started.
type AgentOptions struct {
	Bin       string
	Dir       string
	Cluster   *kube.Cluster
	JoinToken string   // only the first start needs one
	Through   string   // URL of the API server, such as that of a Ledger; empty: the cluster's own
	Env       []string // added to the environment
}

// An Agent is the real binary as a process of its own, with the rights of a
// ServiceAccount.
type Agent struct {
	options    AgentOptions
	kubeconfig string
	listen     int // port of health and metrics
	process    *process.Process
}

// StartAgent returns the agent its account in the cluster and starts it.
func StartAgent(ctx context.Context, o AgentOptions) (*Agent, error) {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the agent's folder: %w", err)
	}
	rights, err := kube.AgentRights("cluster")
	if err != nil {
		return nil, err
	}
	if err := o.Cluster.Apply(ctx, rights); err != nil {
		return nil, fmt.Errorf("give the agent its rights: %w", err)
	}
	kubeconfig, err := o.Cluster.AccountKubeconfigTo(ctx, kube.AgentNamespace, "capstan-agent", o.Through)
	if err != nil {
		return nil, fmt.Errorf("make the agent's kubeconfig: %w", err)
	}
	listen, err := process.FreePort()
	if err != nil {
		return nil, err
	}
	a := &Agent{options: o, kubeconfig: kubeconfig, listen: listen}
	if err := os.WriteFile(filepath.Join(o.Dir, "join-token"), []byte(o.JoinToken), 0o600); err != nil {
		return nil, err
	}
	return a, a.Start(ctx)
}

// User is the name under which the API server knows the agent.
func (a *Agent) User() string {
	return "system:serviceaccount:" + kube.AgentNamespace + ":capstan-agent"
}

// Kubeconfig is the file with which the agent signs in to its cluster.
func (a *Agent) Kubeconfig() string { return a.kubeconfig }

// Start starts the agent, or starts it again with the state that it has.
func (a *Agent) Start(context.Context) error {
	var err error
	a.process, err = process.Start(process.Command{
		Name: "capstan-agent", Path: filepath.Join(a.options.Bin, "capstan-agent"),
		Args: []string{
			"run", "--kubeconfig", a.kubeconfig, "--namespace", kube.AgentNamespace,
			"--state-dir", filepath.Join(a.options.Dir, "state"), "--join-token-file", filepath.Join(a.options.Dir, "join-token"),
			"--listen", fmt.Sprintf("127.0.0.1:%d", a.listen),
		},
		Log: a.LogFile(), Orphan: syscall.SIGTERM, Env: a.options.Env,
	})
	return err
}

// Use makes the next Start run the program of another folder, such as that of
// another release.
func (a *Agent) Use(bin string) { a.options.Bin = bin }

// Ended is closed when the agent's process, as it is now, has ended.
func (a *Agent) Ended() <-chan struct{} { return a.process.Done() }

// StateDir is what the agent keeps on its disk.
func (a *Agent) StateDir() string { return filepath.Join(a.options.Dir, "state") }

// LogFile is where the agent logs to.
func (a *Agent) LogFile() string { return filepath.Join(a.options.Dir, "agent.log") }

// PID is the agent's process.
func (a *Agent) PID() int { return a.process.PID() }

// Kill ends the agent as a crash would.
func (a *Agent) Kill() error { return a.process.Stop(syscall.SIGKILL, time.Second) }

// Stop ends the agent in order.
func (a *Agent) Stop() error { return a.process.Stop(syscall.SIGTERM, 20*time.Second) }

// Port is where the agent's health and metrics are, such as "/metrics".
func (a *Agent) Port(path string) string { return fmt.Sprintf("http://127.0.0.1:%d%s", a.listen, path) }

// Port is where the hub's health and metrics are, such as "/livez".
func (h *Hub) Port(path string) string { return fmt.Sprintf("http://127.0.0.1:%d%s", h.metrics, path) }

// Secret is what webhooks to this hub are signed with.
func (h *Hub) Secret() string { return h.options.Secret }

// Metrics is where the hub's counters are.
func (h *Hub) Metrics() string { return fmt.Sprintf("http://127.0.0.1:%d/metrics", h.metrics) }
