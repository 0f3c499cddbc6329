package cli

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/cli/output"
	"github.com/capstan-cd/capstan/shared/apimodel"
)

// applicationImpersonation is `app impersonation-check` (IMP-04).
func (a *app) applicationImpersonation() *cobra.Command {
	return a.one("impersonation-check NAME", "Say which rights the service account of an application lacks for its objects",
		"  capstan app impersonation-check web\n  capstan app impersonation-check web -o json",
		func(cmd *cobra.Command, api *client.Client, namespace, name string) error {
			r, raw, err := client.Call[apimodel.ImpersonationReport](api.CheckImpersonation(cmd.Context(), namespace, name))
			if err != nil {
				return err
			}
			if a.Format == "table" || a.Format == "wide" {
				return a.describeImpersonation(r)
			}
			return a.Print(raw, output.Table{})
		})
}

func (a *app) describeImpersonation(r apimodel.ImpersonationReport) error {
	state := map[bool]string{true: "enabled", false: "not enabled; this is what would be missing"}[r.Enabled]
	rows := [][]string{
		{"Service account:", output.Dash(strings.TrimPrefix(r.ServiceAccount, "system:serviceaccount:"))},
		{"Impersonation:", state}, {"Objects checked:", strconv.FormatInt(r.Objects, 10)},
	}
	switch {
	case r.ServiceAccount == "":
		rows = append(rows, []string{"Result:", "the project names no service account for the destination; add one to destinationServiceAccounts"})
	case len(r.Missing) == 0:
		rows = append(rows, []string{"Result:", "it has all rights that it needs"})
	default:
		rows = append(rows, []string{"Result:", fmt.Sprintf("%d rights are missing", len(r.Missing))})
	}
	if r.Incomplete {
		rows = append(rows, []string{"", "there are too many objects to check all"})
	}
	if err := a.Tabulate(output.Table{Rows: rows}); err != nil || len(r.Missing) == 0 {
		return err
	}
	fmt.Fprintln(a.Out)
	t := output.Table{Head: []string{"VERB", "RESOURCE", "NAMESPACE", "NAME", "FIX"}}
	for _, m := range r.Missing {
		resource := m.Resource
		if m.Group != "" {
			resource += "." + m.Group
		}
		t.Rows = append(t.Rows, []string{m.Verb, resource, output.Dash(m.Namespace), output.Dash(m.Name), m.Fix})
	}
	return a.Tabulate(t)
}
