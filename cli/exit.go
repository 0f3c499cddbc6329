package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/capstan-cd/capstan/shared/fault"
)

// The exit codes of all commands (UX-CLI-5). exitCodes says them to people.
const (
	exitOK        = 0
	exitFailed    = 1
	exitDiffers   = 1 // of a comparison
	exitUsage     = 2
	exitSignIn    = 4
	exitForbidden = 5
	exitMissing   = 6
	exitTimeout   = 7
	exitAway      = 8
)

// exitCodes is the text of `capstan help exit-codes`, and the one place that
// explains them.
const exitCodes = `  0  done; of app diff: nothing differs
  1  failed; of app diff: there is a difference
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

// exitCodesTopic is a help page without a command behind it.
func exitCodesTopic() *cobra.Command {
	return &cobra.Command{Use: "exit-codes", Short: "What the exit codes of all commands mean", Long: "Exit codes of all commands:\n\n" + exitCodes}
}

// errDiffers ends a comparison that found differences.
var errDiffers error = differs(exitDiffers)

// differs is errDiffers with the exit code that was asked for.
type differs int

// Error is empty: nothing went wrong.
func (differs) Error() string { return "" }

// found reports whether a command ended because it found differences.
func found(err error) (code int, is bool) {
	var d differs
	is = errors.As(err, &d)
	return int(d), is
}

// comparisonError is the failure of a comparison, which must not end like one
// that found differences.
type comparisonError struct{ error }

func (e comparisonError) Unwrap() error { return e.error }

// comparisonFailed marks the failures of a comparison.
func comparisonFailed(err error) error {
	if _, differ := found(err); err == nil || differ {
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

// failures collects the exit codes of what failed of several objects.
type failures struct {
	codes []int
	of    int
}

func (f *failures) add(code int) { f.codes = append(f.codes, code) }

// err is nil if nothing failed. what is the plural of the objects, and verb the
// participle of the action.
func (f *failures) err(what, verb string) error {
	if len(f.codes) == 0 {
		return nil
	}
	code := f.codes[0]
	for _, c := range f.codes {
		if c != code {
			code = exitFailed
		}
	}
	return partly{code: code, text: fmt.Sprintf("%d of %d %s %s", len(f.codes), f.of, what, verb)}
}

func exitCode(err error) int {
	if err == nil {
		return exitOK
	}
	if code, differ := found(err); differ {
		return code
	}
	code := failureCode(err)
	var comparison comparisonError
	if code == exitFailed && errors.As(err, &comparison) {
		return exitUsage
	}
	return code
}

func failureCode(err error) int {
	var answer *answerError
	var some partly
	switch {
	case isUsage(err), errors.Is(err, context.Canceled), strings.HasPrefix(err.Error(), "required flag"):
		return exitUsage
	case errors.Is(err, errAway):
		return exitAway
	case errors.Is(err, errTimeout):
		return exitTimeout
	case errors.As(err, &some):
		return some.code
	case errors.As(err, &answer):
		return statusCode(answer.status)
	}
	switch fault.KindOf(err) {
	case fault.Invalid:
		return exitUsage
	case fault.Unknown:
		return exitSignIn
	case fault.Denied:
		return exitForbidden
	case fault.Missing:
		return exitMissing
	}
	return exitFailed
}

// statusCode is the exit code for the status of an answer.
func statusCode(status int) int {
	switch status {
	case http.StatusUnauthorized:
		return exitSignIn
	case http.StatusForbidden:
		return exitForbidden
	case http.StatusNotFound:
		return exitMissing
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		return exitUsage
	}
	return exitFailed
}

// errTimeout ends a wait after its timeout.
var errTimeout = errors.New("timed out")

// errAway ends a wait whose result cannot be confirmed: the agent of the
// application's cluster is disconnected.
var errAway = errors.New("the state cannot be confirmed")

// say is one line: what is wrong, what to do, and the reference.
func say(err error) string {
	var answer *answerError
	if errors.As(err, &answer) {
		return answer.sentence()
	}
	if e, ok := fault.As(err); ok && e.Fix != "" {
		return err.Error() + "; " + e.Fix
	}
	return err.Error()
}
