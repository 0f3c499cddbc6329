// Package daemon puts the agent together and runs it: inventory, engine,
// watches, outbox and link. It is the only package that creates the others, and
// makes no decisions itself. cmd and the integration tests call Run. While Run
// runs, the last accepted state is enforced, also without the hub.
package daemon

import (
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/capstan-cd/capstan/agent/apply"
	"github.com/capstan-cd/capstan/agent/secrets"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/tunnel"
	"github.com/capstan-cd/capstan/shared/yamltext"
)

// Config configures an agent.
type Config struct {
	// StateDir is where the agent stores its state. It may be lost; the agent
	// then reads everything again from the hub and the cluster.
	StateDir string
	// Namespace is where the agent's Secret and Lease live.
	Namespace string
	// Kubeconfig is a kubeconfig file for the cluster; empty: the pod's service
	// account is used.
	Kubeconfig string
	// REST replaces Kubeconfig in tests.
	REST *rest.Config
	// JoinTokenFile contains the token of the first start. It may be empty or
	// missing once the agent is enrolled.
	JoinTokenFile string
	// JoinToken is the token itself, for tests.
	JoinToken string
	// Mode is what the agent may do: "cluster" (or empty) manages everything,
	// "namespaced" the Namespaces, and "observe" writes nothing.
	Mode string
	// Namespaces are the only ones that the agent has rights in; of mode
	// observe, empty: all.
	Namespaces []string
	// GuardFile contains rules of the cluster's owner, which the hub cannot
	// change; empty: none.
	GuardFile string
	// SecretsFile contains the policy of the cluster's owner for references to
	// secrets, which the hub cannot change; empty: none are resolved.
	SecretsFile string
	// OwnRoles are names of roles and bindings that grant the agent its rights,
	// in addition to those that its chart names after Namespace. All of them
	// are protected from manifests.
	OwnRoles []string
	// FieldManager is the agent's field manager; empty: capstan.
	FieldManager string
	// HTTPSProxy and NoProxy set the HTTP proxy for the hub, with the syntax of
	// the environment variables. Empty: none.
	HTTPSProxy, NoProxy string
	// ProxyCAFile contains certificates (PEM) of authorities that, like the
	// system's, may sign whatever terminates TLS in front of the hub. Empty: no
	// check; the hub proves its own key inside the connection in any case.
	ProxyCAFile string
	// Upgrades permits the hub to replace the agent's image, by one of the same
	// repository or of the UpgradeRepositories.
	Upgrades            bool
	UpgradeRepositories []string
	// Upgrade is the id of the upgrade that created the pod; empty: none.
	Upgrade string
	// Watchdog ends the agent after this time without a response of the hub;
	// zero: 10 min; negative: never.
	Watchdog time.Duration
	// WaveDelay is the pause between two waves of a sync, unless the
	// application or the tenant sets another; at most a minute.
	WaveDelay time.Duration
	// Log receives log lines.
	Log *slog.Logger
	// Listen is where health and metrics are served, such as 127.0.0.1:8081;
	// empty: nowhere.
	Listen string
	// Profiles serves /debug/pprof there, too.
	Profiles bool
	// Dial opens connections to the hub; nil: TCP.
	Dial tunnel.Dialer
	// Wrap wraps the transport to the API server; nil: none.
	Wrap func(http.RoundTripper) http.RoundTripper
}

// Validate reports every problem at once.
func (c Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fault.New(fault.Invalid, format, args...)) }
	for name, missing := range map[string]bool{
		"a state directory": c.StateDir == "", "a namespace": c.Namespace == "", "a logger": c.Log == nil,
	} {
		if missing {
			bad("the agent needs %s", name)
		}
	}
	if c.StateDir != "" && !filepath.IsAbs(c.StateDir) {
		bad("the state directory %q is not an absolute path", c.StateDir)
	}
	if problem := c.modeProblem(); problem != "" {
		bad("%s", problem)
	}
	if c.WaveDelay < 0 || c.WaveDelay > time.Minute {
		bad("the pause between two waves is %s, and may be 0 to 60 seconds (ARGOCD_SYNC_WAVE_DELAY, --wave-delay)", c.WaveDelay)
	}
	for _, n := range c.Namespaces {
		if !label.MatchString(n) {
			bad("%q is not a valid name of a namespace", n)
		}
	}
	if c.FieldManager != "" && !label.MatchString(c.FieldManager) {
		bad("the field manager %q is not a word of lower-case letters, digits and hyphens", c.FieldManager)
	}
	return errors.Join(errs...)
}

