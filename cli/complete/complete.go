// Package complete has shells complete names of the hub: applications, projects
// and clusters, and the words that flags know. Package cli hands it the commands.
// Without a sign-in nothing is completed.
package complete

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/cli/command"
	"github.com/capstan-cd/capstan/shared/apimodel"
)

// mostNames bounds how many names a completion asks the hub for.
const mostNames = 500

// A lister lists names of the hub that begin with a word.
type lister func(cmd *cobra.Command, api *client.Client, begin string) ([]string, error)

type completion struct{ *command.Env }

// Names has commands and flags complete names of the hub.
func Names(env *command.Env, root *cobra.Command) {
	a := completion{env}

	nouns := map[string]lister{"app": listApplications, "appset": listSets, "project": listProjects, "cluster": listClusters}
	for _, noun := range root.Commands() {
		list, there := nouns[noun.Name()]
		a.completeFlags(noun)
		for _, verb := range noun.Commands() {
			a.completeFlags(verb)
			if there && verb.ValidArgsFunction == nil && verb.Runnable() && verb.Name() != "create" && verb.Name() != "generate" && verb.Name() != "enroll" && verb.Name() != "list" {
				verb.ValidArgsFunction = a.completer(list)
			}
		}
	}
}

func (a completion) completeFlags(c *cobra.Command) {
	for name, list := range map[string]lister{"project": listProjects, "cluster": listClusters} {
		if c.Flags().Lookup(name) != nil {
			_ = c.RegisterFlagCompletionFunc(name, a.completer(list)) // there is one already, or none
		}
	}
	for name, words := range map[string][]string{
		"sync": {"Synced", "OutOfSync", "Unknown"}, "health": {"Healthy", "Progressing", "Degraded", "Suspended", "Missing", "Unknown"}, "output": {"table", "wide", "json", "yaml", "name"},
	} {
		if f := c.Flags().Lookup(name); f != nil && f.Value.Type() != "bool" {
			_ = c.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
		}
	}
}

// completer asks the hub. Without a sign-in there is nothing to complete.
func (a completion) completer(list lister) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begin string) ([]string, cobra.ShellCompDirective) {
		api, err := a.Client()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		names, err := list(cmd, api, begin)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		names = slices.DeleteFunc(names, func(n string) bool { return !strings.HasPrefix(n, begin) || slices.Contains(args, n) })
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

func listApplications(cmd *cobra.Command, api *client.Client, begin string) (out []string, err error) {
	_, name := client.SplitName(begin)
	l, _, err := client.Call[apimodel.ApplicationList](api.ListApplications(cmd.Context(), apimodel.ListApplicationsParams{Q: name, Fields: "items.metadata", Limit: mostNames}))
	for _, x := range l.Items {
		out = append(out, client.QualifiedName(x.Metadata))
	}
	return out, err
}

func listSets(cmd *cobra.Command, api *client.Client, begin string) (out []string, err error) {
	_, name := client.SplitName(begin)
	l, _, err := client.Call[apimodel.ApplicationSetList](api.ListApplicationSets(cmd.Context(), apimodel.ListApplicationSetsParams{Q: name, Limit: mostNames}))
	for _, x := range l.Items {
		out = append(out, client.QualifiedName(x.Metadata))
	}
	return out, err
}

func listProjects(cmd *cobra.Command, api *client.Client, _ string) (out []string, err error) {
	l, _, err := client.Call[struct {
		Items []apimodel.AppProject `json:"items"`
	}](api.ListProjects(cmd.Context()))
	for _, x := range l.Items {
		out = append(out, x.Metadata.Name)
	}
	return out, err
}

func listClusters(cmd *cobra.Command, api *client.Client, _ string) (out []string, err error) {
	l, _, err := client.Call[struct {
		Items []apimodel.Cluster `json:"items"`
	}](api.ListClusters(cmd.Context()))
	for _, x := range l.Items {
		out = append(out, x.Name)
	}
	return out, err
}
