// Package rights has the commands that ask what somebody may do: of a hub, and
// of access policies in files, which it reads as the hub does. It changes
// nothing. Package cli puts the commands under their nouns.
package rights

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/cli/command"
	"github.com/capstan-cd/capstan/cli/output"
	"github.com/capstan-cd/capstan/cli/usage"
	"github.com/capstan-cd/capstan/shared/apimodel"
)

// commands share what they work with.
type commands struct{ *command.Env }

// Account is the command account.
func Account(env *command.Env) *cobra.Command {
	c := commands{env}
	return command.Noun("account", "Accounts: what you may do, and why", nil, c.canI(), c.explain())
}

// Policy is the command rbac of `admin settings`.
func Policy(env *command.Env) *cobra.Command {
	c := commands{env}
	return command.Noun("rbac", "Access policies: can, validate, preview, history, revert", nil, c.can(), c.validate(), c.preview(), c.history(), c.revert())
}

// whom is the subject that a command asks about.
type whom struct {
	user   string
	groups []string
}

func (w *whom) addFlags(c *cobra.Command) {
	c.Flags().StringVar(&w.user, "user", "", "user, group or role to ask about (default: you); needs the right to read the policy")
	c.Flags().StringSliceVar(&w.groups, "groups", nil, "groups that the user has")
}

// canI is `account can-i`.
func (c commands) canI() *cobra.Command {
	var who whom
	cmd := &cobra.Command{
		Use: "can-i ACTION RESOURCE [OBJECT]", Short: "Say whether you may do something: yes or no", Args: question,
		Example: "  capstan account can-i sync applications shop/web\n  capstan account can-i create clusters '*'\n" +
			"  capstan account can-i delete applications shop/web --user jane --groups my-org:developers",
		RunE: func(cmd *cobra.Command, args []string) error {
			d, raw, err := c.ask(cmd, who, args)
			if err != nil {
				return err
			}
			if c.Printer.Format == "table" || c.Printer.Format == "wide" {
				_, err := fmt.Fprintln(c.Printer.Out, map[bool]string{true: "yes", false: "no"}[d.Allowed])
				return err
			}
			return c.Printer.Print(raw, decisionTable(d))
		},
	}
	who.addFlags(cmd)
	return cmd
}

// explain is `account explain`.
func (c commands) explain() *cobra.Command {
	var who whom
	cmd := &cobra.Command{
		Use: "explain ACTION RESOURCE [OBJECT]", Short: "Say whether you may do something, and which rule decides", Args: question,
		Example: "  capstan account explain sync applications shop/web\n  capstan account explain delete applications shop/web --user jane --groups my-org:developers -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			d, raw, err := c.ask(cmd, who, args)
			if err != nil {
				return err
			}
			return c.Printer.Print(raw, decisionTable(d))
		},
	}
	who.addFlags(cmd)
	return cmd
}

// question are the words of a question.
func question(_ *cobra.Command, args []string) error {
	if len(args) < 2 || len(args) > 3 {
		return usage.Errorf("write ACTION RESOURCE [OBJECT], such as: sync applications shop/web")
	}
	return nil
}

// object is the third word of a question; without it any object is meant.
func object(args []string) string {
	if len(args) > 2 {
		return args[2]
	}
	return "*"
}

func (c commands) ask(cmd *cobra.Command, who whom, args []string) (apimodel.RightDecision, []byte, error) {
	api, err := c.Client()
	if err != nil {
		return apimodel.RightDecision{}, nil, err
	}
	body := apimodel.ExplainRightsJSONRequestBody{Questions: []apimodel.RightQuestion{{Action: args[0], Resource: args[1], Object: object(args)}}}
	body.Subject.User, body.Subject.Groups = who.user, who.groups
	answer, raw, err := client.Call[struct {
		Items []apimodel.RightDecision `json:"items"`
	}](api.ExplainRights(cmd.Context(), body))
	if err != nil {
		return apimodel.RightDecision{}, nil, err
	}
	if len(answer.Items) != 1 {
		return apimodel.RightDecision{}, nil, fmt.Errorf("the hub has answered %d questions instead of 1", len(answer.Items))
	}
	return answer.Items[0], raw, nil
}

func decisionTable(d apimodel.RightDecision) output.Table {
	source := d.Source
	if d.Line > 0 {
		source += ", line " + strconv.Itoa(d.Line)
	}
	answer, rule := map[bool]string{true: "yes", false: "no"}[d.Allowed], d.Rule
	if rule == "" {
		rule = "no rule allows it"
	}
	if d.Problem != "" {
		rule = d.Problem
	}
	return output.Table{
		Head:  []string{"ALLOWED", "DECIDED BY", "RULE"},
		Rows:  [][]string{{answer, output.Dash(source), rule}},
		Names: []string{answer},
	}
}

// effectTable shows what a policy would change.
func effectTable(p apimodel.PolicyPreview) output.Table {
	t := output.Table{Head: []string{"SUBJECT", "", "ACTION", "RESOURCE", "OBJECTS"}}
	for _, e := range p.Effects {
		subject := e.Subject
		if subject == "" {
			subject = "(everybody)"
		}
		add := func(what string, count int, some []string) {
			if count == 0 {
				return
			}
			text := strings.Join(some, ", ")
			if count > len(some) {
				text += fmt.Sprintf(" and %d more", count-len(some))
			}
			t.Rows = append(t.Rows, []string{subject, what, e.Action, e.Resource, text})
			t.Names = append(t.Names, strings.Join([]string{subject, what, e.Action, e.Resource}, " "))
		}
		add("gains", e.GainedCount, e.Gained)
		add("loses", e.LostCount, e.Lost)
	}
	return t
}