// modeProblem says what is wrong with the mode and its namespaces; empty:
// nothing.
func (c Config) modeProblem() string {
	switch c.Mode {
	case "", ModeCluster:
		if len(c.Namespaces) > 0 {
			return "mode cluster has no namespaces; use mode namespaced, or a guard file"
		}
	case ModeNamespaced:
		if len(c.Namespaces) == 0 {
			return "mode namespaced needs the namespaces that the agent manages"
		}
	case ModeObserve:
	default:
		return fmt.Sprintf("mode %q is not one of cluster, namespaced, observe", c.Mode)
	}
	return ""
}

// The modes of an agent.
const (
	ModeCluster    = "cluster"
	ModeNamespaced = "namespaced"
	ModeObserve    = "observe"
)

// label matches a valid name of a namespace.
var label = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// guard reads the rules that the hub cannot change.
func (c Config) guard() (apply.Guard, error) {
	g := apply.Guard{Observe: c.Mode == ModeObserve, Scope: c.Namespaces, Home: c.Namespace, Own: c.OwnRoles}
	if c.GuardFile == "" {
		return g, nil
	}
	if _, err := os.Stat(c.GuardFile); err != nil {
		return g, fault.Wrap(fault.Invalid, err, "the guard file %s cannot be read", c.GuardFile)
	}
	// A mistake that was there before the start is reported by ending, as any other
	// of the configuration; one that comes later permits nothing until it is mended.
	if err := CheckGuard(c.GuardFile); err != nil {
		return g, err
	}
	g.Current = newGuardFile(c.GuardFile, c.Log).current
	return g, nil
}

// secretsPolicy reads which references to secrets may be resolved.
func (c Config) secretsPolicy() (secrets.Policy, error) {
	var p secrets.Policy
	if c.SecretsFile == "" {
		return p, nil
	}
	raw, err := os.ReadFile(c.SecretsFile)
	if err != nil {
		return p, fault.Wrap(fault.Invalid, err, "the secrets policy %s cannot be read", c.SecretsFile)
	}
	if err := yamltext.Decode(c.SecretsFile, raw, &p); err != nil {
		return p, err
	}
	if err := p.Validate(); err != nil {
		return p, fault.Wrap(fault.Invalid, err, "the secrets policy %s: %s", c.SecretsFile, fault.Sentence(err))
	}
	return p, nil
}

// token reads the join token; empty: there is none.
func (c Config) token() (string, error) {
	if c.JoinToken != "" || c.JoinTokenFile == "" {
		return strings.TrimSpace(c.JoinToken), nil
	}
	raw, err := os.ReadFile(c.JoinTokenFile)
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fault.Wrap(fault.Invalid, err, "the join token cannot be read from %q", c.JoinTokenFile)
	}
	return strings.TrimSpace(string(raw)), nil
}

// Proxy describes the proxies between the agent and the hub.
func (c Config) Proxy() (tunnel.ProxyConfig, error) {
	proxy, err := tunnel.NewProxy(c.HTTPSProxy, c.NoProxy)
	if err != nil {
		return tunnel.ProxyConfig{}, err
	}
	o := tunnel.ProxyConfig{Proxy: proxy}
	if c.ProxyCAFile == "" {
		return o, nil
	}
	raw, err := os.ReadFile(c.ProxyCAFile)
	if err != nil {
		return o, fault.Wrap(fault.Invalid, err, "the outer CA file %q cannot be read", c.ProxyCAFile)
	}
	if o.Roots, err = x509.SystemCertPool(); err != nil {
		o.Roots = x509.NewCertPool()
	}
	if !o.Roots.AppendCertsFromPEM(raw) {
		return o, fault.New(fault.Invalid, "the outer CA file %q contains no certificate in PEM", c.ProxyCAFile)
	}
	return o, nil
}

// rest configures the connection to the cluster.
func (c Config) rest() (*rest.Config, error) {
	conf := c.REST
	var err error
	switch {
	case conf != nil:
		conf = rest.CopyConfig(conf)
	case c.Kubeconfig != "":
		if conf, err = clientcmd.BuildConfigFromFlags("", c.Kubeconfig); err != nil {
			return nil, fault.Wrap(fault.Invalid, err, "the kubeconfig %q cannot be used", c.Kubeconfig)
		}
	default:
		if conf, err = rest.InClusterConfig(); err != nil {
			return nil, fault.With(fault.Wrap(fault.Invalid, err, "the agent does not run in a pod and has no kubeconfig"), "", "give it --kubeconfig")
		}
	}
	conf.QPS, conf.Burst = -1, -1 // the API server's own fairness is the limit
	conf.UserAgent = fmt.Sprintf("capstan-agent/%s", userAgentVersion())
	if c.Wrap != nil {
		conf.Wrap(c.Wrap)
	}
	return conf, nil
}
