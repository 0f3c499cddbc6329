package hub_test

import (
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
)

func TestFreshness(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	before := func(d time.Duration) *time.Time { at := now.Add(-d); return &at }
	compared := before(time.Minute)
	synced := hub.ApplicationStatus{Sync: hub.Synced, Health: hub.Healthy, ComparedAt: compared}
	broken := synced
	broken.Conditions = []hub.Condition{{Type: hub.ComparisonError, Message: "no branch main", Since: *before(time.Hour)}}
	never := broken
	never.ComparedAt = nil
	there := &hub.Cluster{Connected: true, LastSeen: before(9 * time.Second)}
	for name, c := range map[string]struct {
		status hub.ApplicationStatus
		on     *hub.Cluster
		want   hub.Shown
	}{
		"a connected agent vouches for its reports": {synced, there, hub.Shown{Sync: hub.Synced, Health: hub.Healthy}},
		"a clock that is wrong makes nothing stale while the agent is connected": {
			synced, &hub.Cluster{Connected: true, LastSeen: before(time.Hour)}, hub.Shown{Sync: hub.Synced, Health: hub.Healthy},
		},
		"an agent that has just gone leaves its state marked": {
			synced, &hub.Cluster{LastSeen: before(20 * time.Second)},
			hub.Shown{Sync: hub.Synced, Health: hub.Healthy, Stale: &hub.Staleness{Reason: hub.AgentAway, Since: before(20 * time.Second)}},
		},
		"an agent that is away for long leaves nothing that is known": {
			synced, &hub.Cluster{LastSeen: before(61 * time.Second)},
			hub.Shown{Sync: hub.SyncUnknown, Health: hub.HealthUnknown, Stale: &hub.Staleness{Reason: hub.AgentAway, Since: before(61 * time.Second), Expired: true}},
		},
		"what an agent had not delivered when it went counts": {
			synced, &hub.Cluster{LastSeen: before(20 * time.Second), Lag: 50 * time.Second},
			hub.Shown{Sync: hub.SyncUnknown, Health: hub.HealthUnknown, Stale: &hub.Staleness{Reason: hub.AgentAway, Since: before(70 * time.Second), Expired: true}},
		},
		"a connected agent that delivers late": {
			synced, &hub.Cluster{Connected: true, LastSeen: before(0), Lag: 2 * time.Minute},
			hub.Shown{Sync: hub.SyncUnknown, Health: hub.HealthUnknown, Stale: &hub.Staleness{Reason: hub.AgentBehind, Since: before(2 * time.Minute), Expired: true}},
		},
		"an agent that never came": {
			synced, &hub.Cluster{}, hub.Shown{Sync: hub.SyncUnknown, Health: hub.HealthUnknown, Stale: &hub.Staleness{Reason: hub.AgentAway, Expired: true}},
		},
		"a source that is broken makes sync unknown, since when it is broken, and leaves health": {
			broken, there, hub.Shown{Sync: hub.SyncUnknown, Health: hub.Healthy, Stale: &hub.Staleness{Reason: hub.SourceError, Since: before(time.Hour)}},
		},
		"one that never worked has no last comparison": {
			never, there, hub.Shown{Sync: hub.SyncUnknown, Health: hub.Healthy, Stale: &hub.Staleness{Reason: hub.SourceError}},
		},
		"nothing is known at first": {hub.ApplicationStatus{}, nil, hub.Shown{Sync: hub.SyncUnknown, Health: hub.HealthUnknown}},
	} {
		t.Run("INV-6 "+name, func(t *testing.T) {
			got := c.status.Show(c.on, now)
			if got.Sync != c.want.Sync || got.Health != c.want.Health || (got.Stale == nil) != (c.want.Stale == nil) {
				t.Fatalf("shown %+v with %+v, want %+v with %+v", got, got.Stale, c.want, c.want.Stale)
			}
			if got.Stale == nil {
				return
			}
			s, want := *got.Stale, *c.want.Stale
			if s.Reason != want.Reason || s.Expired != want.Expired || s.Message == "" || (s.Since == nil) != (want.Since == nil) || s.Since != nil && !s.Since.Equal(*want.Since) {
				t.Errorf("stale %+v since %v, want %+v since %v", s, s.Since, want, want.Since)
			}
		})
	}
}

