// Package usage refuses the words of a command that it cannot follow, and says what
// was meant. All commands use it; nothing here knows what a command does.
package usage

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/capstan-cd/capstan/shared/suggest"
)

// Error is a mistake in the words of a command.
type Error struct{ error }

// Unwrap returns what is wrong.
func (e Error) Unwrap() error { return e.error }

// Errorf is a mistake that a sentence describes.
func Errorf(format string, args ...any) error { return Error{fmt.Errorf(format, args...)} }

// Wrap makes an error one of usage.
func Wrap(err error) error { return Error{err} }

// Is reports whether an error is one of usage.
func Is(err error) bool {
	var e Error
	return errors.As(err, &e)
}

// Verb refuses words that no command of a group is called by.
func Verb(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, verb := range c.Commands() {
		if verb.IsAvailableCommand() {
			names = append(append(names, verb.Name()), verb.Aliases...)
		}
	}
	question := suggest.Question(args[0], names)
	if question == "" {
		question = fmt.Sprintf("; `%s --help` lists the commands", c.CommandPath())
	}
	return Errorf("unknown command %q for %q%s", args[0], c.CommandPath(), question)
}

// Flag says which flag was meant.
func Flag(c *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return Wrap(err)
	}
	var names []string
	c.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	if near := suggest.Nearest(unknown.GetSpecifiedName(), names); near != "" && unknown.GetSpecifiedShortnames() == "" {
		return Errorf("%w for %q; did you mean --%s?", err, c.CommandPath(), near)
	}
	return Errorf("%w for %q; `%s --help` lists the flags", err, c.CommandPath(), c.CommandPath())
}

// Among finds the value of a flag among those that there are; case does not
// count.
func Among(flag, value string, known ...string) (string, error) {
	i := slices.IndexFunc(known, func(k string) bool { return strings.EqualFold(k, value) })
	if i >= 0 {
		return known[i], nil
	}
	return "", Errorf("%s is one of %s, not %q%s", flag, strings.Join(known, ", "), value, suggest.Question(value, known))
}

// AllAmong is among for a flag with several values.
func AllAmong[T ~string](flag string, values []string, known ...string) ([]T, error) {
	if len(values) == 0 {
		return nil, nil
	}
	out := make([]T, len(values))
	for i, v := range values {
		found, err := Among(flag, v, known...)
		if err != nil {
			return nil, err
		}
		out[i] = T(found)
	}
	return out, nil
}

// Exactly asks for named arguments.
func Exactly(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == len(names) {
			return nil
		}
		if len(names) == 0 {
			return Errorf("no argument is expected, %d given", len(args))
		}
		return Errorf("expected %s", strings.Join(names, " and "))
	}
}
