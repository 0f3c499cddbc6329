package project

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/capstan-cd/capstan/cli/command"
	"github.com/capstan-cd/capstan/cli/output"
	"github.com/capstan-cd/capstan/cli/usage"
	"github.com/capstan-cd/capstan/shared/apimodel"
)

// A gitPolicy says whose signatures the commits of some repositories need.
type gitPolicy struct {
	Repos []repository `json:"repos"`
	GPG   signatures   `json:"gpg"`
}

type signatures struct {
	Mode string   `json:"mode,omitempty"`
	Keys []string `json:"keys,omitempty"`
}

// A repository is a glob over URLs, which may be written as a text as well.
type repository struct {
	URL string `json:"url"`
}

// UnmarshalJSON reads both forms.
func (r *repository) UnmarshalJSON(raw []byte) error {
	if len(raw) > 0 && raw[0] == '"' {
		return json.Unmarshal(raw, &r.URL)
	}
	type plain repository
	return json.Unmarshal(raw, (*plain)(r))
}

func repositories(urls []string) []repository {
	out := make([]repository, len(urls))
	for i, url := range urls {
		out[i].URL = url
	}
	return out
}

// urls returns what patterns match.
func urls(all []repository) []string {
	out := make([]string, len(all))
	for i, r := range all {
		out[i] = r.URL
	}
	return out
}

// integrity is `project source-integrity git policies` with its verbs. As in
// Argo CD a policy has its place in the list as its id, from 0.
func (c Commands) integrity() *cobra.Command {
	policies := command.Noun("policies", "Policies of a project, of which the first that matches a repository counts", nil,
		c.policyList(), c.policyAdd(), c.policyUpdate(), c.policyDelete())
	return command.Noun("source-integrity", "Whose signatures the sources of a project need", nil,
		command.Noun("git", "Whose signatures the commits of Git repositories need", nil, policies))
}

// child returns a map inside of another one, and makes it if it is not there.
func child(of map[string]any, field string) map[string]any {
	inner, ok := of[field].(map[string]any)
	if !ok {
		inner = map[string]any{}
		of[field] = inner
	}
	return inner
}

// changePolicies changes the list of a project, and prints it. Fields that this
// command does not know stay as they were.
func (c Commands) changePolicies(cmd *cobra.Command, project string, do func(all []any) ([]any, error)) error {
	api, err := c.Connect()
	if err != nil {
		return err
	}
	p, spec, tag, err := c.read(cmd, api, project)
	if err != nil {
		return err
	}
	integrity := child(spec, "sourceIntegrity")
	git := child(integrity, "git")
	all, _ := git["policies"].([]any)
	if all, err = do(all); err != nil {
		return err
	}
	git["policies"] = all
	if len(all) == 0 && len(git) == 1 && len(integrity) == 1 {
		delete(spec, "sourceIntegrity")
	}
	if p.Spec, err = json.Marshal(spec); err != nil {
		return err
	}
	stored, _, err := c.store(cmd, api, p, tag)
	if err != nil {
		return err
	}
	return c.printPolicies(stored)
}

// printPolicies prints those of a project.
func (c Commands) printPolicies(p apimodel.AppProject) error {
	var spec struct {
		SourceIntegrity struct {
			Git struct {
				Policies []gitPolicy `json:"policies"`
			} `json:"git"`
		} `json:"sourceIntegrity"`
	}
	if err := json.Unmarshal(p.Spec, &spec); err != nil {
		return fmt.Errorf("spec.sourceIntegrity of project %q cannot be read: %w", p.Metadata.Name, err)
	}
	all := spec.SourceIntegrity.Git.Policies
	t := output.Table{Head: []string{"ID", "GPG-MODE", "GPG-KEYS", "REPO-URLS"}}
	for i, p := range all {
		id := strconv.Itoa(i)
		t.Rows = append(t.Rows, []string{id, output.Dash(p.GPG.Mode), output.Dash(strings.Join(p.GPG.Keys, ",")), output.Dash(strings.Join(urls(p.Repos), ","))})
		t.Names = append(t.Names, id)
	}
	if all == nil {
		all = []gitPolicy{}
	}
	return c.Printer.PrintValue(all, t)
}

func (c Commands) policyList() *cobra.Command {
	return &cobra.Command{
		Use: "list PROJECT", Short: "List the policies, with the ids that update and delete take", Args: usage.Exactly("the name of the project"),
		Example: "  capstan project source-integrity git policies list shop",
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := c.Connect()
			if err != nil {
				return err
			}
			p, _, _, err := c.read(cmd, api, args[0])
			if err != nil {
				return err
			}
			return c.printPolicies(p)
		},
	}
}

