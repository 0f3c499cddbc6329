// Package appset has the commands about ApplicationSets: what they have made,
// what they would make, and the sets themselves. The verbs, flags and answers
// are those of argocd appset. Package cli puts them into its tree.
package appset

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/cli/command"
	"github.com/capstan-cd/capstan/cli/output"
	"github.com/capstan-cd/capstan/cli/usage"
	"github.com/capstan-cd/capstan/shared/apimodel"
)

const (
	errorOccurred = "ErrorOccurred"
	upToDate      = "ResourcesUpToDate"
	isTrue        = apimodel.ConditionTrue
)

type commands struct{ *command.Env }

// Commands is `appset` with its verbs.
func Commands(env *command.Env) *cobra.Command {
	c := commands{env}
	return command.Noun("appset", "ApplicationSets: list, show, create, generate, refresh, delete", []string{"appsets", "applicationset", "applicationsets"},
		c.list(), c.get(), c.create(), c.generate(), c.refresh(), c.approve(), c.remove())
}

// one makes a verb that is about one set.
func (c commands) one(use, short, example string, do func(cmd *cobra.Command, api *client.Client, namespace, name string) error) *cobra.Command {
	var in string
	verb := c.Named(use, short, "the name of an ApplicationSet", example, func(cmd *cobra.Command, api *client.Client, given string) error {
		namespace, name, err := named(given, in)
		if err != nil {
			return err
		}
		return do(cmd, api, namespace, name)
	})
	addNamespace(verb, &in)
	return verb
}

func addNamespace(cmd *cobra.Command, to *string) {
	cmd.Flags().StringVarP(to, "appset-namespace", "N", "", "namespace of the ApplicationSet (default: argocd)")
}

// named is the namespace and name of a set, which a flag may complete.
func named(given, in string) (namespace, name string, err error) {
	namespace, name = client.SplitName(given)
	if in == "" || namespace == in {
		return namespace, name, nil
	}
	if strings.Contains(given, "/") {
		return "", "", usage.Errorf("the ApplicationSet %s is not in namespace %s; give one of both", given, in)
	}
	return in, name, nil
}

func (c commands) list() *cobra.Command {
	var params apimodel.ListApplicationSetsParams
	var projects, health []string
	var in string
	cmd := &cobra.Command{
		Use: "list", Short: "List ApplicationSets", Aliases: []string{"ls"}, Args: usage.Exactly(),
		Example: "  capstan appset list\n  capstan appset list -p shop -o wide\n  capstan appset list -l team=shop -o name",
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			params.Project, params.AppsetNamespace = projects, in
			if params.Health, err = usage.AllAmong[apimodel.HealthStatusCode]("--health", health, "Healthy", "Progressing", "Degraded", "Unknown"); err != nil {
				return err
			}
			api, err := c.Client()
			if err != nil {
				return err
			}
			all, err := listAll(cmd.Context(), api, params)
			if err != nil {
				return err
			}
			raw, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": all})
			if err != nil {
				return err
			}
			return c.Print(raw, table(all...))
		},
	}
	cmd.Flags().StringSliceVarP(&projects, "project", "p", nil, "of these projects; * has those whose project is templated")
	cmd.Flags().StringSliceVar(&health, "health", nil, "Healthy, Progressing, Degraded, Unknown")
	cmd.Flags().StringVarP(&params.Selector, "selector", "l", "", "label selector")
	addNamespace(cmd, &in)
	return cmd
}

// listAll reads a list page by page.
func listAll(ctx context.Context, api *client.Client, params apimodel.ListApplicationSetsParams) ([]apimodel.ApplicationSet, error) {
	params.Limit = 500
	all := []apimodel.ApplicationSet{} // a list without items is [], not null
	for {
		page, _, err := client.Call[apimodel.ApplicationSetList](api.ListApplicationSets(ctx, params))
		if err != nil {
			return nil, err
		}
		all = append(all, page.Items...)
		if params.Cursor = page.Metadata.Continue; params.Cursor == "" {
			return all, nil
		}
	}
}

// spec is what tables show of a set.
type spec struct {
	SyncPolicy struct {
		Preserve         bool   `json:"preserveResourcesOnDeletion"`
		ApplicationsSync string `json:"applicationsSync"`
	} `json:"syncPolicy"`
	Strategy struct {
		Type string `json:"type"`
	} `json:"strategy"`
	Generators []map[string]json.RawMessage `json:"generators"`
	Template   struct {
		Spec struct {
			Project string `json:"project"`
			Source  struct {
				RepoURL        string `json:"repoURL"`
				Path           string `json:"path"`
				TargetRevision string `json:"targetRevision"`
			} `json:"source"`
		} `json:"spec"`
	} `json:"template"`
}

// generators names the kinds of generators of a set.
func (s spec) generators() string {
	var kinds []string
	for _, g := range s.Generators {
		for kind := range g {
			if kind != "selector" && kind != "template" {
				kinds = append(kinds, kind)
			}
		}
	}
	slices.Sort(kinds)
	return strings.Join(slices.Compact(kinds), ",")
}

func reference(s apimodel.ApplicationSet) string {
	return "applicationset/" + client.QualifiedName(s.Metadata)
}

