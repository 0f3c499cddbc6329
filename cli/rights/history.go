package rights

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/cli/output"
	"github.com/capstan-cd/capstan/cli/usage"
	"github.com/capstan-cd/capstan/shared/apimodel"
)

// history is `admin settings rbac history`.
func (c commands) history() *cobra.Command {
	var limit int
	var before int64
	cmd := &cobra.Command{
		Use: "history [NUMBER]", Short: "List who has changed the policy and when, or show what a version has changed", Args: cobra.MaximumNArgs(1),
		Example: "  capstan admin settings rbac history\n  capstan admin settings rbac history 12",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				return c.version(cmd, args[0])
			}
			api, err := c.Client()
			if err != nil {
				return err
			}
			all, raw, err := client.Call[struct {
				Items []apimodel.PolicyVersion `json:"items"`
				More  bool                     `json:"more"`
			}](api.ListPolicyVersions(cmd.Context(), apimodel.ListPolicyVersionsParams{Before: before, Limit: limit}))
			if err != nil {
				return err
			}
			if all.More {
				c.Printer.Note("capstan: there are older versions; see --before %d", all.Items[len(all.Items)-1].Number)
			}
			return c.Printer.Print(raw, versionTable(all.Items))
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 20, "how many versions, at most 100")
	cmd.Flags().Int64Var(&before, "before", 0, "only versions with a smaller number")
	return cmd
}

func versionTable(all []apimodel.PolicyVersion) output.Table {
	t := output.Table{Head: []string{"NUMBER", "CHANGED", "BY", "KEYS", "REVERTS"}}
	for _, v := range all {
		reverts := ""
		if v.Reverts != 0 {
			reverts = strconv.FormatInt(v.Reverts, 10)
		}
		number := strconv.FormatInt(v.Number, 10)
		t.Rows = append(t.Rows, []string{number, output.Ago(v.At), v.By, strings.Join(v.Changed, ", "), output.Dash(reverts)})
		t.Names = append(t.Names, number)
	}
	return t
}

// version shows what one version has changed, line by line.
func (c commands) version(cmd *cobra.Command, number string) error {
	if err := checkNumber(number); err != nil {
		return err
	}
	api, err := c.Client()
	if err != nil {
		return err
	}
	v, raw, err := client.Call[apimodel.PolicyVersionDetail](api.GetPolicyVersion(cmd.Context(), number))
	if err != nil {
		return err
	}
	t := output.Table{Names: []string{number}}
	for _, change := range v.Changes {
		t.Rows = append(t.Rows, []string{change.Key})
		for _, line := range lineDiff(change.Before, change.After) {
			t.Rows = append(t.Rows, []string{line})
		}
	}
	return c.Printer.Print(raw, t)
}

// checkNumber refuses what is no number of a version.
func checkNumber(text string) error {
	if number, err := strconv.ParseInt(text, 10, 64); err != nil || number < 1 {
		return usage.Errorf("%q is no number of a version; see `capstan admin settings rbac history`", text)
	}
	return nil
}

// lineDiff lists lines that only one of two texts has, in the order of the texts:
// what a policy says does not depend on the order of its lines.
func lineDiff(before, after string) []string {
	was, is := strings.Split(before, "\n"), strings.Split(after, "\n")
	only := func(lines, others []string, sign string) (out []string) {
		count := map[string]int{}
		for _, l := range others {
			count[l]++
		}
		for _, l := range lines {
			if count[l]--; count[l] < 0 && strings.TrimSpace(l) != "" {
				out = append(out, "  "+sign+" "+l)
			}
		}
		return out
	}
	return append(only(was, is, "-"), only(is, was, "+")...)
}

// revert is `admin settings rbac revert`.
func (c commands) revert() *cobra.Command {
	var yes, dryRun bool
	cmd := &cobra.Command{
		Use: "revert NUMBER", Short: "Make the policy what it was in a version; its tests have to pass", Args: usage.Exactly("NUMBER"),
		Example: "  capstan admin settings rbac revert 12 --dry-run\n  capstan admin settings rbac revert 12 --yes",
		RunE: func(cmd *cobra.Command, args []string) error {
			number := args[0]
			if err := checkNumber(number); err != nil {
				return err
			}
			api, err := c.Client()
			if err != nil {
				return err
			}
			v, _, err := client.Call[apimodel.PolicyVersionDetail](api.GetPolicyVersion(cmd.Context(), number))
			if err != nil {
				return err
			}
			if len(v.Since) == 0 {
				c.Printer.Note("The policy is as it was in version %s.", number)
				return nil
			}
			for _, change := range v.Since {
				c.Printer.Note("%s\n%s", change.Key, strings.Join(lineDiff(change.After, change.Before), "\n"))
			}
			if err := c.Confirm(yes || dryRun, fmt.Sprintf("Make the access policy what it was in version %s?", number)); err != nil {
				return err
			}
			set, _, err := client.Call[apimodel.Settings](api.RevertPolicy(cmd.Context(), number, apimodel.RevertPolicyParams{DryRun: dryRun}))
			if err != nil {
				return err
			}
			c.Printer.Warn(set.Warnings)
			if dryRun {
				c.Printer.Note("It would be accepted. Nothing was changed.")
				return nil
			}
			c.Printer.Note("The access policy is what it was in version %s.", number)
			return nil
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "check everything, change nothing")
	return cmd
}
