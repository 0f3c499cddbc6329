// Package fault classifies errors once, where their cause is understood, so
// that every edge (HTTP, gRPC, console, CLI) answers the same way. It does not
// depend on any transport. Every package may import it. An unclassified error
// is always Internal, and Internal texts are never shown to a user.
package fault

import (
	"errors"
	"fmt"
	"time"
)

// A Kind is the class of an error, which decides the reply of HTTP, gRPC,
// console and CLI.
type Kind string

// The kinds. Each comment says what the edge does with it.
const (
	Internal Kind = "internal" // our defect: log it, show only a reference
	Invalid  Kind = "invalid"  // the request or manifest is wrong: show why
	Unknown  Kind = "unknown"  // not signed in, or invalid credentials: sign in
	Denied   Kind = "denied"   // the caller has no right: show nothing more
	Missing  Kind = "missing"  // it does not exist, or the caller may not see it
	Conflict Kind = "conflict" // it was changed concurrently: reload and retry
	Exceeded Kind = "exceeded" // a limit of size, time, memory or rate was exceeded
	Offline  Kind = "offline"  // the other side is unreachable: try again later
)

// An Error is a classified error with the sentence that a user may read.
type Error struct {
	Kind   Kind
	Code   string // stable reference such as "CAP-2101"; empty: derived from Kind
	Object string // the object, such as "application shop"; may be empty
	Cause  string // one sentence without secrets: what is wrong
	Fix    string // one sentence: what to do about it; may be empty
	Line   int    // line of the text that was read, from 1; 0: none
	Err    error  // the chain for the log; may be nil; never shown

	// RetryAfter is how long the other side asks to wait before a retry; zero:
	// unknown.
	RetryAfter time.Duration
}

// Error is the sentence for people, followed by the chain for logs.
func (e *Error) Error() string {
	s := e.Cause
	if e.Object != "" {
		s = e.Object + ": " + s
	}
	if _, printed := e.Err.(hidden); e.Err != nil && !printed { //nolint:errorlint // of this error itself, not of what it wraps
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the wrapped chain.
func (e *Error) Unwrap() error { return e.Err }

// New makes a classified error whose cause is the formatted sentence. A %w in
// the format becomes the chain.
func New(kind Kind, format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	return &Error{Kind: kind, Cause: err.Error(), Err: hide(errors.Unwrap(err))}
}

// Wrap classifies an existing chain and adds a sentence. The chain is for the
// log; users read only the sentence.
func Wrap(kind Kind, err error, format string, args ...any) error {
	return &Error{Kind: kind, Cause: fmt.Sprintf(format, args...), Err: err}
}

// With adds object and fix to a classified error, and returns others unchanged.
// Fields that are already set stay.
func With(err error, object, fix string) error {
	var e *Error
	if !errors.As(err, &e) {
		return err
	}
	c := *e
	if c.Object == "" {
		c.Object = object
	}
	if c.Fix == "" {
		c.Fix = fix
	}
	return &c
}

// KindOf returns the kind of an error: "" for nil, and Internal for an
// unclassified one.
func KindOf(err error) Kind {
	if err == nil {
		return ""
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return Internal
}

// As returns the classified error in a chain, if there is one.
func As(err error) (*Error, bool) {
	var e *Error
	ok := errors.As(err, &e)
	return e, ok
}

// Sentence is what a user may read of an error: object, cause and fix of a
// classified one, and a neutral sentence for anything else.
func Sentence(err error) string {
	e, ok := As(err)
	if !ok || e.Kind == Internal {
		return "something went wrong on our side; the log has the details"
	}
	s := e.Cause
	if e.Object != "" {
		s = e.Object + ": " + s
	}
	if e.Fix != "" {
		s += " (" + e.Fix + ")"
	}
	return s
}

// hidden is a chain for errors.Is and errors.As that is not printed again.
type hidden struct{ error }

func (h hidden) Unwrap() error { return h.error }

func hide(err error) error {
	if err == nil {
		return nil
	}
	return hidden{err}
}
