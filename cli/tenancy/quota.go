package tenancy

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/cli/output"
	"github.com/capstan-cd/capstan/cli/usage"
	"github.com/capstan-cd/capstan/shared/apimodel"
)

func (a commands) tenantUsage() *cobra.Command {
	return &cobra.Command{
		Use: "usage [NAME]", Short: "Show what an organisation may have and has; without a name your own", Example: "  capstan tenant usage\n  capstan tenant usage acme",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := a.Client()
			if err != nil {
				return err
			}
			if len(args) == 0 {
				return a.printUsage(api.GetUsage(cmd.Context()))
			}
			return a.printUsage(api.GetTenantUsage(cmd.Context(), args[0]))
		},
	}
}

func (a commands) tenantSetQuota() *cobra.Command {
	return &cobra.Command{
		Use: "set-quota NAME QUOTA=LIMIT...", Short: "Set what an organisation may have",
		Long: "Set what an organisation may have. Quotas: applications, clusters, repositories, users, tokens, storageBytes,\n" +
			"applicationSets, applicationsPerSet, rendersPerMinute, requestsPerMinute, notificationsPerHour. A limit is a number, none, or default for what the hub's configuration says.\n" +
			"What is there stays, also beyond a new limit.",
		Example: "  capstan tenant set-quota acme applications=500 clusters=20\n  capstan tenant set-quota acme rendersPerMinute=none users=default",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 {
				return usage.Errorf("set-quota needs the name of the organisation and at least one QUOTA=LIMIT")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			body := apimodel.SetTenantQuotasJSONRequestBody{Quotas: map[string]int64{}}
			for _, arg := range args[1:] {
				name, text, _ := strings.Cut(arg, "=")
				limit, err := strconv.ParseInt(text, 10, 64)
				switch {
				case text == "default":
					body.Reset = append(body.Reset, name)
				case text == "none":
					body.Quotas[name] = 0
				case err != nil || limit < 1:
					return usage.Errorf("%q is not QUOTA=LIMIT with a number above zero, none or default", arg)
				default:
					body.Quotas[name] = limit
				}
			}
			api, err := a.Client()
			if err != nil {
				return err
			}
			return a.printUsage(api.SetTenantQuotas(cmd.Context(), args[0], body))
		},
	}
}

func (a commands) printUsage(res *http.Response, err error) error {
	u, raw, err := client.Call[apimodel.QuotaUsage](res, err)
	if err != nil {
		return err
	}
	t := output.Table{Head: []string{"QUOTA", "USED", "LIMIT", "SET FOR IT", "STATE"}}
	for _, q := range u.Items {
		limit, used, state := "none", strconv.FormatInt(q.Used, 10), "-"
		if q.Limit > 0 {
			limit = strconv.FormatInt(q.Limit, 10)
		}
		if q.Rate {
			used = "-"
		}
		if q.Reached {
			state = "reached"
		}
		t.Rows = append(t.Rows, []string{q.Quota, used, limit, strconv.FormatBool(q.Own), state})
		t.Names = append(t.Names, q.Quota)
	}
	return a.Print(raw, t)
}
