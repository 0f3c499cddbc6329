package hub

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// StaleAfter is the age from which on what an agent has reported does not count
// as the state of its cluster any more (INV-6).
const StaleAfter = 60 * time.Second

// StaleReason is why a status is not current.
type StaleReason string

// The reasons.
const (
	AgentAway   StaleReason = "AgentAway"   // no agent of the cluster is connected
	AgentBehind StaleReason = "AgentBehind" // it is connected, and the hub lacks changes older than StaleAfter
	SourceError StaleReason = "SourceError" // Git could not be compared with the cluster
)

// Staleness says why and since when the status of an application is not
// current.
type Staleness struct {
	Reason  StaleReason
	Message string
	Since   *time.Time // what is known is as of then; nil: nothing was ever reported
	Expired bool       // it is older than StaleAfter: live state counts as unknown
}

// AsOf is the time up to which the hub has everything that the cluster's agent
// has seen; nil: it was never connected.
func (c *Cluster) AsOf() *time.Time {
	if c == nil || c.LastSeen == nil {
		return nil
	}
	at := c.LastSeen.Add(-c.Lag)
	return &at
}

// Staleness is nil while what the cluster's agent has reported is current.
func (c *Cluster) Staleness(now time.Time) *Staleness {
	if c == nil || c.Connected && c.Lag < StaleAfter {
		return nil
	}
	s := &Staleness{Reason: AgentAway, Since: c.AsOf(), Expired: true}
	switch {
	case c.LastSeen == nil:
		s.Message = fmt.Sprintf("the agent of cluster %s has never been connected", c.Name)
	case c.Connected:
		s.Reason = AgentBehind
		s.Message = fmt.Sprintf("the agent of cluster %s is connected, and the hub has its reports only up to %s", c.Name, stamp(*s.Since))
	default:
		s.Message = fmt.Sprintf("the agent of cluster %s is not connected; it was last connected at %s", c.Name, stamp(*c.LastSeen))
		s.Expired = now.Sub(*s.Since) > StaleAfter
	}
	return s
}

// Broken is why what the sources ask for cannot be compared with the cluster
// now; nil: it can.
func (s ApplicationStatus) Broken() *Condition {
	at := slices.IndexFunc(s.Conditions, func(c Condition) bool { return c.Type == ComparisonError || c.Type == InvalidSpecError })
	if at < 0 {
		return nil
	}
	return &s.Conditions[at]
}

// A Shown is the status of an application as users see it: no state is given
// out as current that is not.
type Shown struct {
	Sync   SyncStatus
	Health HealthStatus
	Stale  *Staleness // nil: current
}

// Show sets how current the status of an application is. On is its cluster,
// nil: it has none.
func (s ApplicationStatus) Show(on *Cluster, now time.Time) Shown {
	out := Shown{Sync: s.Sync, Health: s.Health, Stale: on.Staleness(now)}
	if out.Sync == "" {
		out.Sync = SyncUnknown
	}
	if out.Health == "" {
		out.Health = HealthUnknown
	}
	if why := s.Broken(); why != nil {
		out.Sync = SyncUnknown
		if out.Stale == nil {
			out.Stale = &Staleness{Reason: SourceError, Message: why.Message}
			if s.ComparedAt != nil {
				since := why.Since
				out.Stale.Since = &since
			}
		}
	}
	if out.Stale != nil && out.Stale.Expired {
		out.Sync, out.Health = SyncUnknown, HealthUnknown
	}
	return out
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// State is what an application is above all, the worst that is true of it.
type State string

// The states, in the order in which they prevail.
const (
	StateDeleting    State = "Deleting"
	StateStale       State = "Stale" // live state is unknown because its agent is disconnected
	StateSyncFailed  State = "SyncFailed"
	StateDegraded    State = "Degraded"
	StateSourceError State = "SourceError"
	StateApproval    State = "AwaitingApproval"
	StateSyncing     State = "Syncing"
	StateNotDeployed State = "NotDeployed"
	StateMissing     State = "Missing" // one object or all of them
	StatePaused      State = "Paused"
	StateProgressing State = "Progressing"
	StateOutOfSync   State = "OutOfSync"
	StateSuspended   State = "Suspended"
	StateUnknown     State = "Unknown"
	StateHealthy     State = "Healthy"
)

// A Headline is the one thing that a user should know of an application.
type Headline struct {
	State   State
	Message string
	Since   *time.Time
}

// MissingCause ends each object that the cause of a healthy application names:
// it is desired and not in the cluster (HLT-04).
const MissingCause = ": missing"

// Headline picks the worst that is true of an application. The health of an
// application stays that of Argo CD, which counts neither failed operations nor
// single missing objects.
func (a Application) Headline(on *Cluster, now time.Time) Headline {
	st, shown := a.Status, a.Status.Show(on, now)
	op := st.Operation
	dry := op != nil && op.Options.DryRun
	under := op != nil && !op.Phase.Over()
	failed := op != nil && !dry && op.RetryAt == nil && (op.Phase == Failed || op.Phase == Errored)
	switch {
	case a.DeletingAt != nil:
		h := Headline{State: StateDeleting, Since: a.DeletingAt}
		if op != nil {
			h.Message = op.Message
		}
		return h
	case shown.Stale != nil && shown.Stale.Expired:
		return Headline{StateStale, shown.Stale.Message, shown.Stale.Since}
	case failed:
		return Headline{StateSyncFailed, op.Message, op.FinishedAt}
	case st.Health == Degraded:
		return Headline{StateDegraded, st.HealthCause, st.HealthSince}
	}
	if why := st.Broken(); why != nil {
		return Headline{StateSourceError, why.Message, &why.Since}
	}
	switch {
	case under && !dry && op.AwaitsApproval():
		return Headline{StateApproval, op.Message, op.StartedAt}
	case under && !dry, op != nil && op.RetryAt != nil:
		return Headline{StateSyncing, op.Message, &op.CreatedAt}
	case st.Health == MissingHealth && st.Accepted == "":
		return Headline{State: StateNotDeployed, Message: "nothing has been deployed yet"}
	case st.Health == MissingHealth, st.Health == Healthy && strings.Contains(st.HealthCause, MissingCause):
		return Headline{StateMissing, st.HealthCause, st.HealthSince}
	case a.Pin != nil:
		return Headline{State: StatePaused, Message: a.Pin.Sentence(st.Revision), Since: &a.Pin.At}
	case st.Health == Progressing:
		return Headline{StateProgressing, st.HealthCause, st.HealthSince}
	case shown.Sync == OutOfSync:
		return Headline{State: StateOutOfSync}
	case st.Health == Suspended:
		return Headline{StateSuspended, st.HealthCause, st.HealthSince}
	case shown.Sync == Synced && shown.Health == Healthy:
		return Headline{State: StateHealthy, Since: st.HealthSince}
	}
	return Headline{State: StateUnknown}
}
