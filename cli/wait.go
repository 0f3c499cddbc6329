package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/shared/apimodel"
	"github.com/capstan-cd/capstan/shared/fault"
)

// rereadPause is the longest time between two reads of a wait: the
// disconnection of an agent is no event of its applications.
const rereadPause = 2 * time.Second

// A watcher follows applications of one hub.
type watcher struct {
	api  *client.Client
	note func(format string, args ...any) // writes a line for people
}

// waiting says what is waited for. Without any of the states, it is synced,
// healthy and at rest. Of several healths any will do.
type waiting struct {
	timeout                time.Duration
	away                   time.Duration // how long a disconnected agent is waited for
	sync, health, finished bool
	suspended, degraded    bool
	resources              []apimodel.ResourceSelector // of these objects alone; empty: of the application
	operation              string                      // an operation whose end is waited for first
	newest                 bool                        // the operation was to apply what the sources say now
	rollback               bool                        // the operation goes back, so the application is not as Git says afterwards
}

func (w *waiting) flags(f *pflag.FlagSet) {
	w.timeoutFlag(f)
	f.DurationVar(&w.away, "agent-timeout", 30*time.Second, "how long to wait for a disconnected agent; then the exit code is 8")
	f.BoolVar(&w.sync, "sync", false, "wait for Synced")
	f.BoolVar(&w.health, "health", false, "wait for Healthy")
	f.BoolVar(&w.finished, "operation", false, "wait for the end of the operation")
}

func (w *waiting) timeoutFlag(f *pflag.FlagSet) {
	f.DurationVar(&w.timeout, "timeout", 5*time.Minute, "how long to wait")
}

// everything reports whether no state was asked for.
func (w waiting) everything() bool {
	return !w.sync && !w.health && !w.finished && !w.suspended && !w.degraded
}

// healths are those that will do; empty: any.
func (w waiting) healths() []string {
	var out []string
	for health, wanted := range map[string]bool{"Healthy": w.health || w.everything(), "Suspended": w.suspended, "Degraded": w.degraded} {
		if wanted {
			out = append(out, health)
		}
	}
	slices.Sort(out)
	return out
}

// decide reports whether the wait is over, and with which result; why is what is
// missing yet.
func (w waiting) decide(x apimodel.Application) (over bool, why string, err error) {
	st := x.Status
	op := st.OperationState
	all := w.everything()
	if op.Phase != "" && (w.operation == "" || op.Id == w.operation || op.RetryCount > 0) {
		switch {
		case op.Phase == "Pending" || op.Phase == "Running" || op.Phase == "Terminating":
			if all || w.finished || w.operation != "" {
				return false, fmt.Sprintf("operation %s: %s", op.Phase, dash(op.Message)), nil
			}
		case !op.RetryAt.IsZero():
			return false, fmt.Sprintf("operation failed and is tried again at %s: %s", op.RetryAt.Format(time.TimeOnly), op.Message), nil
		case op.Phase != "Succeeded" && w.operation != "":
			return true, "", fault.New(fault.Conflict, "operation %s: %s", op.Phase, op.Message)
		}
		if w.operation != "" && op.Operation.Sync.DryRun {
			return true, "", nil
		}
	} else if w.operation != "" {
		return false, "the operation has not been seen yet", nil
	}
	if len(w.resources) > 0 {
		return true, "", nil // their states are read one by one
	}
	if p := st.Capstan.Paused; given(p) && (all || w.sync) && !w.rollback && st.Sync.Status == "OutOfSync" {
		// Nothing happens by itself, so there is nothing to wait for.
		return true, "", fault.With(fault.New(fault.Conflict, "%s, and not as Git says", p.Message), "application "+qualified(x.Metadata),
			"`capstan app resume "+qualified(x.Metadata)+"` follows Git again")
	}
	broken := unusable(st)
	switch {
	case !all && !w.sync:
	case broken == "" && w.rollback:
	case broken == "":
		if st.Sync.Status != "Synced" {
			return false, "not synced" + conditionText(st), nil
		}
	case w.operation == "":
		return false, "what its sources say now cannot be deployed: " + broken, nil
	case w.newest:
		return true, "", fault.New(fault.Conflict, "what was applied is what was rendered before, because what its sources say now cannot be deployed: %s", broken)
	}
	if wanted := w.healths(); len(wanted) > 0 && !slices.Contains(wanted, string(st.Health.Status)) {
		return false, "not " + strings.ToLower(strings.Join(wanted, " or ")) + conditionText(st), nil
	}
	return true, "", nil
}

