// Package transfer has the commands that export and import what a tenant has
// declared. cli/exporter and cli/importer do the work; package cli adds the
// commands to its own.
package transfer

import (
	"bufio"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/cli/command"
	"github.com/capstan-cd/capstan/cli/exit"
	"github.com/capstan-cd/capstan/cli/exporter"
	"github.com/capstan-cd/capstan/cli/files"
	"github.com/capstan-cd/capstan/cli/importer"
	"github.com/capstan-cd/capstan/cli/output"
	"github.com/capstan-cd/capstan/cli/usage"
	"github.com/capstan-cd/capstan/shared/fault"
)

// kustomizeServed is the version of Kustomize that the hub builds with, as far
// as its output depends on it.
const kustomizeServed = "v5.8"

type commands struct{ *command.Env }

// Export is the command export.
func Export(env *command.Env) *cobra.Command { return commands{env}.exportCommand() }

// Import is the command import.
func Import(env *command.Env) *cobra.Command { return commands{env}.importCommand() }

// AdminImport is the command import under its name in Argo CD, without the
// verbs of a confirmation.
func AdminImport(env *command.Env) *cobra.Command {
	return commands{env}.importFiles("import FILE…", "  argocd admin export | capstan admin import -\n  capstan admin import backup.yaml --dry-run --verbose")
}

// exportCommand is `export`, and `admin export` under Argo CD's name.
func (a commands) exportCommand() *cobra.Command {
	var to string
	c := &cobra.Command{
		Use: "export", Short: "Write all applications, ApplicationSets, projects, repositories, clusters and settings as YAML", Args: usage.Exactly(),
		Long:    "Write all applications, ApplicationSets, projects, repositories, clusters and settings as YAML.\n\nArgo CD and Capstan take the text. Equal states have equal texts. Values of secrets are\nnot in it: each stands as \"" + exporter.Withheld + "\", and importing it leaves the stored value as it is.",
		Example: "  capstan export > backup.yaml\n  capstan export --out backup.yaml",
		RunE: func(cmd *cobra.Command, _ []string) error {
			api, err := a.Client()
			if err != nil {
				return err
			}
			out := a.Out
			if to != "-" {
				f, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
				if err != nil {
					return fault.Wrap(fault.Invalid, err, "the file %s cannot be written", to)
				}
				defer f.Close()
				out = f
			}
			w := bufio.NewWriter(out)
			if err := exporter.Run(cmd.Context(), api, w); err != nil {
				return err
			}
			return w.Flush()
		},
	}
	c.Flags().StringVar(&to, "out", "-", "file to write, or - for standard output")
	return c
}

// importCommand is `import`.
func (a commands) importCommand() *cobra.Command {
	c := a.importFiles("import FILE…", "  argocd admin export | capstan import -\n  capstan import backup.yaml --dry-run\n  capstan import confirm --all")
	c.AddCommand(a.importList(), a.importConfirm())
	return c
}

func (a commands) importFiles(use, example string) *cobra.Command {
	var o importer.Options
	var yes, verbose bool
	c := &cobra.Command{
		Use: use, Short: "Import what Argo CD or Capstan exported; clusters stay as they are until you confirm", Args: cobra.MinimumNArgs(1),
		Long: `Import what ` + "`argocd admin export`" + ` or ` + "`capstan export`" + ` wrote, or any manifests of Argo CD.

New applications are only observed: they are rendered and compared, and nothing is applied,
healed or pruned by itself until ` + "`capstan import confirm`" + `. Running objects that equal their
manifests are then taken over without a change. The report names what was not taken, and why.`,
		Example: example,
		RunE: func(cmd *cobra.Command, args []string) error {
			input, err := files.Read(args, a.In)
			if err != nil {
				return err
			}
			if err := a.confirmImport(o, yes); err != nil {
				return err
			}
			api, err := a.Client()
			if err != nil {
				return err
			}
			o.KustomizeServed = kustomizeServed
			report, err := importer.Run(cmd.Context(), api, input, o)
			if err != nil {
				return err
			}
			return a.printReport(report, verbose)
		},
	}
	f := c.Flags()
	f.BoolVar(&o.DryRun, "dry-run", false, "check everything, change nothing")
	f.BoolVar(&o.Start, "start", false, "start the automation of new applications at once, without a confirmation")
	f.BoolVar(&o.Prune, "prune", false, "delete applications, projects and repositories that the files do not have; objects in clusters stay")
	f.BoolVar(&o.StopOperation, "stop-operation", false, "end operations in progress of applications that are there already")
	f.BoolVar(&o.OverrideOnConflict, "override-on-conflict", false, "try again if somebody else changes an object meanwhile")
	f.BoolVar(&o.IgnoreTracking, "ignore-tracking", false, "leave the tracking marks of applications that are there already")
	f.StringVar(&o.SkipLabel, "skip-resources-with-label", "", "leave out objects with this label, KEY=VALUE")
	f.BoolVar(&o.Enroll, "enroll", true, "make join tokens for clusters without an agent, and print how to install it")
	f.BoolVar(&verbose, "verbose", false, "list objects that did not change as well")
	f.BoolVarP(&yes, "yes", "y", false, "do not ask")
	return c
}

// confirmImport asks before an import that changes more than it adds.
func (a commands) confirmImport(o importer.Options, yes bool) error {
	switch {
	case o.DryRun:
		return nil
	case o.Prune:
		return a.Confirm(yes, "Delete what the files do not have?")
	case o.Start:
		return a.Confirm(yes, "Start the automation of all imported applications?")
	}
	return nil
}

func (a commands) printReport(r importer.Report, verbose bool) error {
	failed := exit.Failures{Total: len(r.Items)}
	for _, code := range r.Refused() {
		failed.Add(exit.Of(&client.AnswerError{Status: client.StatusOf(code)}))
	}
	t := output.Table{Head: []string{"KIND", "NAME", "RESULT", "NOTE"}}
	for _, it := range r.Items {
		t.Names = append(t.Names, it.Kind+"/"+it.Name)
		if it.Result != "unchanged" || len(it.Notes) > 0 || verbose {
			t.Rows = append(t.Rows, rowsOf(it)...)
		}
	}
	if err := a.PrintValue(r, t); err != nil {
		return err
	}
	if a.Format == "table" || a.Format == "wide" {
		a.adviseImport(r)
	}
	return failed.Err("documents", "were refused")
}

// rowsOf has a row for a document, and one more for each further note.
func rowsOf(it importer.Item) [][]string {
	name := it.Name
	if it.Namespace != "" && it.Namespace != "argocd" {
		name = it.Namespace + "/" + name
	}
	rows := [][]string{{it.Kind, name, it.Result, ""}}
	for i, note := range it.Notes {
		if i > 0 {
			rows = append(rows, []string{"", "", "", ""})
		}
		rows[i][3] = note
	}
	return rows
}

// adviseImport says what to do after an import.
func (a commands) adviseImport(r importer.Report) {
	for _, it := range r.Items {
		if it.Install != "" {
			fmt.Fprintf(a.Out, "\nCluster %s waits for its agent. In the cluster:\n\n%s\n", it.Name, it.Install)
		}
	}
	for _, p := range r.Proposals {
		a.Note("%s", p)
	}
	if r.Observed > 0 && !r.DryRun {
		a.Note("%d applications are only observed. `capstan import list` shows them, `capstan import confirm` starts their automation.", r.Observed)
	}
}
