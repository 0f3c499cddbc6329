package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/capstan-cd/capstan/shared/suggest"
)

// noun groups the verbs of one kind of thing.
func noun(use, short string, aliases []string, verbs ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Aliases: aliases, Args: aVerb, RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
	c.AddCommand(verbs...)
	return c
}

// usageError is a mistake in the words of a command.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// usageErrorf is a mistake that a sentence describes.
func usageErrorf(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// asUsage makes an error one of usage.
func asUsage(err error) error { return usageError{err} }

// isUsage reports whether an error is one of usage.
func isUsage(err error) bool {
	var e usageError
	return errors.As(err, &e)
}

// aVerb refuses words that no command of a group is called by.
func aVerb(c *cobra.Command, args []string) error {
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
	return usageErrorf("unknown command %q for %q%s", args[0], c.CommandPath(), question)
}

// flagError says which flag was meant.
func flagError(c *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return asUsage(err)
	}
	var names []string
	c.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	if near := suggest.Nearest(unknown.GetSpecifiedName(), names); near != "" && unknown.GetSpecifiedShortnames() == "" {
		return usageErrorf("%w for %q; did you mean --%s?", err, c.CommandPath(), near)
	}
	return usageErrorf("%w for %q; `%s --help` lists the flags", err, c.CommandPath(), c.CommandPath())
}

// among finds the value of a flag among those that there are; case does not
// count.
func among(flag, value string, known ...string) (string, error) {
	i := slices.IndexFunc(known, func(k string) bool { return strings.EqualFold(k, value) })
	if i >= 0 {
		return known[i], nil
	}
	return "", usageErrorf("%s is one of %s, not %q%s", flag, strings.Join(known, ", "), value, suggest.Question(value, known))
}

// allAmong is among for a flag with several values.
func allAmong[T ~string](flag string, values []string, known ...string) ([]T, error) {
	if len(values) == 0 {
		return nil, nil
	}
	out := make([]T, len(values))
	for i, v := range values {
		found, err := among(flag, v, known...)
		if err != nil {
			return nil, err
		}
		out[i] = T(found)
	}
	return out, nil
}

// exactly asks for named arguments.
func exactly(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == len(names) {
			return nil
		}
		if len(names) == 0 {
			return usageErrorf("no argument is expected, %d given", len(args))
		}
		return usageErrorf("expected %s", strings.Join(names, " and "))
	}
}
