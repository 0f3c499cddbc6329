package upgrade

import (
	"fmt"
	"time"
)

// An observation contains everything that a decision of the updater depends on.
type observation struct {
	now    time.Time
	record Record // of the Deployment; zero: none
	image  string // image of the Deployment
	mark   string // upgrade that created its pods; empty: none
	proved string // newest upgrade whose version the hub has admitted
	pods   state  // of the new version
}

// state is the state of the new version's pods.
type state struct {
	restarts int
	problem  string // one sentence; empty: none is known
}

// A move is what the updater does next.
type move int

const (
	wait    move = iota
	begin        // replace the image
	confirm      // record the success
	back         // restore the former image
	leave        // the upgrade has ended
)

// crashes is how often the new version may crash. Nothing is healed meanwhile,
// so the updater does not wait for the deadline.
const crashes = 3

// decide returns the next move and its record. The order of the checks matters:
// a successful connection counts more than the deadline.
func decide(o Order, s observation) (move, Record) {
	r := s.record
	switch {
	case r.ID != o.ID && r.ID != "" && !r.Ordered.Before(o.Ordered):
		return leave, r // a newer order has started
	case r.ID != o.ID && s.now.After(o.BeginBefore):
		return leave, r
	case r.ID != o.ID:
		return begin, o.record(s)
	case r.Phase != Running:
		return leave, r
	case s.proved == o.ID:
		return confirm, r.end(s.now, Succeeded, fmt.Sprintf("%s runs and is connected", r.To))
	case s.pods.restarts >= crashes:
		return back, r.end(s.now, RolledBack, fmt.Sprintf("%s did not connect: it ended %d times%s; %s was brought back", r.To, s.pods.restarts, because(s.pods.problem), r.From))
	case !s.now.Before(r.Deadline):
		return back, r.end(s.now, RolledBack, fmt.Sprintf("%s did not connect within %s%s; %s was brought back", r.To, r.Deadline.Sub(r.Begun).Round(time.Second), because(s.pods.problem), r.From))
	}
	return wait, r
}

func because(problem string) string {
	if problem == "" {
		return ""
	}
	return " (" + problem + ")"
}

// record is that of an upgrade that starts. The image to restore is the newest
// one that has connected, not one that an interrupted upgrade has left.
func (o Order) record(s observation) Record {
	from, former := s.image, s.mark
	if old := s.record; old.Phase == Running && s.proved != old.ID {
		from, former = old.From, old.Former
	}
	return Record{
		ID: o.ID, Ordered: o.Ordered.UTC(), From: from, Former: former, To: o.Image, Phase: Running,
		Begun: s.now.UTC(), Deadline: s.now.Add(o.Deadline).UTC(),
	}
}

func (r Record) end(now time.Time, phase, message string) Record {
	now = now.UTC()
	r.Phase, r.Message, r.Ended = phase, message, &now
	return r
}