// definite reports whether the result that was waited for is that of an operation
// alone, which does not change any more.
func (w waiting) definite(x apimodel.Application) bool {
	if w.finished && !w.sync && len(w.healths()) == 0 {
		return true
	}
	op := x.Status.OperationState
	return w.operation != "" && op.Operation.Sync.DryRun
}

// unusable is the reason why the newest revision cannot be deployed; empty if
// it can. The application may be Synced with an earlier one.
func unusable(st apimodel.ApplicationStatus) string {
	for _, c := range st.Conditions {
		if c.Type == "ComparisonError" || c.Type == "InvalidSpecError" {
			return c.Type + ": " + c.Message
		}
	}
	return ""
}

func conditionText(st apimodel.ApplicationStatus) string {
	var out []string
	if st.Health.Message != "" {
		out = append(out, st.Health.Message)
	}
	for _, c := range st.Conditions {
		out = append(out, c.Type+": "+c.Message)
	}
	if len(out) == 0 {
		return ""
	}
	return " (" + strings.Join(out, "; ") + ")"
}

// settled follows the stream until an application is where it should be, and
// returns it.
func (a watcher) settled(ctx context.Context, namespace, name string, w waiting) (out apimodel.Application, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, w.timeout, errTimeout)
	defer cancel()
	why := "the hub has not said how it is"
	absent := absence{app: name, most: w.away}
	decide := func(x apimodel.Application) (over bool, err error) {
		if over, why, err = w.decide(x); !over || err != nil || len(w.resources) == 0 {
			return over, err
		}
		why, err = w.resourcesAwaited(ctx, a.api, namespace, name)
		return why == "" && err == nil, err
	}
	err = a.watch(ctx, namespace, name, func(x apimodel.Application, _ []byte) (bool, error) {
		over, err := decide(x)
		if err != nil {
			return over, err
		}
		if !over {
			return false, absent.record(a, time.Now(), awayReason(x), x)
		}
		if out = x; w.definite(x) {
			return true, nil
		}
		// What the hub has may be older than this command. The agent confirms it.
		asked := time.Now()
		now, _, err := call[apimodel.Application](a.api.GetApplication(ctx, namespace, name, apimodel.GetApplicationParams{Confirm: true}))
		switch {
		case unavailable(err):
			return false, absent.record(a, asked, answerText(err), x)
		case err != nil:
			return false, err
		}
		out = now
		return decide(now)
	})
	if errors.Is(context.Cause(ctx), errTimeout) && err != nil {
		if !absent.since.IsZero() {
			return out, absent.err()
		}
		return out, fmt.Errorf("application %s: %w after %s: %s", name, errTimeout, w.timeout, why)
	}
	return out, err
}

// resourcesAwaited says which of the objects that are waited for is not where it
// should be; empty: none.
func (w waiting) resourcesAwaited(ctx context.Context, api *client.Client, namespace, name string) (string, error) {
	tree, _, err := call[apimodel.Tree](api.GetApplicationTree(ctx, namespace, name))
	if err != nil {
		return "", err
	}
	wanted := w.healths()
	for _, r := range w.resources {
		found := false
		for _, n := range tree.Nodes {
			if !n.Managed || n.Kind != r.Kind || n.Name != r.Name || n.Group != r.Group || r.Namespace != "" && n.Namespace != r.Namespace {
				continue
			}
			found = true
			what := n.Kind + " " + n.Name
			if (w.sync || w.everything()) && n.Status != "Synced" {
				return what + " is not synced", nil
			}
			if health := string(n.Health); len(wanted) > 0 && health != "" && !slices.Contains(wanted, health) {
				return fmt.Sprintf("%s is %s, not %s %s", what, health, strings.Join(wanted, " or "), n.Message), nil
			}
		}
		if !found {
			return fmt.Sprintf("the application has no %s %s", r.Kind, r.Name), nil
		}
	}
	return "", nil
}

