// Package exit is how commands end: the exit codes of all of them, and the one place
// that maps errors to codes and to the line that people read.
package exit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/cli/usage"
	"github.com/capstan-cd/capstan/shared/fault"
)

// The exit codes of all commands (UX-CLI-5). Codes says them to people.
const (
	OK        = 0
	Failed    = 1
	Differs   = 1 // of a comparison
	Usage     = 2
	SignIn    = 4
	Forbidden = 5
	Missing   = 6
	Timeout   = 7
	Away      = 8
)

// Codes is the text of `capstan help exit-codes`, and the one place that
// explains them.
const Codes = `  0  done; of app diff: nothing differs
  1  failed; of app diff: there is a difference; of rbac can: no
  2  wrong usage, input that is not valid, or cancelled; of app diff: failed, too
  4  sign-in needed
  5  forbidden
  6  not found
  7  timed out
  8  the state cannot be confirmed: the agent of the application's cluster is disconnected

A comparison has 1 for a difference and 2 or more for an error, as diff, kubectl
and argocd have it; --diff-exit-code of app diff is another code for a difference.
A command that works on several objects ends with the code that all failures
have in common, and otherwise with 1. 3 is not used.`

// ErrDiffers ends a comparison that found differences.
var ErrDiffers error = DifferCode(Differs)

// DifferCode is ErrDiffers with the exit code that was asked for.
type DifferCode int

// Error is empty: nothing went wrong.
func (DifferCode) Error() string { return "" }

// Found reports whether a command ended because it found differences.
func Found(err error) (code int, is bool) {
	var d DifferCode
	is = errors.As(err, &d)
	return int(d), is
}

// comparisonError is the failure of a comparison, which must not end like one
// that found differences.
type comparisonError struct{ error }

func (e comparisonError) Unwrap() error { return e.error }

// Comparison marks the failures of a comparison.
func Comparison(err error) error {
	if _, differ := Found(err); err == nil || differ {
		return err
	}
	return comparisonError{err}
}

// partly is the failure of some of several objects; code is what they have in
// common.
type partly struct {
	code int
	text string
}

func (p partly) Error() string { return p.text }

// Failures collects the exit codes of what failed of several objects.
type Failures struct {
	codes []int
	Total int
}

// Add records the exit code of one failure.
func (f *Failures) Add(code int) { f.codes = append(f.codes, code) }

// Err is nil if nothing failed. what is the plural of the objects, and verb the
// participle of the action.
func (f *Failures) Err(what, verb string) error {
	if len(f.codes) == 0 {
		return nil
	}
	code := f.codes[0]
	for _, c := range f.codes {
		if c != code {
			code = Failed
		}
	}
	return partly{code: code, text: fmt.Sprintf("%d of %d %s %s", len(f.codes), f.Total, what, verb)}
}

// Of is the exit code of a command that ends with err.
func Of(err error) int {
	if err == nil {
		return OK
	}
	if code, differ := Found(err); differ {
		return code
	}
	code := failureCode(err)
	var comparison comparisonError
	if code == Failed && errors.As(err, &comparison) {
		return Usage
	}
	return code
}

func failureCode(err error) int {
	var answer *client.AnswerError
	var some partly
	switch {
	case usage.Is(err), errors.Is(err, context.Canceled), strings.HasPrefix(err.Error(), "required flag"):
		return Usage
	case errors.Is(err, ErrAway):
		return Away
	case errors.Is(err, ErrTimeout):
		return Timeout
	case errors.As(err, &some):
		return some.code
	case errors.As(err, &answer):
		return statusCode(answer.Status)
	}
	switch fault.KindOf(err) {
	case fault.Invalid:
		return Usage
	case fault.Unknown:
		return SignIn
	case fault.Denied:
		return Forbidden
	case fault.Missing:
		return Missing
	}
	return Failed
}

// statusCode is the exit code for the status of an answer.
func statusCode(status int) int {
	switch status {
	case http.StatusUnauthorized:
		return SignIn
	case http.StatusForbidden:
		return Forbidden
	case http.StatusNotFound:
		return Missing
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		return Usage
	}
	return Failed
}

// ErrTimeout ends a wait after its timeout.
var ErrTimeout = errors.New("timed out")

// ErrAway ends a wait whose result cannot be confirmed: the agent of the
// application's cluster is disconnected.
var ErrAway = errors.New("the state cannot be confirmed")

// Say is one line: what is wrong, what to do, and the reference.
func Say(err error) string {
	var answer *client.AnswerError
	if errors.As(err, &answer) {
		return answer.Sentence()
	}
	if e, ok := fault.As(err); ok && e.Fix != "" {
		return err.Error() + "; " + e.Fix
	}
	return err.Error()
}
