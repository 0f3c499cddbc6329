// Package stack puts a whole installation together from real parts: Postgres,
// a Git server, Kubernetes control planes, the hub and agents as processes of
// their own. The demo, the stories and the benchmarks start it. It reads
// nothing from the environment and leaves no process behind.
package stack

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/capstan-cd/capstan/integration/rigs/faultproxy"
	"github.com/capstan-cd/capstan/integration/rigs/gitserver"
	"github.com/capstan-cd/capstan/integration/rigs/kube"
	"github.com/capstan-cd/capstan/integration/rigs/poll"
	"github.com/capstan-cd/capstan/integration/rigs/postgres"
)

// Options say what is started.
type Options struct {
	Bin      string            // folder with capstan-hub, capstan-agent and capstan
	Dir      string            // everything is kept here
	Clusters []string          // names; each gets a control plane and an agent
	Existing map[string]string // kubeconfig files of those of Clusters that are there already
	Nodes    bool              // with fake nodes, so that Deployments become available
	Durable  bool              // Postgres waits for the disk
	Say      func(format string, args ...any)
	Postgres map[string]string // settings of the server
	Settings map[string]any    // merged into the hub's configuration
	Replicas int               // hubs behind a balancer; 0 or 1: one hub without
	Faulty   bool              // with a ledger, and wires that can fail, between the parts
	HubEnv   []string          // added to the hub's environment
	AgentEnv []string          // added to that of the agents
}

// A Stack is a running installation and a signed-in admin.
type Stack struct {
	Postgres *postgres.Server
	Git      *gitserver.Server
	Hub      *Hub      // the first
	Hubs     []*Hub    // all
	Front    *Balancer // before their APIs; nil with one hub
	Gate     *Balancer // before their links; nil with one hub
	Clusters map[string]*kube.Cluster
	Agents   map[string]*Agent
	API      *API

	// With Options.Faulty only.
	Ledgers map[string]*faultproxy.Ledger // before each API server
	Link    *faultproxy.Wire              // between agents and hub
	SQL     *faultproxy.SQLWire           // between hub and Postgres

	options Options
	mu      sync.Mutex // guards stops
	stops   []func() error
}

// ConfigDir holds the configuration of the admin's command line: it is what
// XDG_CONFIG_HOME has to be for bin/capstan to be signed in.
func (s *Stack) ConfigDir() string { return s.file("cli") }

// Password is that of the user admin.
func (s *Stack) Password() string { return s.API.password }

