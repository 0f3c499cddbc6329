package rights

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/cli/exit"
	"github.com/capstan-cd/capstan/cli/usage"
	"github.com/capstan-cd/capstan/shared/apimodel"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/rbac"
)

// maxFile bounds a policy in a file, in bytes.
const maxFile = 16 << 20

// A file is a policy on this machine.
type file struct {
	path        string
	defaultRole string
	builtin     bool
}

func (f *file) addFlags(c *cobra.Command) {
	c.Flags().StringVar(&f.path, "policy-file", "", "file with the ConfigMap argocd-rbac-cm, or with policy lines (default: the policy of the hub)")
}

// values reads the keys of argocd-rbac-cm from the file.
func (f *file) values() (map[string]string, error) {
	in, err := os.Open(f.path)
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "%q cannot be read", f.path)
	}
	defer in.Close()
	text, err := io.ReadAll(io.LimitReader(in, maxFile))
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "%q cannot be read", f.path)
	}
	var cm struct {
		Kind string            `json:"kind"`
		Data map[string]string `json:"data"`
	}
	if err := yaml.Unmarshal(text, &cm); err == nil && (cm.Kind != "" || cm.Data != nil) {
		if cm.Kind != "" && cm.Kind != "ConfigMap" {
			return nil, fault.New(fault.Invalid, "%q contains a %s, and not the ConfigMap %s", f.path, cm.Kind, rbac.Map)
		}
		return cm.Data, nil
	}
	return map[string]string{rbac.PolicyKey: string(text)}, nil
}

// policy reads and compiles the file.
func (f *file) policy() (rbac.Policy, []error, error) {
	values, err := f.values()
	if err != nil {
		return rbac.Policy{}, nil, err
	}
	p, problems := rbac.Read(values)
	p.Default = cmp.Or(f.defaultRole, p.Default)
	if f.builtin {
		p.Rules = append(p.Rules, rbac.BuiltinRules()...)
	}
	return p, problems, nil
}

func (c commands) can() *cobra.Command {
	var f file
	var quiet, strict bool
	var groups []string
	cmd := &cobra.Command{
		Use: "can SUBJECT ACTION RESOURCE [OBJECT]", Short: "Say whether a policy allows a subject to do something",
		Example: "  capstan admin settings rbac can role:developer sync applications 'shop/*' --policy-file argocd-rbac-cm.yaml\n  capstan admin settings rbac can jane delete applications shop/web",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 1 {
				return usage.Errorf("write SUBJECT ACTION RESOURCE [OBJECT], such as: role:developer sync applications shop/web")
			}
			return question(cmd, args[1:])
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := known(args[2], args[1], strict); err != nil {
				return err
			}
			allowed, err := c.decide(cmd, f, append([]string{args[0]}, groups...), args[1:])
			if err != nil {
				return err
			}
			if !quiet {
				fmt.Fprintln(c.Printer.Out, map[bool]string{true: "Yes", false: "No"}[allowed])
			}
			if !allowed {
				return exit.DifferCode(exit.Failed) // as Argo CD's
			}
			return nil
		},
	}
	f.addFlags(cmd)
	cmd.Flags().StringVar(&f.defaultRole, "default-role", "", "role that everybody has, instead of that of the file")
	cmd.Flags().BoolVar(&f.builtin, "use-builtin-policy", true, "whether a file's policy has the roles role:admin and role:readonly")
	cmd.Flags().BoolVar(&strict, "strict", true, "refuse actions and resources that are unknown")
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "print nothing; the exit code answers")
	cmd.Flags().StringSliceVar(&groups, "groups", nil, "groups that the subject has")
	return cmd
}

// known refuses misspelt words of a question.
func known(resource, action string, strict bool) error {
	if !strict {
		return nil
	}
	if problem := rbac.Known(rbac.Rule{Resource: resource, Action: action}); problem != "" {
		return usage.Errorf("%s; --strict=false asks all the same", problem)
	}
	return nil
}

// decide asks the file, or the hub if there is none.
func (c commands) decide(cmd *cobra.Command, f file, names, args []string) (bool, error) {
	if f.path == "" {
		d, _, err := c.ask(cmd, whom{user: names[0], groups: names[1:]}, args)
		return d.Allowed, err
	}
	p, problems, err := f.policy()
	if err != nil {
		return false, err
	}
	if len(problems) > 0 {
		return false, problems[0]
	}
	return rbac.Compile(p, rbac.Options{}).For(names).Check(args[1], args[0], object(args)), nil
}

func (c commands) validate() *cobra.Command {
	f := file{builtin: true}
	cmd := &cobra.Command{
		Use: "validate", Short: "Check a policy and run its tests", Args: usage.Exactly(),
		Example: "  capstan admin settings rbac validate --policy-file argocd-rbac-cm.yaml\n  capstan admin settings rbac validate",
		RunE: func(cmd *cobra.Command, _ []string) error {
			state, err := c.state(cmd, f)
			if err != nil {
				return err
			}
			c.Printer.Warn(state.Warnings)
			bad := append(state.Problems, state.FailedTests...)
			if len(bad) == 0 {
				_, err := fmt.Fprintln(c.Printer.Out, "Policy is valid.")
				return err
			}
			return fault.New(fault.Invalid, "the policy is not valid: %s", strings.Join(bad, "; "))
		},
	}
	f.addFlags(cmd)
	return cmd
}

// state checks the file, or asks the hub if there is none.
func (c commands) state(cmd *cobra.Command, f file) (apimodel.PolicyState, error) {
	if f.path == "" {
		api, err := c.Client()
		if err != nil {
			return apimodel.PolicyState{}, err
		}
		state, _, err := client.Call[apimodel.PolicyState](api.GetPolicyState(cmd.Context()))
		return state, err
	}
	var s apimodel.PolicyState
	p, problems, err := f.policy()
	for _, problem := range problems {
		s.Problems = append(s.Problems, fault.Sentence(problem))
	}
	if err != nil || len(problems) > 0 {
		return s, err
	}
	for _, r := range append(p.Rules, p.Org...) {
		if problem := rbac.Known(r); problem != "" {
			s.Warnings = append(s.Warnings, r.Origin.String()+": "+problem)
		}
	}
	set := rbac.Compile(p, rbac.Options{})
	for _, failed := range rbac.Run(p.Tests, set.For) {
		s.FailedTests = append(s.FailedTests, failed.String())
	}
	return s, nil
}

func (c commands) preview() *cobra.Command {
	var f file
	cmd := &cobra.Command{
		Use: "preview", Short: "Say who would gain and lose what by a policy in a file", Args: usage.Exactly(),
		Example: "  capstan admin settings rbac preview --policy-file argocd-rbac-cm.yaml",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.path == "" {
				return usage.Errorf("--policy-file names the policy")
			}
			values, err := f.values()
			if err != nil {
				return err
			}
			body := apimodel.PreviewPolicyJSONRequestBody{Values: map[string]*string{}}
			for key, value := range values {
				body.Values[key] = &value
			}
			api, err := c.Client()
			if err != nil {
				return err
			}
			p, raw, err := client.Call[apimodel.PolicyPreview](api.PreviewPolicy(cmd.Context(), body))
			if err != nil {
				return err
			}
			c.Printer.Warn(append(append(p.State.Problems, p.State.FailedTests...), p.State.Warnings...))
			if p.More {
				c.Printer.Note("capstan: there are more effects than are shown")
			}
			return c.Printer.Print(raw, effectTable(p))
		},
	}
	f.addFlags(cmd)
	return cmd
}
