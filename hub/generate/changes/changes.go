// Package changes decides what an application set does to applications: which
// it creates, updates and deletes, which it must not touch, and which deletions
// wait for consent. It takes values and returns values. The catalogue calls it
// with the result of a generation without errors, and carries the decision out.
//
// What always holds: without such a result nothing is decided, an application
// has one owner, and a deletion above the limit is held.
package changes

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/capstan-cd/capstan/hub"
)

// An Application is one that a set wants to be there.
type Application struct {
	hub.Meta

	Project string
	Spec    json.RawMessage
}

func (a Application) key() hub.ApplicationKey {
	return hub.ApplicationKey{Namespace: a.Namespace, Name: a.Name}
}

// A Request is what a decision is made of.
type Request struct {
	Set       hub.ApplicationSet
	Spec      hub.ApplicationSetSpec
	Generated []Application
	// Invalid are applications that were generated and cannot be written. What is
	// there of them stays as it is.
	Invalid []string
	// There are the applications of the set, and others that have the name of one
	// that was generated.
	There  []hub.Application
	Policy Policy
	Limit  Limit
	// Most is how many applications the set may have; 0: any number.
	Most int
	// Preserved are labels and annotations that are kept in all sets.
	Preserved hub.PreservedFields
	Now       time.Time
}

// An Update is an application as it is and as it is wanted.
type Update struct {
	Old  hub.Application
	Want Application
}

// A Problem is why nothing is done to an application.
type Problem struct {
	Application string
	Message     string
}

// A Decision is what is done.
type Decision struct {
	Create    []Application
	Update    []Update
	Delete    []hub.Application
	Unchanged []hub.Application
	Held      *hub.HeldDeletion // nil: no deletion waits for consent
	Problems  []Problem
	// Truncated is how many applications were left out because of Most.
	Truncated int
}

// Decide returns what a set does.
func Decide(r Request) (Decision, error) {
	var d Decision
	ignores, err := newIgnores(r.Spec.IgnoreApplicationDifferences)
	if err != nil {
		return d, err
	}
	there := make(map[hub.ApplicationKey]hub.Application, len(r.There))
	for _, a := range r.There {
		there[hub.ApplicationKey{Namespace: a.Namespace, Name: a.Name}] = a
	}
	wanted, left := r.withinMost(there)
	d.Truncated = left
	names := map[hub.ApplicationKey]bool{}
	for _, w := range wanted {
		names[w.key()] = true
		old, exists := there[w.key()]
		if !exists {
			d.Create = append(d.Create, r.observed(w))
			continue
		}
		if problem := r.foreign(old, w); problem != "" {
			d.Problems = append(d.Problems, Problem{w.Name, problem})
			continue
		}
		if old.DeletingAt != nil {
			d.Unchanged = append(d.Unchanged, old) // it is made anew when it is gone
			continue
		}
		if !r.Policy.Update && r.owns(old) {
			d.Unchanged = append(d.Unchanged, old)
			continue
		}
		next, err := r.merged(old, w, ignores)
		if err != nil {
			return Decision{}, err
		}
		if r.owns(old) && same(old, next) {
			d.Unchanged = append(d.Unchanged, old)
		} else {
			d.Update = append(d.Update, Update{old, next})
		}
	}
	r.deletions(&d, names)
	return d, nil
}

// observed has a new application of a set that was imported be observed as the
// set is, until a person confirms it (CLI-13).
func (r Request) observed(a Application) Application {
	if r.Set.Observed() {
		a.Annotations = maps.Clone(a.Annotations)
		if a.Annotations == nil {
			a.Annotations = map[string]string{}
		}
		a.Annotations[hub.ImportedAnnotation] = hub.ImportObserve
	}
	return a
}

// owns reports whether the set has generated an application.
func (r Request) owns(a hub.Application) bool {
	return a.Set != nil && a.Set.Namespace == r.Set.Namespace && a.Set.Name == r.Set.Name
}

// foreign says why the set must not write an application that is there; empty:
// it may. One that a person has made in the same project becomes the set's.
func (r Request) foreign(old hub.Application, want Application) string {
	switch {
	case r.owns(old):
		return ""
	case old.Set != nil:
		return "it belongs to application set " + old.Set.Name
	case old.Parent != nil:
		return "it belongs to application " + old.Parent.Name
	case old.Project != want.Project:
		return "an application of that name is in another project"
	}
	return ""
}

// withinMost returns what is wanted, in order of name, without what is beyond the
// number of applications that the set may have. What is there comes first.
func (r Request) withinMost(there map[hub.ApplicationKey]hub.Application) (wanted []Application, left int) {
	wanted = slices.Clone(r.Generated)
	slices.SortStableFunc(wanted, func(a, b Application) int { return cmp.Compare(a.Name, b.Name) })
	if r.Most == 0 || len(wanted) <= r.Most {
		return wanted, 0
	}
	room := r.Most
	for _, w := range wanted {
		if old, ok := there[w.key()]; ok && r.owns(old) {
			room--
		}
	}
	return slices.DeleteFunc(wanted, func(w Application) bool {
		if old, ok := there[w.key()]; ok && r.owns(old) {
			return false
		}
		room--
		if room < 0 {
			left++
		}
		return room < 0
	}), left
}

// deletions decides about applications of the set that it does not want any more.
func (r Request) deletions(d *Decision, wanted map[hub.ApplicationKey]bool) {
	if !r.Policy.Delete || d.Truncated > 0 {
		return
	}
	var gone []hub.Application
	all := 0
	for _, a := range r.There {
		if !r.owns(a) || a.DeletingAt != nil {
			continue
		}
		all++
		if !wanted[hub.ApplicationKey{Namespace: a.Namespace, Name: a.Name}] && !slices.Contains(r.Invalid, a.Name) {
			gone = append(gone, a)
		}
	}
	slices.SortFunc(gone, func(a, b hub.Application) int { return cmp.Compare(a.Name, b.Name) })
	if !r.Limit.holds(len(gone), all, passing(r.Spec.Generators)) {
		d.Delete = gone
		return
	}
	held := hold(gone, all, r.Limit.of(all), r.Now)
	before := r.Set.Status.Held
	if before != nil && before.ConsentedBy != "" && covers(*before, held) {
		d.Delete = gone
		return
	}
	if before != nil && before.Digest == held.Digest {
		held.Since = before.Since
	}
	d.Held = &held
}

func hold(gone []hub.Application, all, limit int, now time.Time) hub.HeldDeletion {
	held := hub.HeldDeletion{Of: all, Limit: limit, Since: now.UTC().Truncate(time.Second)}
	for _, a := range gone {
		held.Applications = append(held.Applications, a.Namespace+"/"+a.Name)
	}
	sum := sha256.Sum256([]byte(strings.Join(held.Applications, "\n")))
	held.Digest = hex.EncodeToString(sum[:8])
	return held
}

// covers reports whether consent to one deletion is consent to another: to all
// of its applications.
func covers(agreed, now hub.HeldDeletion) bool {
	return !slices.ContainsFunc(now.Applications, func(a string) bool { return !slices.Contains(agreed.Applications, a) })
}
