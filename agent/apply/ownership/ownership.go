// Package ownership decides which application owns an object of a cluster. It
// is a state machine of pure values: it reads no cluster, stores nothing and
// has no lock. The engine of package apply calls it wherever an object is
// acquired, contested, transferred, deleted or released. An object has at most
// one owner. An application that merely renders an object owns nothing.
package ownership

// A State is the state of an object's ownership.
type State uint8

// The states of an object.
const (
	// Free: no application owns the object. It belongs to the application that
	// the live object's tracking names or, if it does not exist, to the first
	// permitted operation that writes it.
	Free State = iota
	// Owned: an application has acquired it to write it, or has written it.
	Owned
	// Adopted: another application has released the object to its owner, which
	// has not written it yet. Live tracking still names the former owner.
	Adopted
	// Deleting: its owner has asked the API server to delete it.
	Deleting
)

// An Event moves an object from one state to another.
type Event uint8

// The events of an object.
const (
	Acquire Event = iota // an operation is about to write it
	Adopt                // its owner releases it to another application
	Applied              // its owner has written it
	Delete               // its owner is about to delete it
	Retain               // its owner was prevented from deleting it
	Release              // it is gone, or its owner does not manage it any more
)

// transitions contains every permitted transition.
var transitions = map[State]map[Event]State{
	Free:     {Acquire: Owned},
	Owned:    {Acquire: Owned, Adopt: Adopted, Applied: Owned, Delete: Deleting, Retain: Owned, Release: Free},
	Adopted:  {Acquire: Adopted, Adopt: Adopted, Applied: Owned, Delete: Deleting, Retain: Adopted, Release: Free},
	Deleting: {Acquire: Deleting, Applied: Owned, Delete: Deleting, Retain: Owned, Release: Free},
}

// Next returns the state after an event; false if that is not permitted.
func Next(s State, e Event) (State, bool) {
	to, ok := transitions[s][e]
	return to, ok
}

// An Object is the ownership of one object. The zero value is free.
type Object struct {
	State State
	Owner string // application; empty if and only if the object is free
}

// An Interest is what an application declares about an object at one moment.
type Interest struct {
	App       string
	Permitted bool // its project and the cluster's owner permit it to write the object
	Listed    bool // its target or its accepted snapshot lists the object
	Accepted  bool // a sync with the object was started, by a person or by automation, or automation is going to start one
	Leaving   bool // the application is being deleted, or is deleted
}

// A Decision is the result for an application that is about to write an object.
type Decision uint8

// The verdicts.
const (
	Granted  Decision = iota // the application owns the object
	Conflict                 // another application owns it
	Denied                   // the application must not own it
)

// Acquire decides for an application whose operation is about to write the
// object. owner is the interest of its present owner. An owner that does not
// list the object any more, and is not deleting it, releases it to the
// application.
func (o Object) Acquire(c, owner Interest) (Object, Decision) {
	switch {
	case !c.Permitted || c.Leaving:
		return o, Denied
	case o.State == Free || o.Owner == c.App:
		to, _ := Next(o.State, Acquire)
		return Object{to, c.App}, Granted
	case owner.Listed || o.State == Deleting:
		return o, Conflict
	}
	return o.Adopt(c), Granted
}

// Adopt releases the object to an application. It changes nothing if that
// application must not own it, or while the object is being deleted.
func (o Object) Adopt(c Interest) Object {
	to, ok := Next(o.State, Adopt)
	if !ok || !c.Permitted || c.Leaving {
		return o
	}
	return Object{to, c.App}
}

// Do applies an event that its owner causes. Events of others change nothing.
func (o Object) Do(app string, e Event) Object {
	to, ok := Next(o.State, e)
	switch {
	case !ok || o.State == Free || o.Owner != app:
		return o
	case to == Free:
		return Object{}
	}
	return Object{to, o.Owner}
}

// Successor returns which application adopts an object that its owner would
// delete: the first one that has accepted it, may own it and is not being
// deleted. An application that was not synced with it, and that automation does
// not sync, does not adopt it. Without one the object is deleted.
func Successor(owner string, claims []Interest) (Interest, bool) {
	for _, c := range claims {
		if c.App != owner && c.Accepted && c.Permitted && !c.Leaving {
			return c, true
		}
	}
	return Interest{}, false
}

// Restore returns the ownership of an object by a stored record; false if
// another application's record was restored first, so that this one is void.
func (o Object) Restore(app string, adopted bool) (Object, bool) {
	if o.State != Free {
		return o, o.Owner == app
	}
	if adopted {
		return Object{Adopted, app}, true
	}
	return Object{Owned, app}, true
}

// Unblocked reports whether an application could now own an object that it was
// refused.
func (o Object) Unblocked(c, owner Interest) bool {
	_, v := o.Acquire(c, owner)
	return v == Granted
}
