package apply

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// GuardAccess is what a guard file permits of one kind of access to containers.
type GuardAccess struct {
	Enabled    bool     `json:"enabled"`
	Namespaces []string `json:"namespaces,omitempty"` // globs; a leading "!" denies; empty: all
	Containers []string `json:"containers,omitempty"` // the same of names of containers
	Ports      []int    `json:"ports,omitempty"`      // of pods; empty: all
	// MaxDuration is how long one session may last, IdleTimeout how long nothing
	// may be typed in it; zero: DefaultDuration and DefaultIdle.
	MaxDuration GuardDuration `json:"maxDuration,omitzero"`
	IdleTimeout GuardDuration `json:"idleTimeout,omitzero"`
}

// Limits of sessions for which a guard file has none.
const (
	DefaultDuration = 8 * time.Hour
	DefaultIdle     = 30 * time.Minute
)

// A GuardDuration is written like 15m or 1h30m.
type GuardDuration time.Duration

// UnmarshalJSON reads one.
func (d *GuardDuration) UnmarshalJSON(text []byte) error {
	var s string
	if err := json.Unmarshal(text, &s); err != nil {
		return fmt.Errorf("a duration is written like 15m: %w", err)
	}
	v, err := time.ParseDuration(s)
	if err != nil {
		return fmt.Errorf("a duration is written like 15m: %w", err)
	}
	*d = GuardDuration(v)
	return nil
}

// MarshalJSON writes one.
func (d GuardDuration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }

// Limits are how long a session may last, and how long nothing may be typed.
func (a GuardAccess) Limits() (most, idle time.Duration) {
	most, idle = time.Duration(a.MaxDuration), time.Duration(a.IdleTimeout)
	if most == 0 {
		most = DefaultDuration
	}
	if idle == 0 {
		idle = DefaultIdle
	}
	return most, idle
}

// Effective are the rules that hold now, with the defaults where no file says
// anything.
func (g Guard) Effective() GuardRules {
	if r := g.rules(); r != nil {
		return *r
	}
	return DefaultRules()
}

// ReadsLogs is nil if the agent may read logs and events of a namespace.
func (g Guard) ReadsLogs(namespace string) error {
	return g.access("logs", g.Effective().Logs, namespace, "")
}

// Executes is nil if commands may be run in a container.
func (g Guard) Executes(namespace, container string) error {
	if g.Observe {
		return g.refuse(podIn(namespace), "this agent only observes; it runs no commands")
	}
	return g.access("exec", g.Effective().Exec, namespace, container)
}

// Forwards is nil if connections to a port of pods may be forwarded.
func (g Guard) Forwards(namespace string, port int) error {
	if g.Observe {
		return g.refuse(podIn(namespace), "this agent only observes; it forwards no ports")
	}
	rules := g.Effective().PortForward
	if err := g.access("portForward", rules, namespace, ""); err != nil {
		return err
	}
	if len(rules.Ports) > 0 && !slices.Contains(rules.Ports, port) {
		return g.refuse(podIn(namespace), "the local guard of the cluster does not permit to forward port %d", port)
	}
	return nil
}

func podIn(namespace string) manifest.Key {
	return manifest.Key{Kind: "Pod", Namespace: namespace, Name: "*"}
}

// access checks one kind of access, which the guard file calls name.
func (g Guard) access(name string, a GuardAccess, namespace, container string) error {
	key := podIn(namespace)
	if err := g.mayRead(key, true); err != nil {
		return err
	}
	switch r := g.rules(); {
	case r != nil && r.Broken != "":
		return g.refuse(key, "the policy of the cluster's owner cannot be read, so nothing is permitted: %s", r.Broken)
	case !a.Enabled:
		return fault.With(fault.New(fault.Denied, "the cluster's owner has not enabled it"), key.Describe(),
			"the cluster's owner can set guard."+name+".enabled: true in the values of the agent's chart")
	case !matchesNamespace(a.Namespaces, namespace):
		return g.refuse(key, "the local guard of the cluster does not permit it in namespace %s", namespace)
	case container != "" && !matchesNamespace(a.Containers, container):
		return g.refuse(key, "the local guard of the cluster does not permit it in container %s", container)
	}
	return nil
}
