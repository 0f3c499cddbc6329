package transfer

import (
	"cmp"
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/cli/exit"
	"github.com/capstan-cd/capstan/cli/importer"
	"github.com/capstan-cd/capstan/cli/output"
	"github.com/capstan-cd/capstan/cli/usage"
	"github.com/capstan-cd/capstan/shared/apimodel"
	"github.com/capstan-cd/capstan/shared/fault"
)

// waiting is what is imported and waits for a confirmation.
type waiting struct {
	Items []apimodel.Application    `json:"items"`
	Sets  []apimodel.ApplicationSet `json:"applicationSets,omitempty"`
}

func readWaiting(ctx context.Context, api *client.Client) (w waiting, err error) {
	if w.Items, err = importer.Waiting(ctx, api); err != nil {
		return w, err
	}
	w.Sets, err = importer.WaitingSets(ctx, api)
	return w, err
}

func (w waiting) size() int { return len(w.Items) + len(w.Sets) }

func (a commands) importList() *cobra.Command {
	return a.Plain("list", "List imported applications and ApplicationSets that wait for a confirmation", "  capstan import list\n  capstan import list -o name", func(cmd *cobra.Command, api *client.Client) error {
		all, err := readWaiting(cmd.Context(), api)
		if err != nil {
			return err
		}
		return a.printWaiting(all)
	})
}

func (a commands) printWaiting(all waiting) error {
	t := output.Table{Head: []string{"NAME", "SYNC", "HEALTH", "IF CONFIRMED"}}
	for _, x := range all.Items {
		name := client.QualifiedName(x.Metadata)
		t.Rows = append(t.Rows, []string{name, string(x.Status.Sync.Status), string(x.Status.Health.Status), importer.Consequence(x)})
		t.Names = append(t.Names, "application/"+name)
	}
	for _, x := range all.Sets {
		name := client.QualifiedName(x.Metadata)
		t.Rows = append(t.Rows, []string{name, "-", output.Dash(string(x.Status.Health.Status)), "what this ApplicationSet makes from now on is not only observed"})
		t.Names = append(t.Names, "applicationset/"+name)
	}
	return a.PrintValue(all, t)
}

func (a commands) importConfirm() *cobra.Command {
	var all, yes bool
	c := &cobra.Command{
		Use: "confirm [NAME…]", Short: "Start the automation of imported applications and ApplicationSets", Args: cobra.ArbitraryArgs,
		Example: "  capstan import confirm shop\n  capstan import confirm --all --yes",
		RunE: func(cmd *cobra.Command, args []string) error {
			if all == (len(args) > 0) {
				return usage.Errorf("expected names of applications or ApplicationSets, or --all")
			}
			api, err := a.Client()
			if err != nil {
				return err
			}
			w, err := readWaiting(cmd.Context(), api)
			if err == nil && !all {
				w, err = chosen(w, args)
			}
			if err != nil {
				return err
			}
			return a.confirmAll(cmd.Context(), api, w, yes)
		},
	}
	c.Flags().BoolVar(&all, "all", false, "confirm all that wait")
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return c
}

// confirmAll shows what a confirmation does, asks, and confirms.
func (a commands) confirmAll(ctx context.Context, api *client.Client, w waiting, yes bool) error {
	if err := a.printWaiting(w); err != nil || w.size() == 0 {
		return err
	}
	question := fmt.Sprintf("Start the automation of %d applications?", len(w.Items))
	if len(w.Sets) > 0 {
		question = fmt.Sprintf("Start the automation of %d applications and %d ApplicationSets?", len(w.Items), len(w.Sets))
	}
	if err := a.Confirm(yes, question); err != nil {
		return err
	}
	failed := exit.Failures{Total: w.size()}
	note := func(what string, m apimodel.Metadata, err error) {
		if err != nil {
			a.Note("capstan: %s %s: %s", what, client.QualifiedName(m), exit.Say(err))
			failed.Add(exit.Of(err))
		}
	}
	for _, x := range w.Items {
		note("application", x.Metadata, importer.Confirm(ctx, api, x.Metadata.Namespace, x.Metadata.Name))
	}
	for _, x := range w.Sets {
		note("ApplicationSet", x.Metadata, importer.ConfirmSet(ctx, api, x))
	}
	return failed.Err("imported objects", "were not confirmed")
}

// chosen returns what has some names. An application is meant before a set of
// the same name.
func chosen(all waiting, names []string) (out waiting, err error) {
	for _, given := range names {
		namespace, name := client.SplitName(given)
		is := func(m apimodel.Metadata) bool { return m.Name == name && cmp.Or(m.Namespace, "argocd") == namespace }
		before := out.size()
		for _, x := range all.Items {
			if is(x.Metadata) {
				out.Items = append(out.Items, x)
			}
		}
		for _, x := range all.Sets {
			if is(x.Metadata) && out.size() == before {
				out.Sets = append(out.Sets, x)
			}
		}
		if out.size() == before {
			return waiting{}, fault.With(fault.New(fault.Missing, "nothing imported that is called %q waits for a confirmation", given), "", "see `capstan import list`")
		}
	}
	return out, nil
}