func (c Commands) policyAdd() *cobra.Command {
	var repos, keys []string
	var mode string
	cmd := &cobra.Command{
		Use: "add PROJECT", Short: "Add a policy behind the others", Args: usage.Exactly("the name of the project"),
		Example: "  capstan project source-integrity git policies add shop --repo-url 'https://git.example.com/shop/*' --gpg-mode strict --gpg-key D56C4FCA57A46444",
		RunE: func(cmd *cobra.Command, args []string) error {
			mode, err := usage.Among("--gpg-mode", mode, "none", "head", "strict")
			if err != nil {
				return err
			}
			return c.changePolicies(cmd, args[0], func(all []any) ([]any, error) {
				return append(all, gitPolicy{Repos: repositories(repos), GPG: signatures{Mode: mode, Keys: keys}}), nil
			})
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&repos, "repo-url", nil, "repositories that it is about, globs; ! excepts some")
	f.StringVar(&mode, "gpg-mode", "", "none, head or strict")
	f.StringSliceVar(&keys, "gpg-key", nil, "ids of the keys that are trusted")
	return cmd
}

// A listChange replaces a list, or adds to it and removes from it.
type listChange struct{ set, add, remove []string }

// to returns the changed list. What is to be removed has to be there: a policy
// that trusts a key by mistake would go unnoticed.
func (l listChange) to(all []string, what, project string) ([]string, error) {
	if len(l.set) > 0 {
		if len(l.add)+len(l.remove) > 0 {
			return nil, usage.Errorf("--%s replaces all; it does not go together with --add-%s and --delete-%s", what, what, what)
		}
		return l.set, nil
	}
	all = slices.Clone(all)
	for _, gone := range l.remove {
		i := slices.Index(all, gone)
		if i < 0 {
			return nil, usage.Errorf("the policy does not have %q; see \"capstan project source-integrity git policies list %s\"", gone, project)
		}
		all = slices.Delete(all, i, i+1)
	}
	for _, one := range l.add {
		if !slices.Contains(all, one) {
			all = append(all, one)
		}
	}
	return all, nil
}

func (c Commands) policyUpdate() *cobra.Command {
	var repos, keys listChange
	var mode string
	cmd := &cobra.Command{
		Use: "update PROJECT ID", Short: "Change a policy; what is not given stays", Args: usage.Exactly("the name of the project", "the id of the policy"),
		Example: "  capstan project source-integrity git policies update shop 0 --gpg-mode head\n  capstan project source-integrity git policies update shop 0 --add-gpg-key D56C4FCA57A46444 --delete-repo-url 'https://git.example.com/old/*'",
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().NFlag() == 0 {
				return usage.Errorf("nothing to change; name a field by its flag")
			}
			return c.changePolicies(cmd, args[0], func(all []any) ([]any, error) {
				i, err := policyAt(all, args[1], args[0])
				if err != nil {
					return nil, err
				}
				raw, _ := all[i].(map[string]any)
				old, err := known(raw)
				if err != nil {
					return nil, err
				}
				gpg := child(raw, "gpg")
				if cmd.Flags().Changed("gpg-mode") {
					if gpg["mode"], err = usage.Among("--gpg-mode", mode, "none", "head", "strict"); err != nil {
						return nil, err
					}
				}
				if gpg["keys"], err = keys.to(old.GPG.Keys, "gpg-key", args[0]); err != nil {
					return nil, err
				}
				matched, err := repos.to(urls(old.Repos), "repo-url", args[0])
				raw["repos"] = repositories(matched)
				return all, err
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&mode, "gpg-mode", "", "none, head or strict")
	f.StringSliceVar(&repos.set, "repo-url", nil, "repositories instead of all that it has")
	f.StringSliceVar(&repos.add, "add-repo-url", nil, "repositories to add")
	f.StringSliceVar(&repos.remove, "delete-repo-url", nil, "repositories to remove")
	f.StringSliceVar(&keys.set, "gpg-key", nil, "keys instead of all that it has")
	f.StringSliceVar(&keys.add, "add-gpg-key", nil, "keys to add")
	f.StringSliceVar(&keys.remove, "delete-gpg-key", nil, "keys to remove")
	return cmd
}

// known reads the fields of a policy that this command changes.
func known(raw map[string]any) (p gitPolicy, err error) {
	text, err := json.Marshal(raw)
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	if err != nil {
		return p, fmt.Errorf("the policy cannot be read: %w", err)
	}
	return p, nil
}

// policyAt returns the place of a policy.
func policyAt(all []any, id, project string) (int, error) {
	i, err := strconv.Atoi(id)
	if err != nil || i < 0 || i >= len(all) {
		return 0, usage.Errorf("project %s has no policy %q; see \"capstan project source-integrity git policies list %s\"", project, id, project)
	}
	return i, nil
}

func (c Commands) policyDelete() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "delete PROJECT ID...", Short: "Delete policies; commits that only they demanded to be signed need no signature then",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 {
				return usage.Errorf("expected the name of the project and the ids of policies")
			}
			return nil
		},
		Example: "  capstan project source-integrity git policies delete shop 0\n  capstan project source-integrity git policies delete shop 1 3 --yes",
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.changePolicies(cmd, args[0], func(all []any) ([]any, error) {
				gone := map[int]bool{}
				for _, id := range args[1:] {
					i, err := policyAt(all, id, args[0])
					if err != nil {
						return nil, err
					}
					gone[i] = true
				}
				if err := c.Confirm(yes, "Delete the policies "+strings.Join(args[1:], ", ")+" of project "+args[0]+"?"); err != nil {
					return nil, err
				}
				var left []any
				for i, p := range all {
					if !gone[i] {
						left = append(left, p)
					}
				}
				return left, nil
			})
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}
