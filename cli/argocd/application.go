package argocd

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/cli/command"
	"github.com/capstan-cd/capstan/cli/editor"
	"github.com/capstan-cd/capstan/cli/files"
	"github.com/capstan-cd/capstan/cli/output"
	"github.com/capstan-cd/capstan/cli/usage"
	"github.com/capstan-cd/capstan/shared/apimodel"
	"github.com/capstan-cd/capstan/shared/fault"
)

type commands struct{ *command.Env }

// Applications are the verbs of app that change specifications (CLI-03).
func Applications(env *command.Env) []*cobra.Command {
	c := commands{env}
	return []*cobra.Command{c.create(), c.set(), c.unset(), c.edit(), c.patch(), c.addSource(), c.removeSource(), c.resources()}
}

func (c commands) print(x apimodel.Application, raw []byte) error {
	c.Warn(x.Warnings)
	name := "application/" + client.QualifiedName(x.Metadata)
	if c.Format == "table" || c.Format == "wide" {
		_, err := c.Out.Write([]byte(name + " saved\n"))
		return err
	}
	return c.Print(raw, output.Table{Names: []string{name}})
}

func (c commands) create() *cobra.Command {
	var f specFlags
	var file string
	var upsert, validate bool
	var labels, annotations []string
	cmd := &cobra.Command{
		Use: "create NAME", Short: "Make an application", Args: cobra.MaximumNArgs(1),
		Example: "  capstan app create shop --repo https://git.example.com/shop.git --path deploy --dest-name production --dest-namespace shop\n  capstan app create -f application.yaml --upsert",
		RunE: func(cmd *cobra.Command, args []string) error {
			x, err := c.given(file, args)
			if err != nil {
				return err
			}
			spec := map[string]any{}
			if len(x.Spec) > 0 && json.Unmarshal(x.Spec, &spec) != nil {
				return fault.New(fault.Invalid, "the spec is no map")
			}
			if err := f.into(spec, cmd.Flags(), 0); err != nil {
				return err
			}
			if getAt(spec, "project") == nil {
				spec["project"] = "default"
			}
			if x.Spec, err = json.Marshal(spec); err != nil {
				return err
			}
			x.Metadata.Labels = withPairs(x.Metadata.Labels, labels)
			x.Metadata.Annotations = withPairs(x.Metadata.Annotations, annotations)
			return c.made(cmd.Context(), x, upsert, validate)
		},
	}
	f.add(cmd.Flags())
	cmd.Flags().StringVarP(&file, "file", "f", "", "file with an Application, or - for standard input; flags change it")
	cmd.Flags().BoolVar(&upsert, "upsert", false, "change the application if there is one of that name")
	cmd.Flags().BoolVar(&validate, "validate", false, "refuse an application that its project or destination does not permit")
	cmd.Flags().StringArrayVarP(&labels, "label", "l", nil, "label of the application, as NAME=VALUE")
	cmd.Flags().StringArrayVar(&annotations, "annotations", nil, "annotation of the application, as NAME=VALUE")
	return cmd
}

// given is the application of a file and a name.
func (c commands) given(file string, args []string) (apimodel.Application, error) {
	x := apimodel.Application{ApiVersion: "argoproj.io/v1alpha1", Kind: "Application"}
	if file != "" {
		in, err := files.Read([]string{file}, c.In)
		if err != nil {
			return x, err
		}
		if yaml.Unmarshal(in.Text(), &x) != nil || x.Kind != "Application" {
			return x, fault.New(fault.Invalid, "the file %s has no Application", file)
		}
	}
	if len(args) > 0 {
		x.Metadata.Namespace, x.Metadata.Name = client.SplitName(args[0])
	}
	if x.Metadata.Name == "" {
		return x, usage.Errorf("expected the name of the application, or a file with one")
	}
	return x, nil
}

