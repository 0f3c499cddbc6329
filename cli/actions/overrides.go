package actions

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/capstan-cd/capstan/cli/command"
	"github.com/capstan-cd/capstan/cli/output"
	"github.com/capstan-cd/capstan/cli/overrides"
	"github.com/capstan-cd/capstan/cli/usage"
	"github.com/capstan-cd/capstan/shared/action"
)

// adminCommand has commands that run on this machine, without a hub.
// Overrides is the command resource-overrides, which tries out customisations of
// kinds.
func Overrides(env *command.Env) *cobra.Command {
	a := commands{env}
	return command.Noun("resource-overrides", "Try out customisations of kinds", nil, a.tryActions(), a.tryAction())
}

func (a commands) tryActions() *cobra.Command {
	var with overrides.Settings
	c := &cobra.Command{
		Use: "list-actions FILE", Short: "List the actions that an object in a file offers", Args: usage.Exactly("a file with an object"),
		Example: "  capstan admin settings resource-overrides list-actions rollout.yaml --argocd-cm-path argocd-cm.yaml",
		RunE: func(cmd *cobra.Command, args []string) error {
			all, o, err := with.Load(args[0])
			if err != nil {
				return err
			}
			list, err := all.List(cmd.Context(), o)
			if err != nil {
				return err
			}
			t := output.Table{Head: []string{"NAME", "DISABLED"}}
			for _, x := range list {
				t.Rows = append(t.Rows, []string{x.Name, fmt.Sprint(x.Disabled)})
				t.Names = append(t.Names, x.Name)
			}
			return a.PrintValue(list, t)
		},
	}
	with.AddFlags(c)
	return c
}

func (a commands) tryAction() *cobra.Command {
	var with overrides.Settings
	var params []string
	c := &cobra.Command{
		Use: "run-action FILE ACTION", Short: "Show what an action would change", Args: usage.Exactly("a file with an object", "the name of an action"),
		Example: "  capstan admin settings resource-overrides run-action deployment.yaml scale --param replicas=3",
		Aliases: []string{"action"},
		RunE: func(cmd *cobra.Command, args []string) error {
			all, o, err := with.Load(args[0])
			if err != nil {
				return err
			}
			given, err := parameters(params)
			if err != nil {
				return err
			}
			return a.showAction(cmd.Context(), all, o, args[1], given)
		},
	}
	with.AddFlags(c)
	c.Flags().StringArrayVar(&params, "param", nil, "parameter of the action as NAME=VALUE; may be given several times")
	return c
}

// showAction prints the patches and the new objects.
func (a commands) showAction(ctx context.Context, all *action.Actions, o map[string]any, name string, given []actionParameter) error {
	params := map[string]string{}
	for _, p := range given {
		params[p.Name] = p.Value
	}
	changes, err := all.Run(ctx, o, name, params)
	if err != nil {
		return err
	}
	type change struct {
		Operation string         `json:"operation"`
		Patch     map[string]any `json:"patch,omitempty"`
		Resource  map[string]any `json:"resource,omitempty"`
	}
	out := make([]change, 0, len(changes))
	for _, c := range changes {
		if c.Create {
			out = append(out, change{Operation: "create", Resource: c.Object})
			continue
		}
		body, status := action.Patch(o, c.Object)
		for k, v := range status {
			if body == nil {
				body = map[string]any{}
			}
			body[k] = v
		}
		out = append(out, change{Operation: "patch", Patch: body})
	}
	if a.Format == "json" {
		return a.PrintValue(out, output.Table{})
	}
	raw, err := json.Marshal(out)
	if err != nil {
		return err
	}
	text, err := yaml.JSONToYAML(raw)
	if err != nil {
		return err
	}
	_, err = a.Out.Write(text)
	return err
}
