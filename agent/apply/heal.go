package apply

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/capstan-cd/capstan/shared/failpoint"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/logkey"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// The back-off of self-heal. A person's edit is reverted at once each time.
// After a manager has undone three heals within ten seconds, self-heal backs
// off. The first delays are short, because an unknown command-line tool looks
// like a controller. They grow until a controller that never stops costs one
// write in five minutes.
const (
	fightCount  = 3
	fightWindow = 10 * time.Second
	fightFirst  = 200 * time.Millisecond
	fightFactor = 3
	fightMost   = 300 * time.Second
	retryFirst  = time.Second
	retryMost   = 60 * time.Second
)

// A fight is the repeated change of one object's fields by one manager.
type fight struct {
	times   []time.Time // of our heals, newest last
	delay   time.Duration
	until   time.Time
	healDue bool // the heal that is due at until was not done yet
}

// selfHeal reverts an object to what was accepted, if the policy says so and it
// differs. The caller holds mu.
func (a *app) selfHeal(_ context.Context, x *object) {
	if !a.healable(x) || !a.heals() {
		return
	}
	now := a.e.Clock.Now()
	wait := x.notBefore.Sub(now)
	if wait <= 0 {
		wait = x.backoff(now)
	}
	if wait > 0 {
		a.healAfter(x, wait)
		return
	}
	x.inflight++
	d := x.accepted
	if !a.e.do(func(ctx context.Context) { a.restore(ctx, x, d) }) {
		x.inflight--
	}
}

// healable reports whether an object differs from what was accepted and applied.
// The caller holds mu.
func (a *app) healable(x *object) bool {
	if !a.enforced() || x.inflight > 0 || x.hook != "" || x.accepted == nil || x.doomed || !x.live.known || x.live.deleting {
		return false
	}
	if x.record == nil || !x.adopted() && x.record.Owned.Digest != x.accepted.digest {
		return false
	}
	if x.app.e.Guard.writes(x.key, x.namespaced) != nil {
		return false
	}
	if x.adopted() {
		return !x.isTaken()
	}
	if !x.live.found {
		return true
	}
	if x.isTaken() {
		return false
	}
	if x.record.Owned.UID != x.live.uid {
		return true // it was recreated
	}
	return x.comparison.Void == "" && (!x.comparison.Equal || x.rotated != "")
}

// backoff returns the delay before healing an object that a manager changes
// again and again. People's changes are not delayed.
func (x *object) backoff(now time.Time) time.Duration {
	if x.retries > 0 || x.rotated != "" && x.comparison.Equal {
		return 0 // the pause after a failure is scheduled already; nobody has changed its fields
	}
	// The managers of the fields that differ count: the last writer may have
	// written other fields.
	managers := x.live.writers
	if len(managers) == 0 {
		managers = []string{x.live.editor}
	}
	if x.live.found && slices.ContainsFunc(managers, person) {
		return 0
	}
	who, what := strings.Join(managers, ", "), strings.Join(x.comparison.Fields, ",")
	if !x.live.found {
		who, what = "", "deleted"
	}
	if x.fights == nil {
		x.fights = fights{}
	}
	wait, fightState := x.fights.backoff(who+"\x00"+what, now)
	x.app.fought(x.key, who, what, fightState)
	return wait
}

// fights are the repeated changes of objects, by manager and fields.
type fights map[string]*fight

// The results of checking a fight.
type fightChange uint8

const (
	fightGoesOn fightChange = iota
	fightBegins             // or continues with a longer pause
	fightEnds
)

// backoff returns the delay before the next heal, and records a heal if it is
// 0.
func (all fights) backoff(key string, now time.Time) (wait time.Duration, fightState fightChange) {
	f := all[key]
	if f == nil {
		f = &fight{}
		all[key] = f
	}
	if now.Before(f.until) {
		return f.until.Sub(now), fightGoesOn
	}
	if f.healDue {
		f.healDue, f.times = false, append(f.times, now)
		return 0, fightGoesOn
	}
	if n := len(f.times); n > 0 && now.Sub(f.times[n-1]) > 2*f.delay+fightWindow {
		f.delay, f.times = 0, nil
		fightState = fightEnds
	}
	recent := slices.DeleteFunc(f.times, func(t time.Time) bool { return now.Sub(t) > max(fightWindow, f.delay+fightWindow) })
	f.times = append(recent, now)
	if len(recent) < fightCount {
		return 0, fightState
	}
	f.delay = min(max(f.delay*fightFactor, fightFirst), fightMost)
	f.until, f.healDue = now.Add(f.delay), true
	return f.delay, fightBegins
}

