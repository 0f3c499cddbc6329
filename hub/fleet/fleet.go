// Package fleet admits agents and tracks their sessions: it has the private
// authority, exchanges join tokens for certificates, answers Hello, and
// disconnects agents that are revoked, silent or replaced. It reads neither
// desired nor observed state, and connects to no cluster. The hub's daemon runs
// one Server and registers the other services of the link on it. An agent is
// identified by its verified certificate alone. Before Hello only Enroll is
// allowed.
package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"google.golang.org/grpc"

	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/tunnel"
	"github.com/capstan-cd/capstan/shared/version"
)

// Config is what a Server needs. Fields without a default are required.
type Config struct {
	Authority   *Authority
	Enrolments  Enrolments
	Revocations Revocations
	Presence    Presence
	Refusals    Refusals
	Keys        Keys
	Log         *slog.Logger

	// Control adds services to the lane of small messages.
	Control func(grpc.ServiceRegistrar)
	// Bulk adds services that agents may call on either lane.
	Bulk func(grpc.ServiceRegistrar)

	// Unary and Stream run around every call of an agent, on both lanes.
	Unary  []grpc.UnaryServerInterceptor
	Stream []tunnel.StreamWrapper
	// Caught converts a panic in a stream of an agent to an error; nil: it
	// continues.
	Caught func(ctx context.Context, method string, value any) error
	// Enrolled receives each attempt to enrol and the stage that it reached;
	// nil: none.
	Enrolled func(stage string)
	// Revoked is called when an agent may have been replaced by a new one, so
	// that other replicas check at once, as this one does; nil: none.
	Revoked func()

	// Replica names this process to agents and in the presence rows.
	Replica string
	// Features are the names of what this hub can do beyond the first release.
	Features []string
	// MinVersion is the oldest admitted version of agents; empty: three minor
	// versions before this hub's.
	MinVersion string
	// Admit is how many agents a second are admitted, and AdmitBurst how many
	// at once; zero: 100 and 600.
	Admit      float64
	AdmitBurst int
	// Clock is time; nil: the real one.
	Clock lifecycle.Clock
	// Heartbeat is how often agents shall send one; zero: 10 s.
	Heartbeat time.Duration
	// Silence is how long an agent may send nothing; zero: 30 s.
	Silence time.Duration
	// Revocation is how often the revocation version is asked for; zero: 2 s.
	Revocation time.Duration
	// Batch is how often presence is written; zero: 5 s.
	Batch time.Duration
}

func (c Config) withDefaults() Config {
	if c.Clock == nil {
		c.Clock = lifecycle.System{}
	}
	if c.Enrolled == nil {
		c.Enrolled = func(string) {}
	}
	if c.Revoked == nil {
		c.Revoked = func() {}
	}
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&c.Heartbeat, 10 * time.Second},
		{&c.Silence, 30 * time.Second},
		{&c.Revocation, 2 * time.Second},
		{&c.Batch, 5 * time.Second},
	} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	c.MinVersion = cmp.Or(c.MinVersion, minVersionOf(version.Number))
	c.Admit, c.AdmitBurst = cmp.Or(c.Admit, admitPerSecond), cmp.Or(c.AdmitBurst, admitBurst)
	return c
}

// Validate reports every problem at once.
func (c Config) Validate() error {
	var errs []error
	for name, missing := range map[string]bool{
		"Authority": c.Authority == nil, "Enrolments": c.Enrolments == nil, "Revocations": c.Revocations == nil,
		"Presence": c.Presence == nil, "Refusals": c.Refusals == nil, "Keys": c.Keys == nil, "Log": c.Log == nil, "Replica": c.Replica == "",
	} {
		if missing {
			errs = append(errs, fmt.Errorf("fleet: %s is not set", name))
		}
	}
	if c.Heartbeat < 0 || c.Silence < 0 || c.Revocation < 0 || c.Batch < 0 {
		errs = append(errs, errors.New("fleet: an interval is negative"))
	}
	if c.Admit < 0 || c.AdmitBurst < 0 {
		errs = append(errs, errors.New("fleet: the rate of admission is negative"))
	}
	if c.Heartbeat > 0 && c.Silence > 0 && c.Silence < 2*c.Heartbeat {
		errs = append(errs, fmt.Errorf("fleet: silence %s is less than two heartbeats of %s", c.Silence, c.Heartbeat))
	}
	return errors.Join(errs...)
}