func (c commands) made(ctx context.Context, x apimodel.Application, upsert, validate bool) error {
	api, err := c.Client()
	if err != nil {
		return err
	}
	out, raw, err := client.Call[apimodel.Application](api.CreateApplication(ctx, apimodel.CreateApplicationParams{Validate: validate}, x))
	if !upsert || !exists(err) {
		if err != nil {
			return err
		}
		return c.print(out, raw)
	}
	namespace := cmp.Or(x.Metadata.Namespace, "argocd")
	meta := map[string]any{} // null would take all labels away
	if len(x.Metadata.Labels) > 0 {
		meta["labels"] = x.Metadata.Labels
	}
	if len(x.Metadata.Annotations) > 0 {
		meta["annotations"] = x.Metadata.Annotations
	}
	patch, err := json.Marshal(map[string]any{"metadata": meta, "spec": x.Spec})
	if err != nil {
		return err
	}
	out, raw, err = client.Call[apimodel.Application](api.PatchApplication(ctx, namespace, x.Metadata.Name, apimodel.PatchApplicationParams{},
		apimodel.PatchApplicationJSONRequestBody{Patch: string(patch), PatchType: apimodel.Merge}))
	if err != nil {
		return err
	}
	return c.print(out, raw)
}

// exists reports whether an application could not be made because it is there.
func exists(err error) bool { return err != nil && client.StatusOf(codeOf(err)) == 409 }

func codeOf(err error) string {
	if answer, ok := err.(*client.AnswerError); ok { //nolint:errorlint // Call returns it as it is
		return answer.Body.Code
	}
	return ""
}

func withPairs(m apimodel.StringMap, pairs []string) apimodel.StringMap {
	for _, p := range pairs {
		if m == nil {
			m = apimodel.StringMap{}
		}
		key, value, _ := strings.Cut(p, "=")
		m[key] = value
	}
	return m
}

// change reads the spec of an application, changes it and writes it back.
func (c commands) change(ctx context.Context, name string, change func(spec map[string]any) error) error {
	api, err := c.Client()
	if err != nil {
		return err
	}
	namespace, name := client.SplitName(name)
	x, _, err := client.Call[apimodel.Application](api.GetApplication(ctx, namespace, name, apimodel.GetApplicationParams{}))
	if err != nil {
		return err
	}
	var spec map[string]any
	if err := json.Unmarshal(x.Spec, &spec); err != nil {
		return fault.New(fault.Invalid, "the spec of application %s cannot be read", name)
	}
	if err := change(spec); err != nil {
		return err
	}
	body, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	if _, err := client.Read(api.UpdateApplicationSpec(ctx, namespace, name, apimodel.UpdateApplicationSpecParams{IfMatch: `"` + x.Metadata.ResourceVersion + `"`}, body)); err != nil {
		return err
	}
	out, raw, err := client.Call[apimodel.Application](api.GetApplication(ctx, namespace, name, apimodel.GetApplicationParams{}))
	if err != nil {
		return err
	}
	return c.print(out, raw)
}

func (c commands) set() *cobra.Command {
	var f specFlags
	var position int
	cmd := &cobra.Command{
		Use: "set NAME", Short: "Change parts of an application's specification", Args: usage.Exactly("the name of an application"),
		Example: "  capstan app set shop --revision v1.2.0\n  capstan app set shop --helm-set replicas=3 --sync-policy automated --self-heal",
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.change(cmd.Context(), args[0], func(spec map[string]any) error {
				if err := needPosition(spec, position); err != nil {
					return err
				}
				return f.into(spec, cmd.Flags(), position)
			})
		},
	}
	f.add(cmd.Flags())
	cmd.Flags().IntVar(&position, "source-position", 0, "which of several sources, from 1")
	return cmd
}

func needPosition(spec map[string]any, position int) error {
	if sources, _ := spec["sources"].([]any); len(sources) > 1 && position == 0 {
		return usage.Errorf("the application has %d sources; give --source-position", len(sources))
	}
	return nil
}

