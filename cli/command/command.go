// Package command is what the commands of all nouns share: where they read and
// write, the hub that they call, and the question before something is deleted.
// Packages with commands of their own take an Env; package cli makes it.
package command

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/cli/output"
	"github.com/capstan-cd/capstan/cli/usage"
)

// An Env is what a command works with.
type Env struct {
	*output.Printer
	In io.Reader
	// Client opens the API of the hub that is signed in to.
	Client func() (*client.Client, error)
	// Confirm asks a question, unless yes is set. The error is that of a no, or
	// of a prompt without a terminal.
	Confirm func(yes bool, question string) error
	// Ask has a line typed. Without a terminal nobody is asked, and terminal is
	// false.
	Ask func(prompt string) (line string, terminal bool, err error)
}

// Plain makes a verb without arguments.
func (e *Env) Plain(use, short, example string, do func(cmd *cobra.Command, api *client.Client) error) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Example: example, Args: usage.Exactly(), RunE: func(cmd *cobra.Command, _ []string) error {
		api, err := e.Client()
		if err != nil {
			return err
		}
		return do(cmd, api)
	}}
}

// Named makes a verb that is about one named thing.
func (e *Env) Named(use, short, what, example string, do func(cmd *cobra.Command, api *client.Client, name string) error) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Example: example, Args: usage.Exactly(what), RunE: func(cmd *cobra.Command, args []string) error {
		api, err := e.Client()
		if err != nil {
			return err
		}
		return do(cmd, api, args[0])
	}}
}

// One makes a verb that is about one application.
func (e *Env) One(use, short, example string, do func(cmd *cobra.Command, api *client.Client, namespace, name string) error) *cobra.Command {
	return e.Named(use, short, "the name of an application", example, func(cmd *cobra.Command, api *client.Client, given string) error {
		namespace, name := client.SplitName(given)
		return do(cmd, api, namespace, name)
	})
}

// Noun groups the verbs of one kind of thing.
func Noun(use, short string, aliases []string, verbs ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Aliases: aliases, Args: usage.Verb, RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
	c.AddCommand(verbs...)
	return c
}
