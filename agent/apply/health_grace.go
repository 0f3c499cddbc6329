package apply

import (
	"context"
	"time"

	"github.com/capstan-cd/capstan/agent/health"
	"github.com/capstan-cd/capstan/shared/manifest"
)

const (
	holdAnnotation = "health-hold"    // the health grace period, such as 2m
	scalerHold     = 90 * time.Second // of autoscalers: the time until new pods have metrics
	mostHold       = time.Hour
)

// A gracePeriod is the health of an object while it has only recently become
// Degraded or Unknown.
type gracePeriod struct {
	state   string
	message string
	bad     time.Time // when it became Degraded or Unknown; zero: it is not
}

// holdOf is an object's health grace period. Some kinds have false alarms; the
// annotation has precedence.
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

// settleHealth updates the grace period from the object's current health. The
// caller holds the application's mu.
func (x *object) settleHealth(now time.Time) {
	l := &x.live
	if l.health != health.Degraded && l.health != health.Unknown {
		x.grace = gracePeriod{state: l.health, message: l.message}
		return
	}
	if x.grace.bad.IsZero() {
		x.grace.bad = now
		if x.grace.state == "" { // it was Degraded when it was first seen
			x.grace.state, x.grace.message = health.Progressing, l.message
			if age := now.Sub(time.Unix(l.created, 0)); age > l.healthGrace {
				x.grace.bad = now.Add(-l.healthGrace)
			}
		}
	}
}

// counts is the health of an object for its application and its wave: Degraded
// and Unknown only after the grace period. Wait is the rest of that period; 0:
// it is over.
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

// awaitHold recomputes the application's health once the next grace period
// ends. The caller holds mu.
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

// childApplication reports whether an object is itself an application. If it is
// missing or unknown, its parent's health is not affected (HLT-03).
func childApplication(key manifest.Key) bool {
	return key.Group == "argoproj.io" && key.Kind == "Application"
}

// ReassessHealth computes the health of everything again, because the rules
// have changed. It sends no request.
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

// assessHealth is the health of a live object; empty: it is ignored.
func (e *Engine) assessHealth(o *manifest.Object) (state, message string) {
	if ignored, _ := manifest.Annotation(o, "ignore-healthcheck"); ignored == "true" {
		return "", ""
	}
	return e.Health(o)
}