func (c commands) unset() *cobra.Command {
	var position int
	var parameters, values, images, options, variables []string
	var prefix, suffix, version, literal bool
	cmd := &cobra.Command{
		Use: "unset NAME", Short: "Take parts of an application's specification away", Args: usage.Exactly("the name of an application"),
		Example: "  capstan app unset shop -p replicas\n  capstan app unset shop --values prod.yaml --kustomize-image web",
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.change(cmd.Context(), args[0], func(spec map[string]any) error {
				source, err := sourceOf(spec, position)
				if err == nil {
					err = needPosition(spec, position)
				}
				if err != nil {
					return err
				}
				take(source, "helm.parameters", parameters)
				take(source, "helm.valueFiles", values)
				take(source, "kustomize.images", images)
				take(source, "plugin.env", variables)
				take(spec, "syncPolicy.syncOptions", options)
				for path, gone := range map[string]bool{"kustomize.namePrefix": prefix, "kustomize.nameSuffix": suffix, "kustomize.version": version, "helm.values": literal} {
					if gone {
						removeAt(source, path)
					}
				}
				return nil
			})
		},
	}
	fl := cmd.Flags()
	fl.IntVar(&position, "source-position", 0, "which of several sources, from 1")
	fl.StringArrayVarP(&parameters, "parameter", "p", nil, "parameter of the chart")
	fl.StringArrayVar(&values, "values", nil, "value file of the chart")
	fl.StringArrayVar(&images, "kustomize-image", nil, "image of Kustomize")
	fl.StringArrayVar(&options, "sync-option", nil, "sync option")
	fl.StringArrayVar(&variables, "plugin-env", nil, "variable of the plugin")
	fl.BoolVar(&prefix, "nameprefix", false, "prefix of Kustomize")
	fl.BoolVar(&suffix, "namesuffix", false, "suffix of Kustomize")
	fl.BoolVar(&version, "kustomize-version", false, "version of Kustomize")
	fl.BoolVar(&literal, "values-literal", false, "values of the chart that stand in the specification")
	return cmd
}

// take removes the items of some names from a list.
func take(m map[string]any, path string, names []string) {
	all, ok := getAt(m, path).([]any)
	if !ok || len(names) == 0 {
		return
	}
	left := slices.DeleteFunc(slices.Clone(all), func(v any) bool {
		text, _ := v.(string)
		if pair, ok := v.(map[string]any); ok {
			text, _ = pair["name"].(string)
		}
		name, _, _ := strings.Cut(text, "=")
		return slices.Contains(names, text) || slices.Contains(names, name)
	})
	if len(left) == 0 {
		removeAt(m, path)
		return
	}
	putAt(m, path, left)
}

func removeAt(m map[string]any, path string) {
	head, rest, deeper := strings.Cut(path, ".")
	if !deeper {
		delete(m, head)
		return
	}
	if next, ok := m[head].(map[string]any); ok {
		removeAt(next, rest)
	}
}

func (c commands) edit() *cobra.Command {
	return c.One("edit NAME", "Change an application's specification in an editor", "  capstan app edit shop\n  EDITOR=nano capstan app edit shop",
		func(cmd *cobra.Command, _ *client.Client, namespace, name string) error {
			return c.change(cmd.Context(), namespace+"/"+name, func(spec map[string]any) error {
				text, err := yaml.Marshal(spec)
				if err != nil {
					return err
				}
				if text, err = editor.Edit(cmd.Context(), editor.Streams{In: c.In, Out: c.Err}, text); err != nil {
					return err
				}
				var out map[string]any
				if yaml.Unmarshal(text, &out) != nil || len(out) == 0 {
					return fault.New(fault.Invalid, "what was edited is no specification; nothing was changed")
				}
				clear(spec)
				for k, v := range out {
					spec[k] = v
				}
				return nil
			})
		})
}