// Start starts everything and returns when the agents are connected.
func Start(ctx context.Context, o Options) (*Stack, error) {
	if o.Say == nil {
		o.Say = func(string, ...any) {}
	}
	var saying sync.Mutex
	say := o.Say
	o.Say = func(format string, args ...any) {
		saying.Lock()
		defer saying.Unlock()
		say(format, args...)
	}
	s := &Stack{options: o, Clusters: map[string]*kube.Cluster{}, Agents: map[string]*Agent{}, Ledgers: map[string]*faultproxy.Ledger{}}
	// The clusters, the hub and the Git server need nothing of each other.
	err := together(ctx,
		s.steps(step{"Postgres", s.startPostgres}, step{"the hub", s.startHub}, step{"the first account", s.signIn}),
		s.steps(step{"the clusters", s.startClusters}),
		s.steps(step{"the Git server", s.startGit}),
	)
	if err == nil {
		err = s.steps(step{"the agents", s.startAgents})(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// A step starts one part.
type step struct {
	what string
	do   func(context.Context) error
}

// steps does one after the other and says how long each takes.
func (s *Stack) steps(all ...step) func(context.Context) error {
	return func(ctx context.Context) error {
		for _, x := range all {
			begin := time.Now()
			if err := x.do(ctx); err != nil {
				return fmt.Errorf("start %s: %w", x.what, err)
			}
			s.options.Say("%-18s ready after %.1f s", x.what, time.Since(begin).Seconds())
		}
		return nil
	}
}

// together does all at once and returns when all have ended. The first that
// fails ends the others, and is the one that is told.
func together(ctx context.Context, all ...func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var running sync.WaitGroup
	var first error
	var once sync.Once
	for _, do := range all {
		running.Go(func() {
			if err := do(ctx); err != nil {
				once.Do(func() { first = err })
				cancel(err)
			}
		})
	}
	running.Wait()
	return first
}

// Stop ends everything, last one first.
func (s *Stack) Stop() error {
	var errs []error
	s.mu.Lock()
	stops := s.stops
	s.stops = nil
	s.mu.Unlock()
	for _, stop := range slices.Backward(stops) {
		errs = append(errs, stop())
	}
	return errors.Join(errs...)
}

func (s *Stack) later(stop func() error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stops = append(s.stops, stop)
}

func (s *Stack) file(parts ...string) string {
	return filepath.Join(append([]string{s.options.Dir}, parts...)...)
}

func (s *Stack) startPostgres(ctx context.Context) error {
	var err error
	s.Postgres, err = postgres.Start(ctx, postgres.Options{Durable: s.options.Durable, Settings: s.options.Postgres})
	if err != nil {
		return err
	}
	s.later(func() error { return s.Postgres.Stop(postgres.StopFast) })
	return nil
}

func (s *Stack) startClusters(ctx context.Context) error {
	started := make([]*kube.Cluster, len(s.options.Clusters))
	var starts []func(context.Context) error
	for i, name := range s.options.Clusters {
		starts = append(starts, func(ctx context.Context) (err error) {
			if started[i], err = s.startCluster(ctx, name); err == nil {
				s.later(started[i].Stop)
			}
			return err
		})
	}
	if err := together(ctx, starts...); err != nil {
		return err
	}
	for i, name := range s.options.Clusters {
		s.Clusters[name] = started[i]
	}
	return nil
}

func (s *Stack) startCluster(ctx context.Context, name string) (*kube.Cluster, error) {
	if file := s.options.Existing[name]; file != "" {
		return kube.Attach(ctx, name, file)
	}
	return kube.Start(ctx, name, kube.Options{Controllers: true, Nodes: s.options.Nodes})
}

func (s *Stack) startHub(ctx context.Context) error {
	urls, err := s.Postgres.CreateDatabase(ctx, "capstan")
	if err != nil {
		return err
	}
	settings := s.options.Settings
	if s.options.Faulty {
		if urls, settings, err = s.startWires(); err != nil {
			return err
		}
	}
	err = s.startHubs(ctx, HubOptions{
		Bin: s.options.Bin, Dir: s.file("hub"), Database: urls, Secret: random(), Settings: settings, Env: s.options.HubEnv,
	})
	if err != nil {
		return err
	}
	if s.Link != nil {
		s.Link.Retarget(s.Hub.Link)
	}
	return nil
}

// startWires puts wires around the hub, and gives what it has to know of them.
func (s *Stack) startWires() (postgres.URLs, map[string]any, error) {
	urls := s.Postgres.NetworkURLs("capstan")
	var err error
	if s.SQL, err = faultproxy.NewSQLWire(s.Postgres.Address()); err != nil {
		return urls, nil, err
	}
	s.later(s.SQL.Stop)
	for _, u := range []*string{&urls.App, &urls.System, &urls.Owner} {
		*u = strings.Replace(*u, s.Postgres.Address(), s.SQL.Addr(), 1)
	}
	if s.Link, err = faultproxy.NewWire(""); err != nil {
		return urls, nil, err
	}
	s.later(s.Link.Stop)
	settings := map[string]any{"agentHosts": []string{s.Link.Addr()}}
	maps.Copy(settings, s.options.Settings)
	return urls, settings, nil
}

func (s *Stack) startGit(ctx context.Context) error {
	var err error
	s.Git, err = gitserver.Start(ctx, gitserver.Options{})
	if err != nil {
		return err
	}
	s.later(s.Git.Stop)
	return nil
}

// Repository makes a repository whose pushes call the hub's webhook.
func (s *Stack) Repository(ctx context.Context, name string, o gitserver.RepositoryOptions) (*gitserver.Repository, error) {
	r, err := s.Git.Create(ctx, name, o)
	if err != nil {
		return nil, err
	}
	r.SetWebhook(gitserver.Webhook{URL: s.URL() + "/api/webhook", Secret: s.Hub.Secret()})
	return r, nil
}

var setupToken = regexp.MustCompile(`/setup#([A-Za-z0-9_]+)$`)

// SetupLink asks the hub for a one-time link for an admin.
func (s *Stack) SetupLink(ctx context.Context) (string, error) {
	out, err := s.Hub.Command(ctx, "setup-link")
	return strings.TrimSpace(out), err
}

func (s *Stack) signIn(ctx context.Context) error {
	link, err := s.SetupLink(ctx)
	if err != nil {
		return err
	}
	match := setupToken.FindStringSubmatch(link)
	if match == nil {
		return fmt.Errorf("the setup link %q holds no token", link)
	}
	s.API = &API{URL: s.URL(), config: s.file("cli"), bin: s.options.Bin, password: random()}
	return s.API.setup(ctx, match[1])
}

// SecondAdmin uses a setup token of another tenant and gives a client of its
// admin, whose configuration is in dir.
func (s *Stack) SecondAdmin(ctx context.Context, dir, token string) (*API, error) {
	a := &API{URL: s.URL(), config: dir, bin: s.options.Bin, password: random()}
	return a, a.setup(ctx, token)
}

// Bin is the folder with the product's binaries.
func (s *Stack) Bin() string { return s.options.Bin }

func (s *Stack) startAgents(ctx context.Context) error {
	for _, name := range s.options.Clusters {
		if err := s.startAgent(ctx, name); err != nil {
			return err
		}
	}
	for _, name := range s.options.Clusters {
		if err := s.Connected(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

func (s *Stack) startAgent(ctx context.Context, name string) error {
	token, err := s.API.CLI(ctx, "", "cluster", "enroll", name, "--token-only")
	if err != nil {
		return err
	}
	options := AgentOptions{
		Bin: s.options.Bin, Dir: s.file("agent-" + name), Cluster: s.Clusters[name], JoinToken: strings.TrimSpace(token), Env: s.options.AgentEnv,
	}
	if s.options.Faulty {
		l, err := faultproxy.NewLedger(s.Clusters[name])
		if err != nil {
			return err
		}
		s.later(l.Stop)
		s.Ledgers[name], options.Through = l, l.URL
	}
	a, err := StartAgent(ctx, options)
	if err != nil {
		return err
	}
	s.Agents[name] = a
	s.later(func() error { return a.Stop() })
	return nil
}

// mostConnect is a limit for what hangs: an agent that has not reached its hub
// tries again after a minute at most.
const mostConnect = 5 * time.Minute

// Connected waits until a cluster's agent is connected.
func (s *Stack) Connected(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, mostConnect)
	defer cancel()
	err := poll.Until(ctx, func(ctx context.Context) error {
		var c struct {
			Connection string `json:"connection"`
		}
		if err := s.API.Do(ctx, http.MethodGet, "/api/v1/clusters/"+name, nil, &c); err != nil {
			return err
		}
		if c.Connection != "Connected" {
			return fmt.Errorf("the agent of cluster %s is %s", name, c.Connection)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("%w; its log is %s", err, s.Agents[name].LogFile())
	}
	return nil
}

func random() string {
	b := make([]byte, 16)
	rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// An API is a signed-in client of the hub: over HTTP, and through the command
// line as a person would.
type API struct {
	URL      string
	Token    string
	config   string
	bin      string
	password string
}

func (a *API) setup(ctx context.Context, token string) error {
	if _, err := a.CLI(ctx, a.password+"\n", "setup", a.URL, "--setup-token", token, "--username", "admin"); err != nil {
		return err
	}
	return a.readToken()
}

func (a *API) readToken() error {
	b, err := os.ReadFile(filepath.Join(a.config, "capstan", "config.json"))
	if err != nil {
		return err
	}
	var c struct {
		Current  string
		Contexts []struct{ Name, Token string }
	}
	if err := json.Unmarshal(b, &c); err != nil {
		return err
	}
	for _, at := range c.Contexts {
		if at.Name == c.Current {
			a.Token = at.Token
			return nil
		}
	}
	return fmt.Errorf("the command line stored no sign-in: its contexts are of %q", c.Current)
}

// CLI runs the command line and gives its standard output.
func (a *API) CLI(ctx context.Context, stdin string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(a.bin, "capstan"), args...)
	cmd.Env = append(os.Environ(), "XDG_CONFIG_HOME="+a.config)
	cmd.Stdin = strings.NewReader(stdin)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), &CLIError{Args: args, Code: cmd.ProcessState.ExitCode(), Text: strings.TrimSpace(stderr.String())}
	}
	return stdout.String(), nil
}

// A CLIError is a command line that failed.
type CLIError struct {
	Args []string
	Code int
	Text string
}

func (e *CLIError) Error() string {
	return fmt.Sprintf("capstan %s: exit code %d: %s", strings.Join(e.Args, " "), e.Code, e.Text)
}

// Apply applies manifests through the command line.
func (a *API) Apply(ctx context.Context, manifests string) (string, error) {
	return a.CLI(ctx, manifests, "apply", "-f", "-")
}

// Do sends a request and reads a JSON answer into out, unless that is nil.
func (a *API) Do(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(b)
	}
	u, err := url.Parse(a.URL + path)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), body)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+a.Token)
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if res.StatusCode >= 300 {
		return &StatusError{Status: res.StatusCode, Body: string(b)}
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(b, out)
}

// A StatusError is an answer that is no success.
type StatusError struct {
	Status int
	Body   string
}

func (e *StatusError) Error() string { return fmt.Sprintf("status %d: %s", e.Status, e.Body) }

// App is what stories look at of an application.
type App struct {
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Status struct {
		ReconciledAt *time.Time `json:"reconciledAt"` // nil: its cluster has not compared the target yet
		Sync         struct {
			Status   string `json:"status"`
			Revision string `json:"revision"`
		} `json:"sync"`
		Health struct {
			Status  string `json:"status"`
			Message string `json:"message"`
		} `json:"health"`
		Conditions []struct {
			Type    string `json:"type"`
			Message string `json:"message"`
		} `json:"conditions"`
		OperationState *struct {
			ID         string     `json:"id"`
			Phase      string     `json:"phase"`
			Message    string     `json:"message"`
			RetryAt    *time.Time `json:"retryAt"`
			SyncResult *struct {
				Resources []struct {
					Kind      string `json:"kind"`
					Name      string `json:"name"`
					Status    string `json:"status"`
					Message   string `json:"message"`
					HookPhase string `json:"hookPhase"`
				} `json:"resources"`
			} `json:"syncResult"`
		} `json:"operationState"`
		Capstan struct {
			Paused *struct {
				By     string `json:"by"`
				Reason string `json:"reason"`
			} `json:"paused"`
			Hold     string `json:"hold"`
			Target   string `json:"target"`
			Accepted string `json:"accepted"`
		} `json:"capstan"`
	} `json:"status"`
}

// Get reads an application of the namespace argocd.
func (a *API) Get(ctx context.Context, name string) (App, error) {
	var x App
	err := a.Do(ctx, http.MethodGet, "/api/v1/applications/argocd/"+name, nil, &x)
	return x, err
}

// pollTimeout is how long one look of several may take: one that has gone to a
// replica that is frozen is given up, as every client does.
const pollTimeout = 10 * time.Second

// Wait waits until an application satisfies check.
func (a *API) Wait(ctx context.Context, name string, check func(App) error) (App, error) {
	var last App
	err := poll.Until(ctx, func(ctx context.Context) error {
		own, cancel := context.WithTimeout(ctx, pollTimeout)
		defer cancel()
		x, err := a.Get(own, name)
		if err != nil {
			return err
		}
		last = x
		return check(x)
	})
	return last, err
}

// Settled is a check: Synced and Healthy with nothing in progress.
func Settled(x App) error {
	st := x.Status
	if st.Sync.Status != "Synced" || st.Health.Status != "Healthy" {
		return fmt.Errorf("%s is %s and %s (%s), conditions %v, operation %+v", x.Metadata.Name, st.Sync.Status, st.Health.Status, st.Health.Message, st.Conditions, st.OperationState)
	}
	if op := st.OperationState; op != nil && op.Phase != "Succeeded" {
		return fmt.Errorf("operation of %s is %s: %s", x.Metadata.Name, op.Phase, op.Message)
	}
	return nil
}

// SignIn returns a client of another account of the first tenant, whose
// configuration is in dir.
func (s *Stack) SignIn(ctx context.Context, dir, username, password string) (*API, error) {
	return SignIn(ctx, s.options.Bin, dir, s.Hub.URL, username, password)
}

// SignIn returns a client of an account at the hub of a URL. The command line
// is that of the folder bin; its configuration is in dir.
func SignIn(ctx context.Context, bin, dir, hub, username, password string) (*API, error) {
	a := &API{URL: hub, config: dir, bin: bin, password: password}
	if _, err := a.CLI(ctx, password+"\n", "login", a.URL, "--username", username, "--password-stdin"); err != nil {
		return nil, err
	}
	return a, a.readToken()
}
