package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/capstan-cd/capstan/cli/output"
	"github.com/capstan-cd/capstan/cli/usage"
	"github.com/capstan-cd/capstan/shared/action"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/yamltext"
)

// maxManifest bounds a file that is tried out.
const maxManifest = 16 << 20

// adminCommand has commands that run on this machine, without a hub.
func (a *app) adminCommand() *cobra.Command {
	return noun("admin", "Try out settings on this machine, without a hub", nil,
		noun("settings", "Try out settings", nil,
			noun("resource-overrides", "Try out customisations of kinds", nil, a.tryActions(), a.tryAction())))
}

// customised are the settings that are tried out.
type customised struct{ file string }

func (c *customised) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.file, "argocd-cm-path", "", "file with the ConfigMap argocd-cm; without it only the built-in actions are there")
}

// actions reads the users' actions.
func (c *customised) actions() (*action.Actions, error) {
	if c.file == "" {
		return action.New(nil), nil
	}
	var cm struct {
		Data map[string]string `json:"data"`
	}
	if err := readYAML(c.file, &cm); err != nil {
		return nil, err
	}
	sets := map[string]action.Set{}
	if err := splitSets(cm.Data, sets); err != nil {
		return nil, err
	}
	return action.New(func(group, kind string) (action.Set, bool) {
		set, ok := sets[kindKey(group, kind)]
		return set, ok
	}), nil
}

func kindKey(group, kind string) string {
	if group == "" {
		return kind
	}
	return group + "_" + kind
}

const (
	actionsPrefix = "resource.customizations.actions."
	libsPrefix    = "resource.customizations.useOpenLibs."
)

// splitSets reads the keys of one kind each, and the older map of all.
func splitSets(data map[string]string, sets map[string]action.Set) error {
	var old map[string]struct {
		Actions     string `json:"actions"`
		UseOpenLibs bool   `json:"health.lua.useOpenLibs"`
	}
	if err := yaml.Unmarshal([]byte(data["resource.customizations"]), &old); err != nil {
		return notYAML("resource.customizations", data["resource.customizations"], err)
	}
	for kind, o := range old {
		if o.Actions == "" {
			continue
		}
		set, err := readSet("resource.customizations of "+kind, o.Actions)
		if err != nil {
			return err
		}
		set.OpenLibs = o.UseOpenLibs
		sets[strings.Replace(kind, "/", "_", 1)] = set
	}
	for key, text := range data {
		kind, ok := strings.CutPrefix(key, actionsPrefix)
		if !ok {
			continue
		}
		set, err := readSet(key, text)
		if err != nil {
			return err
		}
		set.OpenLibs = data[libsPrefix+kind] == "true"
		sets[kind] = set
	}
	return nil
}

func readSet(key, text string) (action.Set, error) {
	var in struct {
		Discovery    string `json:"discovery.lua"`
		MergeBuiltin bool   `json:"mergeBuiltinActions"`
		Definitions  []struct {
			Name string `json:"name"`
			Lua  string `json:"action.lua"`
		} `json:"definitions"`
	}
	if err := yamltext.Decode(key, []byte(text), &in); err != nil {
		return action.Set{}, err
	}
	set := action.Set{Discovery: in.Discovery, MergeBuiltin: in.MergeBuiltin, Scripts: map[string]string{}}
	for _, d := range in.Definitions {
		set.Scripts[d.Name] = d.Lua
	}
	return set, nil
}

// notYAML says where a text cannot be read.
func notYAML(name, text string, err error) error {
	line, cause := yamltext.Place([]byte(text), errors.New(strings.TrimPrefix(err.Error(), "error converting YAML to JSON: ")))
	return fault.New(fault.Invalid, "%s, line %d: not YAML: %s", name, line, cause)
}

// readYAML reads a file that is not absurdly large.
func readYAML(name string, into any) error {
	f, err := os.Open(name)
	if err != nil {
		return fault.Wrap(fault.Invalid, err, "%q cannot be read", name)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxManifest))
	if err != nil {
		return fault.Wrap(fault.Invalid, err, "%q cannot be read", name)
	}
	if err := yaml.Unmarshal(text, into); err != nil {
		return notYAML(name, string(text), err)
	}
	return nil
}

// liveObject reads the object that actions are tried out on.
func liveObject(name string) (map[string]any, error) {
	var o map[string]any
	if err := readYAML(name, &o); err != nil {
		return nil, err
	}
	if kind, _ := o["kind"].(string); kind == "" {
		return nil, fault.New(fault.Invalid, "%q contains no object with a kind", name)
	}
	return o, nil
}

func (a *app) tryActions() *cobra.Command {
	var with customised
	c := &cobra.Command{
		Use: "list-actions FILE", Short: "List the actions that an object in a file offers", Args: usage.Exactly("a file with an object"),
		Example: "  capstan admin settings resource-overrides list-actions rollout.yaml --argocd-cm-path argocd-cm.yaml",
		RunE: func(cmd *cobra.Command, args []string) error {
			all, o, err := with.both(args[0])
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
	with.flags(c)
	return c
}

func (c *customised) both(file string) (*action.Actions, map[string]any, error) {
	all, err := c.actions()
	if err != nil {
		return nil, nil, err
	}
	o, err := liveObject(file)
	return all, o, err
}

func (a *app) tryAction() *cobra.Command {
	var with customised
	var params []string
	c := &cobra.Command{
		Use: "run-action FILE ACTION", Short: "Show what an action would change", Args: usage.Exactly("a file with an object", "the name of an action"),
		Example: "  capstan admin settings resource-overrides run-action deployment.yaml scale --param replicas=3",
		Aliases: []string{"action"},
		RunE: func(cmd *cobra.Command, args []string) error {
			all, o, err := with.both(args[0])
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
	with.flags(c)
	c.Flags().StringArrayVar(&params, "param", nil, "parameter of the action as NAME=VALUE; may be given several times")
	return c
}

// showAction prints the patches and the new objects.
func (a *app) showAction(ctx context.Context, all *action.Actions, o map[string]any, name string, given []actionParameter) error {
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
