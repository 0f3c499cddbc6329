package project

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/capstan-cd/capstan/cli/usage"
)

// An entry is an element of one of a project's lists that is added or removed.
type entry struct {
	verb, list string   // add-source, sourceRepos
	short      string   // after Add or Remove
	args       []string // what the arguments are, after the project
	places     string   // how they are written in the usage line
	example    string   // the arguments of an example
	// value makes the element of the arguments.
	value func(cmd *cobra.Command, args []string) any
	flags func(cmd *cobra.Command)
}

func first(_ *cobra.Command, args []string) any { return args[0] }

// lists are the verbs that add to a list and remove from it.
func (c Commands) lists() []*cobra.Command {
	byName := func(cmd *cobra.Command) {
		cmd.Flags().Bool("name", false, "the cluster is given by its name, even if it looks like a server")
	}
	all := []entry{
		{"source", "sourceRepos", "a repository that its applications may use", []string{"the URL of the repository"}, "URL", "'https://git.example.com/shop/*'", first, nil},
		{
			"destination", "destinations", "a destination of its applications", []string{"the cluster", "the namespace"}, "CLUSTER NAMESPACE", "production 'shop-*'",
			func(cmd *cobra.Command, args []string) any {
				name, _ := cmd.Flags().GetBool("name")
				return destination(args[0], args[1], name)
			}, byName,
		},
		{"source-namespace", "sourceNamespaces", "a namespace whose applications may use it", []string{"the namespace"}, "NAMESPACE", "'team-*'", first, nil},
		{
			"destination-service-account", "destinationServiceAccounts", "the service account that applications act as at a destination",
			[]string{"the server", "the namespace", "the service account"}, "SERVER NAMESPACE ACCOUNT", "'*' shop deployer", account, func(cmd *cobra.Command) {
				cmd.Flags().String("service-account-namespace", "", "namespace of the service account (default: that of the destination)")
			},
		},
		{
			"orphaned-ignore", "orphanedResources", "objects that count as no orphans", []string{"the group", "the kind"}, "GROUP KIND", "'' ConfigMap --name 'kube-*'",
			func(cmd *cobra.Command, args []string) any {
				rule := map[string]any{"kind": args[1]}
				if args[0] != "" {
					rule["group"] = args[0]
				}
				if name, _ := cmd.Flags().GetString("name"); name != "" {
					rule["name"] = name
				}
				return rule
			}, func(cmd *cobra.Command) { cmd.Flags().String("name", "", "only objects of this name, a glob") },
		},
		{
			"signature-key", "signatureKeys", "a key that commits must be signed with", []string{"the id of the key"}, "KEY-ID", "4AEE18F83AFDEB23",
			func(_ *cobra.Command, args []string) any { return map[string]any{"keyID": args[0]} }, nil,
		},
	}
	var out []*cobra.Command
	for _, e := range all {
		out = append(out, c.adds(e, true), c.adds(e, false))
	}
	return out
}

func account(cmd *cobra.Command, args []string) any {
	name := args[2]
	if namespace, _ := cmd.Flags().GetString("service-account-namespace"); namespace != "" {
		name = namespace + ":" + name
	}
	return map[string]any{"server": args[0], "namespace": args[1], "defaultServiceAccount": name}
}

func (c Commands) adds(e entry, add bool) *cobra.Command {
	verb, short := "remove", "Remove "
	if add {
		verb, short = "add", "Add "
	}
	verb += "-" + e.verb
	cmd := &cobra.Command{
		Use: verb + " PROJECT " + e.places, Short: short + e.short, Args: usage.Exactly(append([]string{"the name of the project"}, e.args...)...),
		Example: "  capstan project " + verb + " shop " + e.example,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.change(cmd, args[0], func(spec map[string]any) error {
				of, field := spec, e.list
				if e.list == "orphanedResources" {
					if of, _ = spec[e.list].(map[string]any); of == nil {
						of = map[string]any{}
						spec[e.list] = of
					}
					field = "ignore"
				}
				return edit(of, field, e.value(cmd, args[1:]), add, args[0])
			})
		},
	}
	if e.flags != nil {
		e.flags(cmd)
	}
	return cmd
}

// edit adds an element to a list or removes it. An element that is there, or is
// not, is an error: the caller meant something else.
func edit(of map[string]any, field string, value any, add bool, project string) error {
	all, _ := of[field].([]any)
	i := slices.IndexFunc(all, func(x any) bool { return same(x, value) })
	switch {
	case add && i >= 0:
		return usage.Errorf("%s of project %s has it already", field, project)
	case !add && i < 0:
		return usage.Errorf("%s of project %s does not have it; see \"capstan project get %s\"", field, project, project)
	case add:
		of[field] = append(all, value)
	default:
		of[field] = slices.Delete(all, i, i+1)
	}
	return nil
}

// same reports whether two elements are equal; empty fields are as absent ones.
func same(a, b any) bool {
	x, isMap := a.(map[string]any)
	y, too := b.(map[string]any)
	if !isMap || !too {
		return fmt.Sprint(a) == fmt.Sprint(b) && isMap == too
	}
	covers := func(x, y map[string]any) bool {
		for k, v := range x {
			if v != "" && fmt.Sprint(v) != fmt.Sprint(y[k]) {
				return false
			}
		}
		return true
	}
	return covers(x, y) && covers(y, x)
}

// kinds are the verbs about permitted and denied kinds. As in Argo CD, those of
// cluster-scoped kinds change the list of permitted kinds unless --list says
// otherwise, and those of namespaced kinds the list of denied ones.
func (c Commands) kinds() []*cobra.Command {
	verb := func(use, scope, list string, allow bool) *cobra.Command {
		short := "Deny a " + scope + " kind"
		if allow {
			short = "Permit a " + scope + " kind"
		}
		cmd := &cobra.Command{
			Use: use + " PROJECT GROUP KIND", Short: short, Args: usage.Exactly("the name of the project", "the group", "the kind"),
			Example: "  capstan project " + use + " shop apps Deployment\n  capstan project " + use + " shop '' Secret --list deny",
			RunE: func(cmd *cobra.Command, args []string) error {
				of, err := usage.Among("--list", cmd.Flag("list").Value.String(), "allow", "deny")
				if err != nil {
					return err
				}
				rule := map[string]any{"group": args[1], "kind": args[2]}
				if name, _ := cmd.Flags().GetString("name"); name != "" {
					rule["name"] = name
				}
				field := map[string]string{
					"cluster-scoped allow": "clusterResourceWhitelist", "cluster-scoped deny": "clusterResourceBlacklist",
					"namespaced allow": "namespaceResourceWhitelist", "namespaced deny": "namespaceResourceBlacklist",
				}[scope+" "+of]
				return c.change(cmd, args[0], func(spec map[string]any) error {
					return edit(spec, field, rule, allow == (of == "allow"), args[0])
				})
			},
		}
		cmd.Flags().StringP("list", "l", list, "which list to change: allow or deny")
		if scope == "cluster-scoped" {
			cmd.Flags().String("name", "", "only objects of this name, a glob")
		}
		return cmd
	}
	return []*cobra.Command{
		verb("allow-cluster-resource", "cluster-scoped", "allow", true), verb("deny-cluster-resource", "cluster-scoped", "allow", false),
		verb("allow-namespace-resource", "namespaced", "deny", true), verb("deny-namespace-resource", "namespaced", "deny", false),
	}
}