// An absence is the time during which the state of an application could not be
// confirmed.
type absence struct {
	app   string
	most  time.Duration
	since time.Time // zero: the agent is there
	why   string
	known string // what the hub knew last
}

// record records why the state could not be confirmed at a time, empty: it could.
// The error is errAway once that has lasted too long.
func (b *absence) record(a watcher, at time.Time, why string, x apimodel.Application) error {
	if why == "" {
		b.since = time.Time{}
		return nil
	}
	b.why, b.known = why, lastKnown(x)
	if b.since.IsZero() {
		b.since = at
		a.note("capstan: application %s: %s; waiting %s for it", b.app, why, b.most)
	}
	if time.Since(b.since) < b.most {
		return nil
	}
	return b.err()
}

func (b *absence) err() error {
	return fmt.Errorf("application %s: %w: %s; %s", b.app, errAway, b.why, b.known)
}

// awayReason is why the state of an application is outdated because of its
// agent; empty: it is connected.
func awayReason(x apimodel.Application) string {
	on := x.Status.Capstan
	if !given(on.Stale) || on.Stale.Reason == apimodel.StaleReasonSourceError {
		return ""
	}
	return on.Stale.Message
}

// lastKnown says what the hub knew last, and as of when.
func lastKnown(x apimodel.Application) string {
	st := x.Status
	stale := st.Capstan.Stale
	sync, health := string(st.Sync.Status), string(st.Health.Status)
	if stale.Sync != "" && stale.Health != "" {
		sync, health = string(stale.Sync), string(stale.Health)
	}
	asOf := st.Capstan.AsOf
	if asOf.IsZero() {
		return "nothing is known of it yet"
	}
	return fmt.Sprintf("%s and %s are as of %s (%s ago)", sync, health, asOf.Format(time.RFC3339), ago(asOf))
}

// awaitTarget waits until an application that was just made has been
// rendered, or says why it cannot be.
func (a watcher) awaitTarget(ctx context.Context, namespace, name string, w waiting) error {
	ctx, cancel := context.WithTimeoutCause(ctx, w.timeout, errTimeout)
	defer cancel()
	return a.watch(ctx, namespace, name, func(x apimodel.Application, _ []byte) (bool, error) {
		st := x.Status
		rendered := st.Capstan.Target != ""
		return rendered || len(st.Conditions) > 0, nil
	})
}

// How long a refresh is waited for: until it is done, or, when an error stood
// already, until it would have shown that the error is over.
const (
	longRefresh  = 2 * time.Minute
	shortRefresh = 5 * time.Second
	refreshPoll  = 100 * time.Millisecond // a refresh that changes nothing is no event of the stream
)

// A refresh has an application before and after its refresh; raw is the
// response for the latter.
type refresh struct {
	before, after apimodel.Application
	raw           []byte
}

// refreshed asks for a refresh and waits until it has happened.
func (a watcher) refreshed(ctx context.Context, namespace, name string, hard bool, timeout time.Duration) (refresh, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errTimeout)
	defer cancel()
	var out refresh
	var err error
	if out.before, _, err = call[apimodel.Application](a.api.GetApplication(ctx, namespace, name, apimodel.GetApplicationParams{})); err != nil {
		return out, err
	}
	if _, err := read(a.api.RefreshApplication(ctx, namespace, name, apimodel.RefreshApplicationParams{Hard: hard})); err != nil {
		return out, err
	}
	asked := time.Now()
	for wait := true; wait; wait = !skipped(out.after) {
		out.after, out.raw, err = call[apimodel.Application](a.api.GetApplication(ctx, namespace, name, apimodel.GetApplicationParams{}))
		switch {
		case err != nil && errors.Is(context.Cause(ctx), errTimeout):
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

// skipped reports whether an application is left alone, so that no refresh of it
// ever happens.
func skipped(x apimodel.Application) bool {
	return x.Metadata.Annotations[skipReconcile] == "true"
}

const skipReconcile = "argocd.argoproj.io/skip-reconcile"

func (refresh) refreshedAt(x apimodel.Application) time.Time {
	return x.Status.Capstan.RefreshedAt
}

// table says what a refresh has found.
func (r refresh) table() table {
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
		found = "was " + short(was) + ", same manifests"
	case was != now:
		found = "was " + short(was)
	case target(r.before) != target(r.after):
		found = "same revision, other manifests"
	}
	at := "-"
	if t := r.refreshedAt(r.after); !t.IsZero() {
		at = t.Local().Format("2006-01-02 15:04:05 -0700")
	}
	return table{
		head: []string{"NAME", "REVISION", "FOUND", "REFRESHED"}, name: []string{"application/" + r.after.Metadata.Name},
		rows: [][]string{{qualified(r.after.Metadata), dash(short(now)), found, at}},
	}
}

// compared waits until the cluster has compared itself with the newest
// revision: before, its status is that of an earlier one. It does not wait for
// a disconnected cluster.
func (a watcher) compared(ctx context.Context, namespace, name string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, longRefresh, errTimeout)
	defer cancel()
	for {
		x, _, err := call[apimodel.Application](a.api.GetApplication(ctx, namespace, name, apimodel.GetApplicationParams{}))
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
			return fmt.Errorf("application %s: what its sources say now has not been compared with the cluster: %w after %s", name, context.Cause(ctx), longRefresh)
		case <-time.After(refreshPoll):
		}
	}
}

