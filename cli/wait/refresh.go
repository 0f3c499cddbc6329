package wait

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/cli/exit"
	"github.com/capstan-cd/capstan/cli/output"
	"github.com/capstan-cd/capstan/shared/apimodel"
)

// How long a refresh is waited for: until it is done, or, when an error stood
// already, until it would have shown that the error is over.
const (
	// LongRefresh is the default.
	LongRefresh  = 2 * time.Minute
	shortRefresh = 5 * time.Second
	refreshPoll  = 100 * time.Millisecond // a refresh that changes nothing is no event of the stream
)

// A Refresh has an application before and after its refresh; Raw is the
// response for the latter.
type Refresh struct {
	before, after apimodel.Application
	Raw           []byte
}

// Refreshed asks for a refresh and waits until it has happened.
func (a Watcher) Refreshed(ctx context.Context, namespace, name string, hard bool, timeout time.Duration) (Refresh, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, exit.ErrTimeout)
	defer cancel()
	var out Refresh
	var err error
	if out.before, _, err = client.Call[apimodel.Application](a.API.GetApplication(ctx, namespace, name, apimodel.GetApplicationParams{})); err != nil {
		return out, err
	}
	if _, err := client.Read(a.API.RefreshApplication(ctx, namespace, name, apimodel.RefreshApplicationParams{Hard: hard})); err != nil {
		return out, err
	}
	asked := time.Now()
	for wait := true; wait; wait = !skipped(out.after) {
		out.after, out.Raw, err = client.Call[apimodel.Application](a.API.GetApplication(ctx, namespace, name, apimodel.GetApplicationParams{}))
		switch {
		case err != nil && errors.Is(context.Cause(ctx), exit.ErrTimeout):
		case err != nil || out.refreshedAt(out.after).After(out.refreshedAt(out.before)) || unusable(out.after.Status) != "" && time.Since(asked) > shortRefresh:
			return out, err
		}
		select {
		case <-ctx.Done():
			return out, fmt.Errorf("application %s: the refresh %w after %s", name, context.Cause(ctx), timeout)
		case <-time.After(refreshPoll):
		}
	}
	return out, nil
}

// Compared waits until the cluster has compared itself with the newest
// revision: before, its status is that of an earlier one. It does not wait for
// a disconnected cluster.
func (a Watcher) Compared(ctx context.Context, namespace, name string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, LongRefresh, exit.ErrTimeout)
	defer cancel()
	for {
		x, _, err := client.Call[apimodel.Application](a.API.GetApplication(ctx, namespace, name, apimodel.GetApplicationParams{}))
		if err != nil {
			return err
		}
		st := x.Status
		on := st.Capstan
		if !st.ReconciledAt.IsZero() || on.Target == "" || on.Connection != apimodel.HubStatusConnectionConnected {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("application %s: what its sources say now has not been compared with the cluster: %w after %s", name, context.Cause(ctx), LongRefresh)
		case <-time.After(refreshPoll):
		}
	}
}

// skipped reports whether an application is left alone, so that no refresh of it
// ever happens.
func skipped(x apimodel.Application) bool {
	return x.Metadata.Annotations[skipReconcile] == "true"
}

const skipReconcile = "argocd.argoproj.io/skip-reconcile"

func (Refresh) refreshedAt(x apimodel.Application) time.Time {
	return x.Status.Capstan.RefreshedAt
}

// Table says what a refresh has found.
func (r Refresh) Table() output.Table {
	revision := func(x apimodel.Application) string { return x.Status.Sync.Revision }
	target := func(x apimodel.Application) string { return x.Status.Capstan.Target }
	was, now, found := revision(r.before), revision(r.after), "unchanged"
	switch {
	case unusable(r.after.Status) != "":
		found = unusable(r.after.Status)
	case skipped(r.after):
		found = "nothing: the annotation " + skipReconcile + " leaves it alone"
	case was == "":
		found = "first revision"
	case was != now && target(r.before) == target(r.after):
		found = "was " + output.Short(was) + ", same manifests"
	case was != now:
		found = "was " + output.Short(was)
	case target(r.before) != target(r.after):
		found = "same revision, other manifests"
	}
	at := "-"
	if t := r.refreshedAt(r.after); !t.IsZero() {
		at = t.Local().Format("2006-01-02 15:04:05 -0700")
	}
	return output.Table{
		Head: []string{"NAME", "REVISION", "FOUND", "REFRESHED"}, Names: []string{"application/" + client.QualifiedName(r.after.Metadata)},
		Rows: [][]string{{client.QualifiedName(r.after.Metadata), output.Dash(output.Short(now)), found, at}},
	}
}