func table(all ...apimodel.ApplicationSet) output.Table {
	t := output.Table{
		Head: []string{"NAME", "PROJECT", "HEALTH", "APPLICATIONS", "GENERATED", "GENERATORS", "CONDITIONS", "STRATEGY", "APPLICATIONS SYNC", "PRESERVE", "REPOSITORY", "PATH", "TARGET"},
		Wide: 6,
	}
	for _, x := range all {
		var s spec
		_ = json.Unmarshal(x.Spec, &s) // one that cannot be read is shown without
		source := s.Template.Spec.Source
		t.Rows = append(t.Rows, []string{
			client.QualifiedName(x.Metadata), cmp.Or(x.Status.Capstan.Project, s.Template.Spec.Project, "default"), cmp.Or(string(x.Status.Health.Status), "Unknown"),
			strconv.FormatInt(x.Status.ResourcesCount, 10), output.Ago(x.Status.Capstan.GeneratedAt), output.Dash(s.generators()), output.Dash(conditions(x.Status)),
			cmp.Or(s.Strategy.Type, "AllAtOnce"), cmp.Or(s.SyncPolicy.ApplicationsSync, "sync"), strconv.FormatBool(s.SyncPolicy.Preserve),
			output.Dash(source.RepoURL), output.Dash(source.Path), output.Dash(source.TargetRevision),
		})
		t.Names = append(t.Names, reference(x))
	}
	return t
}

// conditions names what a person should know of a set.
func conditions(st apimodel.ApplicationSetStatus) string {
	var types []string
	for _, c := range st.Conditions {
		if c.Status == isTrue && c.Type != upToDate && c.Type != "ParametersGenerated" {
			types = append(types, c.Type)
		}
	}
	slices.Sort(types)
	return strings.Join(types, ",")
}

func (c commands) get() *cobra.Command {
	var params bool
	cmd := c.one("get NAME", "Show one ApplicationSet, its conditions and its applications", "  capstan appset get fleet\n  capstan appset get fleet -o yaml",
		func(cmd *cobra.Command, api *client.Client, namespace, name string) error {
			x, raw, err := client.Call[apimodel.ApplicationSet](api.GetApplicationSet(cmd.Context(), namespace, name))
			if err != nil {
				return err
			}
			if c.Format != "table" && c.Format != "wide" {
				return c.Print(raw, output.Table{Names: []string{reference(x)}})
			}
			if err := c.describe(x); err != nil || !params {
				return err
			}
			return c.parameters(cmd.Context(), api, x)
		})
	cmd.Flags().BoolVar(&params, "show-params", false, "show what the template is filled with for each application, too")
	return cmd
}

// describe prints a set for people.
func (c commands) describe(x apimodel.ApplicationSet) error {
	if err := c.Tabulate(table(x)); err != nil {
		return err
	}
	st := x.Status
	if held := st.Capstan.Held; held.Count > 0 {
		fmt.Fprintf(c.Out, "\nHeld: %d of %d applications are only deleted with consent; `capstan appset approve %s` deletes them\n",
			held.Count, held.Of, client.QualifiedName(x.Metadata))
		if held.ConsentedBy != "" {
			fmt.Fprintf(c.Out, "%s has consented; they are being deleted\n", held.ConsentedBy)
		}
		for _, name := range held.Applications {
			fmt.Fprintln(c.Out, "  "+name)
		}
	}
	if len(st.Conditions) > 0 {
		fmt.Fprintln(c.Out)
		t := output.Table{Head: []string{"CONDITION", "STATUS", "AGE", "MESSAGE"}}
		for _, cond := range st.Conditions {
			t.Rows = append(t.Rows, []string{cond.Type, string(cond.Status), output.Ago(cond.LastTransitionTime), cond.Message})
		}
		if err := c.Tabulate(t); err != nil {
			return err
		}
	}
	if len(st.Resources) == 0 {
		return nil
	}
	fmt.Fprintln(c.Out)
	return c.Tabulate(members(st))
}

// members are the applications of a set, with how far a rollout is with each.
func members(st apimodel.ApplicationSetStatus) output.Table {
	rollout := map[string]apimodel.RolloutState{}
	for _, s := range st.ApplicationStatus {
		rollout[s.Application] = s
	}
	t := output.Table{Head: []string{"APPLICATION", "SYNC", "HEALTH"}}
	if len(rollout) > 0 {
		t.Head = append(t.Head, "STEP", "ROLLOUT", "MESSAGE")
	}
	for _, r := range st.Resources {
		row := []string{client.QualifiedName(apimodel.Metadata{Namespace: r.Namespace, Name: r.Name}), output.Dash(string(r.Status)), output.Dash(string(r.Health.Status))}
		if len(rollout) > 0 {
			s := rollout[r.Name]
			row = append(row, output.Dash(s.Step), output.Dash(string(s.Status)), output.Dash(s.Message))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// parameters prints what a set would fill its template with now.
func (c commands) parameters(ctx context.Context, api *client.Client, x apimodel.ApplicationSet) error {
	p, _, err := client.Call[apimodel.ApplicationSetPreview](api.GenerateApplicationSet(ctx, given(x)))
	if err != nil {
		return err
	}
	fmt.Fprintln(c.Out)
	t := output.Table{Head: []string{"APPLICATION", "PARAMETERS"}}
	for _, i := range p.Items {
		if i.Action != apimodel.PreviewDelete {
			t.Rows = append(t.Rows, []string{output.Dash(i.Name), output.Dash(string(i.Parameters))})
		}
	}
	return c.Tabulate(t)
}

// given is what a person wrote of a set.
func given(x apimodel.ApplicationSet) apimodel.ApplicationSet {
	m := x.Metadata
	return apimodel.ApplicationSet{
		ApiVersion: x.ApiVersion, Kind: x.Kind, Spec: x.Spec,
		Metadata: apimodel.Metadata{Name: m.Name, Namespace: m.Namespace, Labels: m.Labels, Annotations: m.Annotations, Finalizers: m.Finalizers},
	}
}
