// Package wait follows applications of a hub until they are where somebody wants
// them. It reads an application again after each of its events, and has its agent
// confirm the last state, because what the hub has may be older than the command.
// Commands that wait call it; it prints no result.
package wait

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/cli/exit"
	"github.com/capstan-cd/capstan/cli/output"
	"github.com/capstan-cd/capstan/shared/apimodel"
)

// rereadPause is the longest time between two reads of a wait: the
// disconnection of an agent is no event of its applications.
const rereadPause = 2 * time.Second

// A Watcher follows applications of one hub.
type Watcher struct {
	API  *client.Client
	Note func(format string, args ...any) // writes a line for people
	// See, if there is one, is shown an application each time that it was read;
	// last is set when the wait is over.
	See func(ctx context.Context, x apimodel.Application, last bool)
}

func (a Watcher) see(ctx context.Context, x apimodel.Application, last bool) {
	if a.See != nil {
		a.See(ctx, x, last)
	}
}

// Settled follows the stream until an application is where it should be, and
// returns it.
func (a Watcher) Settled(ctx context.Context, namespace, name string, w Goal) (out apimodel.Application, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, w.Timeout, exit.ErrTimeout)
	defer cancel()
	why := "the hub has not said how it is"
	absent := absence{app: name, most: w.Away}
	decide := func(x apimodel.Application) (over bool, err error) {
		defer func() { a.see(ctx, x, over) }()
		if over, why, err = w.decide(x); !over || err != nil || len(w.Resources) == 0 {
			return over, err
		}
		tree, _, err := client.Call[apimodel.Tree](a.API.GetApplicationTree(ctx, namespace, name))
		if err != nil {
			return false, err
		}
		why = w.missing(tree)
		return why == "", nil
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
		now, _, err := client.Call[apimodel.Application](a.API.GetApplication(ctx, namespace, name, apimodel.GetApplicationParams{Confirm: true}))
		switch {
		case client.Unavailable(err):
			return false, absent.record(a, asked, client.Text(err), x)
		case err != nil:
			return false, err
		}
		out = now
		return decide(now)
	})
	switch {
	case err == nil || !errors.Is(context.Cause(ctx), exit.ErrTimeout):
		return out, err
	case !absent.since.IsZero():
		return out, absent.err()
	}
	return out, fmt.Errorf("application %s: %w after %s: %s", name, exit.ErrTimeout, w.Timeout, why)
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
// The error is exit.ErrAway once that has lasted too long.
func (b *absence) record(a Watcher, at time.Time, why string, x apimodel.Application) error {
	if why == "" {
		b.since = time.Time{}
		return nil
	}
	b.why, b.known = why, LastKnown(x)
	if b.since.IsZero() {
		b.since = at
		a.Note("capstan: application %s: %s; waiting %s for it", b.app, why, b.most)
	}
	if time.Since(b.since) < b.most {
		return nil
	}
	return b.err()
}

func (b *absence) err() error {
	return fmt.Errorf("application %s: %w: %s; %s", b.app, exit.ErrAway, b.why, b.known)
}

// awayReason is why the state of an application is outdated because of its
// agent; empty: it is connected.
func awayReason(x apimodel.Application) string {
	on := x.Status.Capstan
	if !client.Given(on.Stale) || on.Stale.Reason == apimodel.StaleReasonSourceError {
		return ""
	}
	return on.Stale.Message
}

// LastKnown says what the hub knew last, and as of when.
func LastKnown(x apimodel.Application) string {
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
	return fmt.Sprintf("%s and %s are as of %s (%s ago)", sync, health, asOf.Format(time.RFC3339), output.Ago(asOf))
}

// Rendered waits until an application that was just made has been
// rendered, or says why it cannot be.
func (a Watcher) Rendered(ctx context.Context, namespace, name string, w Goal) error {
	ctx, cancel := context.WithTimeoutCause(ctx, w.Timeout, exit.ErrTimeout)
	defer cancel()
	return a.watch(ctx, namespace, name, func(x apimodel.Application, _ []byte) (bool, error) {
		a.see(ctx, x, false)
		st := x.Status
		rendered := st.Capstan.Target != ""
		return rendered || len(st.Conditions) > 0, nil
	})
}

// Gone waits until an application no longer exists.
func (a Watcher) Gone(ctx context.Context, namespace, name string, w Goal) error {
	ctx, cancel := context.WithTimeoutCause(ctx, w.Timeout, exit.ErrTimeout)
	defer cancel()
	err := a.watch(ctx, namespace, name, func(apimodel.Application, []byte) (bool, error) { return false, nil })
	if exit.Of(err) == exit.Missing {
		return nil
	}
	if errors.Is(context.Cause(ctx), exit.ErrTimeout) {
		return fmt.Errorf("application %s is not gone: %w after %s", name, exit.ErrTimeout, w.Timeout)
	}
	return err
}

// watch reads the application, and again after each change in the event stream,
// until see returns that it is done. The stream is opened before the first
// read, so nothing is missed.
func (a Watcher) watch(ctx context.Context, namespace, name string, see func(apimodel.Application, []byte) (bool, error)) error {
	for {
		events, stop, err := a.events(ctx, namespace+"/"+name)
		if err != nil {
			return orCause(ctx, err)
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

// orCause is why the context ended, if an error came of that.
func orCause(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

func (a Watcher) readState(ctx context.Context, namespace, name string, events <-chan struct{}, see func(apimodel.Application, []byte) (bool, error)) error {
	for {
		x, raw, err := client.Call[apimodel.Application](a.API.GetApplication(ctx, namespace, name, apimodel.GetApplicationParams{}))
		if err != nil {
			return orCause(ctx, err)
		}
		if done, err := see(x, raw); done || err != nil {
			return orCause(ctx, err)
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
func (a Watcher) events(ctx context.Context, app string) (<-chan struct{}, func(), error) {
	ctx, cancel := context.WithCancel(ctx)
	res, err := a.API.StreamChanges(ctx, apimodel.StreamChangesParams{Application: app, View: apimodel.StreamChangesParamsViewCompact})
	if err == nil && res.StatusCode != 200 {
		_, err = client.Read(res, nil)
	} else if err != nil {
		err = client.Unreachable(err)
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
