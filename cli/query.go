package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/capstan-cd/capstan/cli/usage"
	"github.com/capstan-cd/capstan/shared/apimodel"
)

// addQuery adds the flag with which a verb is about the applications of a query.
func addQuery(f *pflag.FlagSet, query *string) {
	f.StringVar(query, "query", "", "the applications that a query has, such as 'health:degraded label:team=shop', by one request as with app bulk")
}

// queryFlags are the flags that a verb has with --query.
var queryFlags = map[apimodel.BulkAction][]string{
	apimodel.BulkActionSync:    {"query", "dry-run", "yes", "assumeYes", "async", "prune", "reason"},
	apimodel.BulkActionRefresh: {"query", "dry-run", "yes", "async", "hard"},
	apimodel.BulkActionDelete:  {"query", "dry-run", "yes", "wait", "cascade", "propagation-policy"},
}

// byQuery does what a verb does with the applications of a query, by one bulk
// request.
func (a *app) byQuery(cmd *cobra.Command, action apimodel.BulkAction, query string, names []string) error {
	if len(names) > 0 {
		return usage.Errorf("names and --query do not go together")
	}
	var others []string
	cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		if f.Changed && !slices.Contains(queryFlags[action], f.Name) {
			others = append(others, "--"+f.Name)
		}
	})
	if len(others) > 0 {
		return usage.Errorf("%s does not go with --query; use names or --selector", strings.Join(others, ", "))
	}
	o := bulkOrder{
		request: apimodel.BulkRequest{Query: query, DryRun: set(cmd, "dry-run"), Prune: set(cmd, "prune"), Hard: set(cmd, "hard")},
		cascade: text(cmd, "cascade"), propagation: text(cmd, "propagation-policy"), yes: set(cmd, "yes") || set(cmd, "assumeYes"),
		async: set(cmd, "async") || cmd.Flags().Changed("wait") && !set(cmd, "wait"),
	}
	o.request.Reason = text(cmd, "reason")
	if err := o.read([]string{string(action)}); err != nil {
		return err
	}
	api, err := a.client()
	if err != nil {
		return err
	}
	return a.bulk(cmd.Context(), api, o)
}

// set reports whether a flag that is true or false is true; false: or is not there.
func set(cmd *cobra.Command, flag string) bool {
	v, err := cmd.Flags().GetBool(flag)
	return err == nil && v
}

// text is the value of a flag; empty: or it is not there.
func text(cmd *cobra.Command, flag string) string {
	v, err := cmd.Flags().GetString(flag)
	if err != nil {
		return ""
	}
	return v
}
