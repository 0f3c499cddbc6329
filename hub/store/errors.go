package store

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/capstan-cd/capstan/shared/fault"
)

// Codes of PostgreSQL errors, appendix A of its manual.
const (
	uniqueViolation      = "23505"
	foreignKeyViolation  = "23503"
	serializationFailure = "40001"
	deadlockDetected     = "40P01"
	checkViolation       = "23514"
	queryCanceled        = "57014"
	readOnlyTransaction  = "25006"
	diskFull             = "53100"
	duplicateObject      = "42710"
	insufficientRights   = "42501"
	notInEncoding        = "22021"
	limitExceeded        = "54000"
	adminShutdown        = "57P01"
	pausedTooLong        = "25P03"
)

// code returns the PostgreSQL code of an error, or "".
func code(err error) string {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// violates reports whether err breaks the named constraint or unique index.
func violates(err error, constraint string) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && (e.Code == uniqueViolation || e.Code == foreignKeyViolation) && e.ConstraintName == constraint
}

// refused reports whether the whole transaction may simply run again.
func refused(err error) bool {
	var begin *beginError
	if errors.As(err, &begin) {
		return begin.isStale()
	}
	c := code(err)
	return c == serializationFailure || c == deadlockDetected
}

// A beginError is a transaction that did not begin, so nothing of it was done.
type beginError struct{ error }

func (e *beginError) Unwrap() error { return e.error }

// isStale reports whether the pool returned a connection that was closed, as
// all are when the server restarts: another one may work. It does not wait for
// an unreachable server.
func (e *beginError) isStale() bool {
	var connect *pgconn.ConnectError
	if errors.As(e, &connect) || errors.Is(e, context.Canceled) || errors.Is(e, context.DeadlineExceeded) {
		return false
	}
	c := code(e)
	return c == "" || c == adminShutdown
}

// classify classifies errors of the connection and of the server's state.
// Classified errors, and those of a context that ended, stay as they are. The
// detail of a database error may contain values of rows; it is in the chain for
// the log only.
func classify(err error) error {
	if err == nil {
		return nil
	}
	if _, done := fault.As(err); done {
		return err
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	switch c := code(err); {
	case refused(err):
		return fault.Wrap(fault.Conflict, err, "others kept changing the same things")
	case c == queryCanceled:
		return fault.With(fault.Wrap(fault.Offline, err, "the database took too long to answer"), "", "try again in a moment")
	case c == pausedTooLong:
		return fault.With(fault.Wrap(fault.Offline, err, "the database ended a transaction in which this process had paused"), "", "try again in a moment")
	case c == notInEncoding:
		return fault.Wrap(fault.Invalid, err, "a text has a character that cannot be stored, such as NUL")
	case c == limitExceeded:
		return fault.Wrap(fault.Exceeded, err, "a name is too long to be stored")
	case c == readOnlyTransaction || c == diskFull:
		return fault.With(fault.Wrap(fault.Offline, err, "the database accepts no writes"), "", "ask the operator to look at its disk and its role")
	case strings.HasPrefix(c, "08"), strings.HasPrefix(c, "57P"), strings.HasPrefix(c, "53"), strings.HasPrefix(c, "28"), c == "3D000":
		return offline(err)
	case c == "" && disconnected(err):
		return offline(err)
	}
	return err
}

func offline(err error) error {
	return fault.With(fault.Wrap(fault.Offline, plain{err}, "the database cannot be reached"), "", "try again in a moment")
}

// disconnected reports whether the server is unreachable, as opposed to having
// refused.
func disconnected(err error) bool {
	var connect *pgconn.ConnectError
	var network net.Error
	var op *net.OpError
	return errors.As(err, &connect) || errors.As(err, &network) || errors.As(err, &op) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		strings.Contains(err.Error(), "conn closed")
}

// plain is a chain for errors.Is and errors.As that prints the reasons of a
// failed connection in one line, without the pool's addresses.
type plain struct{ err error }

func (p plain) Error() string {
	var parts []string
	for line := range strings.SplitSeq(p.err.Error(), "\n") {
		// One address is tried several times, with and without TLS.
		if line = strings.Join(strings.Fields(line), " "); line != "" && !slices.Contains(parts, line) {
			parts = append(parts, line)
		}
	}
	text := strings.Join(parts, "; ")
	return strings.ReplaceAll(text, ":; ", ": ")
}

func (p plain) Unwrap() error { return p.err }

// missing turns "no row" into fault.Missing with the given sentence, and
// returns other errors unchanged.
func missing(err error, format string, args ...any) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return fault.New(fault.Missing, format, args...)
	}
	return err
}

// stale is what a writer gets who read an older version.
func stale(object string) error {
	return fault.With(fault.New(fault.Conflict, "it was changed by someone else in the meantime"), object, "read it again and repeat the change")
}

// taken is the error of a writer whose name is in use.
func taken(object string) error {
	return fault.With(fault.New(fault.Conflict, "there is one of that name already"), object, "choose another name, or change the existing one")
}
