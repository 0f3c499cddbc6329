package project

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/capstan-cd/capstan/cli/output"
	"github.com/capstan-cd/capstan/cli/usage"
)

// roles are the verbs about a project's roles.
func (c Commands) roles() []*cobra.Command {
	return []*cobra.Command{
		c.roleList(), c.roleGet(), c.roleCreate(), c.roleDelete(),
		c.rolePolicy("add-policy", "Add a policy to a role", true), c.rolePolicy("remove-policy", "Remove a policy from a role", false),
		c.roleGroup("add-group", "Give a role to a group", true), c.roleGroup("remove-group", "Take a role from a group", false),
	}
}

// asProjectRole are the arguments of most verbs.
func asProjectRole(more ...string) cobra.PositionalArgs {
	return usage.Exactly(append([]string{"the name of the project", "the name of the role"}, more...)...)
}

type role struct {
	Name        string            `json:"name"`
	Description string            `json:"description"`
	Policies    []string          `json:"policies"`
	Groups      []string          `json:"groups"`
	Tokens      []json.RawMessage `json:"jwtTokens"`
}

func (c Commands) readRoles(cmd *cobra.Command, project string) ([]role, error) {
	api, err := c.Connect()
	if err != nil {
		return nil, err
	}
	p, _, _, err := c.read(cmd, api, project)
	if err != nil {
		return nil, err
	}
	var spec struct {
		Roles []role `json:"roles"`
	}
	if err := json.Unmarshal(p.Spec, &spec); err != nil {
		return nil, fmt.Errorf("the roles of project %q cannot be read: %w", project, err)
	}
	return spec.Roles, nil
}

func (c Commands) roleList() *cobra.Command {
	return &cobra.Command{
		Use: "list PROJECT", Short: "List the roles of a project", Args: usage.Exactly("the name of the project"), Example: "  capstan project role list shop",
		RunE: func(cmd *cobra.Command, args []string) error {
			all, err := c.readRoles(cmd, args[0])
			if err != nil {
				return err
			}
			t := output.Table{Head: []string{"ROLE", "DESCRIPTION", "POLICIES", "GROUPS"}}
			for _, r := range all {
				t.Rows = append(t.Rows, []string{r.Name, output.Dash(r.Description), strconv.Itoa(len(r.Policies)), output.Dash(strings.Join(r.Groups, ","))})
				t.Names = append(t.Names, r.Name)
			}
			return c.Printer.PrintValue(all, t)
		},
	}
}

func (c Commands) roleGet() *cobra.Command {
	return &cobra.Command{
		Use: "get PROJECT ROLE", Short: "Show a role of a project", Args: asProjectRole(), Example: "  capstan project role get shop deployer\n  capstan project role get shop deployer -o yaml",
		RunE: func(cmd *cobra.Command, args []string) error {
			all, err := c.readRoles(cmd, args[0])
			if err != nil {
				return err
			}
			i := slices.IndexFunc(all, func(r role) bool { return r.Name == args[1] })
			if i < 0 {
				return noRole(args[0], args[1])
			}
			r := all[i]
			t := output.Table{Names: []string{r.Name}, Rows: [][]string{{"Role:", r.Name}, {"Description:", output.Dash(r.Description)}}}
			for _, p := range append([]string{"p, proj:" + args[0] + ":" + r.Name + ", projects, get, " + args[0] + ", allow"}, r.Policies...) { // the first is implied
				t.Rows = append(t.Rows, []string{"Policy:", p})
			}
			for _, g := range r.Groups {
				t.Rows = append(t.Rows, []string{"Group:", g})
			}
			return c.Printer.PrintValue(r, t)
		},
	}
}

func noRole(project, name string) error {
	return usage.Errorf("project %s has no role %s; see \"capstan project role list %s\"", project, name, project)
}

func (c Commands) roleCreate() *cobra.Command {
	var description string
	cmd := &cobra.Command{
		Use: "create PROJECT ROLE", Short: "Make a role", Args: asProjectRole(), Example: "  capstan project role create shop deployer --description 'Deploys the shop'",
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.change(cmd, args[0], func(spec map[string]any) error {
				all, _ := spec["roles"].([]any)
				if findRole(all, args[1]) >= 0 {
					return usage.Errorf("project %s has a role %s already", args[0], args[1])
				}
				r := map[string]any{"name": args[1]}
				if description != "" {
					r["description"] = description
				}
				spec["roles"] = append(all, r)
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&description, "description", "", "what it is for")
	return cmd
}

func findRole(all []any, name string) int {
	return slices.IndexFunc(all, func(x any) bool {
		r, _ := x.(map[string]any)
		return r["name"] == name
	})
}

func (c Commands) roleDelete() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "delete PROJECT ROLE", Short: "Delete a role", Args: asProjectRole(), Example: "  capstan project role delete shop deployer --yes",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := c.Confirm(yes, "Delete role "+args[1]+" of project "+args[0]+"?"); err != nil {
				return err
			}
			return c.change(cmd, args[0], func(spec map[string]any) error {
				all, _ := spec["roles"].([]any)
				i := findRole(all, args[1])
				if i < 0 {
					return noRole(args[0], args[1])
				}
				spec["roles"] = slices.Delete(all, i, i+1)
				return nil
			})
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

// inRole changes a list of one role.
func (c Commands) inRole(cmd *cobra.Command, project, name, field string, value any, add bool) error {
	return c.change(cmd, project, func(spec map[string]any) error {
		all, _ := spec["roles"].([]any)
		i := findRole(all, name)
		if i < 0 {
			return noRole(project, name)
		}
		return edit(all[i].(map[string]any), field, value, add, project+", role "+name)
	})
}

func (c Commands) rolePolicy(use, short string, add bool) *cobra.Command {
	var resource, action, object, permission string
	cmd := &cobra.Command{
		Use: use + " PROJECT ROLE", Short: short, Args: asProjectRole(),
		Example: "  capstan project role " + use + " shop deployer --action sync --object '*'\n  capstan project role " + use + " shop deployer --action get --object web --permission deny",
		RunE: func(cmd *cobra.Command, args []string) error {
			if action == "" || object == "" {
				return usage.Errorf("a policy needs --action and --object")
			}
			effect, err := usage.Among("--permission", permission, "allow", "deny")
			if err != nil {
				return err
			}
			policy := fmt.Sprintf("p, proj:%s:%s, %s, %s, %s/%s, %s", args[0], args[1], resource, action, args[0], object, effect)
			return c.inRole(cmd, args[0], args[1], "policies", policy, add)
		},
	}
	cmd.Flags().StringVarP(&resource, "resource", "r", "applications", "what it is about, such as applications, repositories or clusters")
	cmd.Flags().StringVarP(&action, "action", "a", "", "action, such as get, sync or '*'")
	cmd.Flags().StringVar(&object, "object", "", "object in the project, such as the name of an application; * stands for any")
	cmd.Flags().StringVarP(&permission, "permission", "p", "allow", "allow or deny")
	return cmd
}

func (c Commands) roleGroup(use, short string, add bool) *cobra.Command {
	return &cobra.Command{
		Use: use + " PROJECT ROLE GROUP", Short: short, Args: asProjectRole("the group"), Example: "  capstan project role " + use + " shop deployer my-org:developers",
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.inRole(cmd, args[0], args[1], "groups", args[2], add)
		},
	}
}