// awaitGone waits until an application no longer exists.
func (a watcher) awaitGone(ctx context.Context, namespace, name string, w waiting) error {
	ctx, cancel := context.WithTimeoutCause(ctx, w.timeout, errTimeout)
	defer cancel()
	err := a.watch(ctx, namespace, name, func(apimodel.Application, []byte) (bool, error) { return false, nil })
	if exitCode(err) == exitMissing {
		return nil
	}
	if errors.Is(context.Cause(ctx), errTimeout) {
		return fmt.Errorf("application %s is not gone: %w after %s", name, errTimeout, w.timeout)
	}
	return err
}

// watch reads the application, and again after each change in the event stream,
// until see returns that it is done. The stream is opened before the first
// read, so nothing is missed.
func (a watcher) watch(ctx context.Context, namespace, name string, see func(apimodel.Application, []byte) (bool, error)) error {
	for {
		events, stop, err := a.events(ctx, namespace+"/"+name)
		if err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return err
		}
		err = a.readState(ctx, namespace, name, events, see)
		stop()
		if !errors.Is(err, errStreamEnded) {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Second):
		}
	}
}

var errStreamEnded = errors.New("the stream ended")

func (a watcher) readState(ctx context.Context, namespace, name string, events <-chan struct{}, see func(apimodel.Application, []byte) (bool, error)) error {
	for {
		x, raw, err := call[apimodel.Application](a.api.GetApplication(ctx, namespace, name, apimodel.GetApplicationParams{}))
		if err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return err
		}
		if done, err := see(x, raw); done || err != nil {
			if err != nil && ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(rereadPause):
		case _, open := <-events:
			if !open {
				return errStreamEnded
			}
		}
	}
}

// events returns a notification for each event about one application.
func (a watcher) events(ctx context.Context, app string) (<-chan struct{}, func(), error) {
	ctx, cancel := context.WithCancel(ctx)
	res, err := a.api.StreamChanges(ctx, apimodel.StreamChangesParams{Application: app, View: apimodel.StreamChangesParamsViewCompact})
	if err == nil && res.StatusCode != 200 {
		_, err = read(res, nil)
	} else if err != nil {
		err = unreachable(err)
	}
	if err != nil {
		cancel()
		return nil, nil, err
	}
	// Capacity 1: what changed is read again anyway.
	events := make(chan struct{}, 1)
	go func() {
		defer close(events)
		defer res.Body.Close()
		scan := bufio.NewScanner(res.Body)
		scan.Buffer(make([]byte, 64<<10), 16<<20)
		for scan.Scan() {
			if data, ok := strings.CutPrefix(scan.Text(), "data:"); ok && concerns(data, app) {
				select {
				case events <- struct{}{}:
				default:
				}
			}
		}
	}()
	return events, cancel, nil
}

// concerns reports whether an event is about an application; when it does not
// say which, it may be.
func concerns(data, app string) bool {
	var e apimodel.StreamEvent
	if json.Unmarshal([]byte(data), &e) != nil {
		return true
	}
	if e.Kind == apimodel.StreamEventKindAlive {
		return false
	}
	return e.Name == "" || e.Namespace+"/"+e.Name == app
}
