package apply

import (
	"context"
	"time"

	"github.com/capstan-cd/capstan/agent/health"
	"github.com/capstan-cd/capstan/shared/manifest"
)

const (
	holdAnnotation = "health-hold"    // how long an object must be bad to count, such as 2m
	scalerHold     = 90 * time.Second // of autoscalers: new pods have no metrics for so long
	mostHold       = time.Hour
)

// A gracePeriod is what an object counts as while it has only just become bad.
type gracePeriod struct {
	state   string
	message string
	bad     time.Time // when it became bad; zero: it is not
}

// holdOf is how long an object must be Degraded or Unknown before it counts as
// that. Some kinds raise false alarms; their annotation wins.
func holdOf(o *manifest.Object) time.Duration {
	if text, ok := manifest.Annotation(o, holdAnnotation); ok {
		if d, err := time.ParseDuration(text); err == nil && d >= 0 {
			return min(d, mostHold)
		}
	}
	if key := manifest.KeyOf(o); key.Group == "autoscaling" && key.Kind == "HorizontalPodAutoscaler" {
		return scalerHold
	}
	return 0
}

// settleHealth takes in how an object is now. The caller holds the
// application's mu.
func (x *object) settleHealth(now time.Time) {
	l := &x.live
	if l.health != health.Degraded && l.health != health.Unknown {
		x.grace = gracePeriod{state: l.health, message: l.message}
		return
	}
	if x.grace.bad.IsZero() {
		x.grace.bad = now
		if x.grace.state == "" { // it was bad when it was first seen
			x.grace.state, x.grace.message = health.Progressing, l.message
			if age := now.Sub(time.Unix(l.created, 0)); age > l.healthGrace {
				x.grace.bad = now.Add(-l.healthGrace)
			}
		}
	}
}

// counts is the health of an object as its application and its wave count it:
// Degraded and Unknown only once they have held. Wait is how long that will
// take yet; 0: nothing is awaited.
func (x *object) counts(now time.Time) (state, message string, wait time.Duration) {
	state, message = x.wellness()
	if x.grace.bad.IsZero() || x.live.healthGrace == 0 || state != health.Degraded && state != health.Unknown {
		return state, message, 0
	}
	if wait = x.grace.bad.Add(x.live.healthGrace).Sub(now); wait <= 0 {
		return state, message, 0
	}
	return x.grace.state, x.grace.message, wait
}

// awaitHold sums the application up anew once the nearest hold is over. The
// caller holds mu.
func (a *app) awaitHold(now time.Time) {
	if a.graceLeft == 0 || !a.recheckAt.IsZero() && a.recheckAt.After(now) && !a.recheckAt.After(now.Add(a.graceLeft)) {
		return
	}
	a.recheckAt = now.Add(a.graceLeft)
	a.e.runAfter(a.graceLeft, func(context.Context) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.recheckAt = time.Time{}
		if !a.closed {
			a.scheduleReport()
			a.nudge()
		}
	})
}

// childApplication reports whether an object is an application of its own, whose
// trouble to be found is not its parent's (HLT-03).
func childApplication(key manifest.Key) bool {
	return key.Group == "argoproj.io" && key.Kind == "Application"
}

// ReassessHealth judges the health of everything anew, because the rules have
// changed. It sends no request.
func (e *Engine) ReassessHealth() {
	for _, a := range e.all() {
		a.mu.Lock()
		for _, key := range a.keys() {
			x := a.objects[key]
			o := x.live.read()
			if o == nil || !x.live.found {
				continue
			}
			was, message := x.live.health, x.live.message
			x.live.health, x.live.message = e.assessHealth(o)
			if x.live.health == was && x.live.message == message {
				continue
			}
			x.settleHealth(e.Clock.Now())
			e.Reports.Resource(x.report(a))
		}
		a.scheduleReport()
		a.nudge()
		a.mu.Unlock()
	}
}

// assessHealth is the health of a live object; empty for one that is not to count.
func (e *Engine) assessHealth(o *manifest.Object) (state, message string) {
	if ignored, _ := manifest.Annotation(o, "ignore-healthcheck"); ignored == "true" {
		return "", ""
	}
	return e.Health(o)
}