func (c commands) patch() *cobra.Command {
	var patch, kind string
	cmd := c.One("patch NAME", "Change an application by a JSON patch or a merge patch", "  capstan app patch shop --type merge --patch '{\"spec\": {\"project\": \"web\"}}'\n  capstan app patch shop --patch '[{\"op\": \"remove\", \"path\": \"/spec/syncPolicy\"}]'",
		func(cmd *cobra.Command, api *client.Client, namespace, name string) error {
			kind, err := usage.Among("--type", kind, "json", "merge")
			if err != nil {
				return err
			}
			x, raw, err := client.Call[apimodel.Application](api.PatchApplication(cmd.Context(), namespace, name, apimodel.PatchApplicationParams{},
				apimodel.PatchApplicationJSONRequestBody{Patch: patch, PatchType: apimodel.ApplicationPatchPatchType(kind)}))
			if err != nil {
				return err
			}
			return c.print(x, raw)
		})
	cmd.Flags().StringVar(&patch, "patch", "", "the patch")
	cmd.Flags().StringVar(&kind, "type", "json", "json or merge")
	_ = cmd.MarkFlagRequired("patch")
	return cmd
}

func (c commands) addSource() *cobra.Command {
	var f specFlags
	cmd := c.One("add-source NAME", "Add a source to an application of several", "  capstan app add-source shop --repo https://git.example.com/values.git --ref values\n  capstan app add-source shop --repo https://git.example.com/extra.git --path deploy",
		func(cmd *cobra.Command, _ *client.Client, namespace, name string) error {
			return c.change(cmd.Context(), namespace+"/"+name, func(spec map[string]any) error {
				sources, _ := spec["sources"].([]any)
				if source, ok := spec["source"].(map[string]any); ok && len(sources) == 0 {
					sources = []any{source}
					delete(spec, "source")
				}
				spec["sources"] = append(sources, map[string]any{})
				return f.into(spec, cmd.Flags(), len(sources)+1)
			})
		})
	f.add(cmd.Flags())
	return cmd
}

func (c commands) removeSource() *cobra.Command {
	var position int
	cmd := c.One("remove-source NAME", "Remove a source of an application of several", "  capstan app remove-source shop --source-position 2\n  capstan app remove-source argocd/shop --source-position 1",
		func(cmd *cobra.Command, _ *client.Client, namespace, name string) error {
			return c.change(cmd.Context(), namespace+"/"+name, func(spec map[string]any) error {
				sources, _ := spec["sources"].([]any)
				if len(sources) < 2 {
					return usage.Errorf("the application has one source, which it needs")
				}
				if _, err := sourceOf(spec, position); err != nil || position < 1 {
					return usage.Errorf("--source-position is one of 1 to %d", len(sources))
				}
				spec["sources"] = slices.Delete(slices.Clone(sources), position-1, position)
				return nil
			})
		})
	cmd.Flags().IntVar(&position, "source-position", 0, "which source, from 1")
	return cmd
}

func (c commands) resources() *cobra.Command {
	var orphaned bool
	cmd := c.One("resources NAME", "List the objects of an application", "  capstan app resources shop\n  capstan app resources shop --orphaned",
		func(cmd *cobra.Command, api *client.Client, namespace, name string) error {
			tree, raw, err := client.Call[apimodel.Tree](api.GetApplicationTree(cmd.Context(), namespace, name))
			if err != nil {
				return err
			}
			t := output.Table{Head: []string{"GROUP", "KIND", "NAMESPACE", "NAME", "ORPHANED", "STATUS", "HEALTH"}}
			for _, n := range tree.Nodes {
				if orphaned && !n.Orphaned || !orphaned && !n.Managed && !n.Orphaned {
					continue
				}
				word := "No"
				if n.Orphaned {
					word = "Yes"
				}
				t.Rows = append(t.Rows, []string{output.Dash(n.Group), n.Kind, output.Dash(n.Namespace), n.Name, word, output.Dash(string(n.Status)), output.Dash(string(n.Health))})
				t.Names = append(t.Names, strings.ToLower(n.Kind)+"/"+n.Name)
			}
			return c.Print(raw, t)
		})
	cmd.Flags().BoolVar(&orphaned, "orphaned", false, "only objects that no application manages")
	return cmd
}