// fought warns users about a fight. The caller holds mu.
func (a *app) fought(key manifest.Key, who, what string, fightState fightChange) {
	switch fightState {
	case fightBegins:
		a.warn("fight "+key.String(), foughtOver(key, who, what))
	case fightEnds:
		a.unwarn("fight " + key.String())
	}
}

func foughtOver(key manifest.Key, who, what string) string {
	if who == "" {
		who = "another writer"
	}
	if what == "deleted" {
		return key.Describe() + " is deleted again and again by " + who
	}
	return key.Describe() + ": " + strings.ReplaceAll(what, ",", ", ") + " is repeatedly changed by " + who
}

// person reports whether a field manager is an interactive tool.
func person(manager string) bool {
	for _, prefix := range [...]string{"kubectl", "k9s", "Lens", "OpenLens", "Mozilla", "node-fetch", "dashboard", "headlamp"} {
		if strings.HasPrefix(manager, prefix) {
			return true
		}
	}
	return false
}

// warn keeps a warning for users until unwarn. The caller holds mu.
func (a *app) warn(about, text string) {
	if a.warnings[about] != text {
		a.warnings[about] = text
		a.scheduleReport()
	}
}

func (a *app) unwarn(about string) {
	if _, ok := a.warnings[about]; ok {
		delete(a.warnings, about)
		a.scheduleReport()
	}
}

// healAfter heals an object after a delay, if still needed. The caller holds
// mu.
func (a *app) healAfter(x *object, after time.Duration) {
	at := a.e.Clock.Now().Add(after)
	if !x.timed.IsZero() && !at.Before(x.timed) {
		return
	}
	x.timed = at
	a.e.runAfter(after, func(ctx context.Context) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if x.timed != at {
			return // an earlier check was scheduled since
		}
		x.timed = time.Time{}
		if a.objects[x.key] == x {
			a.selfHeal(ctx, x)
		}
	})
}

// restore writes an accepted object again. A write in flight is counted
// already.
func (a *app) restore(ctx context.Context, x *object, d *desired) {
	a.mu.Lock()
	doing := "heal"
	if x.rotated != "" && x.comparison.Equal {
		doing = "rotate"
	}
	a.mu.Unlock()
	body, err := a.readDesired(ctx, d, time.Time{})
	if err != nil {
		a.refused(ctx, x, err)
		a.settle(ctx, x, nil)
		return
	}
	failpoint.Here(failpoint.AgentHealBefore)
	_, err = a.write(ctx, x, d, body, writing{options: a.options(body.Object), held: true})
	a.e.Metrics.Object(doing, outcome(err))
	if err == nil {
		a.e.Log.InfoContext(ctx, "object healed", logkey.Application, a.id, logkey.Object, x.key.String())
	}
}

// refused stores why an object could not be written, and when to retry: soon
// after temporary errors, seldom after others.
func (a *app) refused(ctx context.Context, x *object, err error) {
	if ctx.Err() != nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	wait := min(retryFirst<<min(x.retries, 10), retryMost)
	if kind := fault.KindOf(err); kind == fault.Invalid || kind == fault.Denied {
		wait = retryMost
	}
	x.retries++
	x.notBefore = a.e.Clock.Now().Add(wait)
	x.failure, x.missing = sentence(err), fault.KindOf(err) == fault.Missing
	a.e.Log.WarnContext(ctx, "object not written", logkey.Application, a.id, logkey.Object, x.key.String(), logkey.Wait, wait, logkey.Error, err)
}

// options are the sync options of an object outside of an operation: the
// application's, then its own.
func (a *app) options(o *manifest.Object) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Concat(a.state.GetPolicy().GetSyncOptions(), manifest.Options(o))
}