func TestHeadline(t *testing.T) {
	t.Parallel()
	now := time.Now()
	at := now.Add(-time.Hour)
	there := &hub.Cluster{Connected: true, LastSeen: &now}
	failed := &hub.Operation{Phase: hub.Failed, Message: "Service shop/web: port is out of range", OperationTimes: hub.OperationTimes{FinishedAt: &at}}
	for name, c := range map[string]struct {
		app  hub.Application
		on   *hub.Cluster
		want hub.State
		why  string
	}{
		"all is well": {
			app: hub.Application{Status: hub.ApplicationStatus{Sync: hub.Synced, Health: hub.Healthy}}, on: there, want: hub.StateHealthy,
		},
		"HLT-04 a failed sync is more than the health of what is there": {
			app: hub.Application{Status: hub.ApplicationStatus{Sync: hub.OutOfSync, Health: hub.Healthy, HealthCause: "Service shop/web: missing", Operation: failed, Accepted: "s"}},
			on:  there, want: hub.StateSyncFailed, why: failed.Message,
		},
		"a dry run that failed is not the state of the application": {
			app: hub.Application{Status: hub.ApplicationStatus{Sync: hub.Synced, Health: hub.Healthy, Operation: &hub.Operation{Phase: hub.Failed, Options: hub.OperationOptions{DryRun: true}}}},
			on:  there, want: hub.StateHealthy,
		},
		"a failure that is tried again is a sync under way": {
			app: hub.Application{Status: hub.ApplicationStatus{Sync: hub.OutOfSync, Health: hub.Healthy, Operation: &hub.Operation{Phase: hub.Failed, RetryAt: &now}}},
			on:  there, want: hub.StateSyncing,
		},
		"HLT-04 one missing object": {
			app: hub.Application{Status: hub.ApplicationStatus{Sync: hub.OutOfSync, Health: hub.Healthy, HealthCause: "Service shop/web: missing", Accepted: "s"}},
			on:  there, want: hub.StateMissing, why: "Service shop/web: missing",
		},
		"nothing was ever deployed": {
			app: hub.Application{Status: hub.ApplicationStatus{Sync: hub.OutOfSync, Health: hub.MissingHealth}}, on: there, want: hub.StateNotDeployed, why: "nothing has been deployed yet",
		},
		"everything went": {
			app: hub.Application{Status: hub.ApplicationStatus{Sync: hub.OutOfSync, Health: hub.MissingHealth, HealthCause: "nothing is there", Accepted: "s"}}, on: there,
			want: hub.StateMissing, why: "nothing is there",
		},
		"degraded before paused": {
			app: hub.Application{Pin: &hub.Pin{}, Status: hub.ApplicationStatus{Sync: hub.Synced, Health: hub.Degraded, HealthCause: "Deployment web"}}, on: there,
			want: hub.StateDegraded, why: "Deployment web",
		},
		"a rollback": {
			app: hub.Application{Pin: &hub.Pin{At: at, By: "ann"}, Status: hub.ApplicationStatus{Sync: hub.Synced, Health: hub.Healthy, Revision: "c0ffee1234"}}, on: there,
			want: hub.StatePaused, why: "paused at c0ffee12 since " + at.UTC().Format(time.RFC3339) + ", rolled back by ann",
		},
		"a broken source": {
			app: hub.Application{Status: hub.ApplicationStatus{Sync: hub.Synced, Health: hub.Healthy, Conditions: []hub.Condition{{Type: hub.ComparisonError, Message: "no path x"}}}},
			on:  there, want: hub.StateSourceError, why: "no path x",
		},
		"an agent that is away hides everything else": {
			app: hub.Application{Status: hub.ApplicationStatus{Sync: hub.Synced, Health: hub.Degraded, Operation: failed}}, on: &hub.Cluster{Meta: hub.Meta{Name: "prod"}, LastSeen: &at},
			want: hub.StateStale, why: "the agent of cluster prod is not connected; it was last connected at " + at.UTC().Format(time.RFC3339),
		},
		"an application without a cluster": {app: hub.Application{Status: hub.ApplicationStatus{}}, want: hub.StateUnknown},
	} {
		t.Run("INV-6 "+name, func(t *testing.T) {
			got := c.app.Headline(c.on, now)
			if got.State != c.want || got.Message != c.why {
				t.Errorf("headline %q %q, want %q %q", got.State, got.Message, c.want, c.why)
			}
		})
	}
}
