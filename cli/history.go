package cli

import (
	"context"
	"encoding/json"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/cli/output"
	"github.com/capstan-cd/capstan/shared/apimodel"
)

func (a *app) appHistory() *cobra.Command {
	limit := 0
	c := a.one("history NAME", "List what was deployed, newest first", "  capstan app history shop\n  capstan app history shop --limit 10 -o json",
		func(cmd *cobra.Command, api *client.Client, namespace, name string) error {
			all, err := history(cmd.Context(), api, namespace, name, limit)
			if err != nil {
				return err
			}
			raw, err := json.Marshal(map[string]any{"items": all})
			if err != nil {
				return err
			}
			t := output.Table{Head: []string{"ID", "REVISION", "DEPLOYED", "BY", "REASON"}}
			for _, e := range all {
				by := e.InitiatedBy.Username
				if e.InitiatedBy.Automated {
					by = "automation"
				}
				t.Rows = append(t.Rows, []string{strconv.FormatInt(e.Id, 10), output.Short(e.Revision), output.Ago(e.DeployedAt), output.Dash(by), output.Dash(e.Reason)})
				t.Names = append(t.Names, strconv.FormatInt(e.Id, 10))
			}
			return a.Print(raw, t)
		})
	c.Flags().IntVar(&limit, "limit", 0, "at most so many (default: all)")
	return c
}

// history reads the newest entries page by page; limit 0 means all.
func history(ctx context.Context, api *client.Client, namespace, name string, limit int) ([]apimodel.HistoryEntry, error) {
	const most = 500
	all := []apimodel.HistoryEntry{}
	params := apimodel.GetHistoryParams{}
	for {
		size := most
		if limit > 0 {
			size = min(most, limit-len(all))
		}
		params.Limit = size
		page, _, err := client.Call[struct {
			Items []apimodel.HistoryEntry `json:"items"`
		}](api.GetHistory(ctx, namespace, name, params))
		if err != nil {
			return nil, err
		}
		all = append(all, page.Items...)
		if len(page.Items) < size || len(all) == limit {
			return all, nil
		}
		params.Before = page.Items[len(page.Items)-1].Id
	}
}
