package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/cli/exit"
	"github.com/capstan-cd/capstan/cli/output"
	"github.com/capstan-cd/capstan/cli/usage"
	"github.com/capstan-cd/capstan/shared/apimodel"
	"github.com/capstan-cd/capstan/shared/appquery"
	"github.com/capstan-cd/capstan/shared/fault"
)

// bulkPoll is how often the progress of a bulk request is read.
const bulkPoll = time.Second

// A bulkOrder is a bulk request and what the command does with it.
type bulkOrder struct {
	request              apimodel.BulkRequest
	cascade, propagation string
	yes, async           bool
}

func (a *app) appBulk() *cobra.Command {
	var o bulkOrder
	c := &cobra.Command{
		Use: "bulk ACTION [NAME...]", Short: "Do the same to many applications by one request: sync, refresh, pause, resume or delete",
		Long: "Do the same to many applications by one request. They are named, or found by a query as in `capstan app list --query`. " +
			"The hub does each with your rights on it, and goes on when this command or the hub itself ends. " +
			"A sync is done when it has begun; pause and resume are about automation.",
		Example: "  capstan app bulk sync --query 'health:degraded label:team=shop'\n  capstan app bulk refresh --all --hard\n  capstan app bulk pause shop billing --reason 'release freeze'\n  capstan app bulk delete --query 'project:old' --dry-run",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.read(args); err != nil {
				return err
			}
			api, err := a.client()
			if err != nil {
				return err
			}
			return a.bulk(cmd.Context(), api, o)
		},
		ValidArgs: bulkActions(),
	}
	f := c.Flags()
	f.StringVar(&o.request.Query, "query", "", "the applications that a query has, such as 'health:degraded label:team=shop'")
	f.BoolVar(&o.request.All, "all", false, "all applications that you may see")
	f.BoolVar(&o.request.DryRun, "dry-run", false, "say what would be done, and do nothing")
	f.BoolVar(&o.request.Prune, "prune", false, "sync: also delete what Git no longer has")
	f.BoolVar(&o.request.Hard, "hard", false, "refresh: render even if nothing has changed")
	f.StringVar(&o.cascade, "cascade", "", "delete: true: their objects go too; false: they stay (default: as their finalizers say)")
	f.StringVarP(&o.propagation, "propagation-policy", "p", "", "delete: how what the objects own goes: foreground, background or orphan")
	f.StringVar(&o.request.Reason, "reason", "", "why, for the audit log")
	f.BoolVarP(&o.yes, "yes", "y", false, "do not ask")
	f.BoolVar(&o.async, "async", false, "do not wait until all are done")
	return c
}

func bulkActions() []string { return []string{"sync", "refresh", "pause", "resume", "delete"} }

// read takes what the arguments say.
func (o *bulkOrder) read(args []string) error {
	if !slices.Contains(bulkActions(), args[0]) {
		return usage.Errorf("%q is no action; use one of %s", args[0], strings.Join(bulkActions(), ", "))
	}
	o.request.Action, o.request.Names = apimodel.BulkAction(args[0]), args[1:]
	ways := 0
	for _, given := range []bool{o.request.Query != "", o.request.All, len(o.request.Names) > 0} {
		if given {
			ways++
		}
	}
	if ways != 1 {
		return usage.Errorf("give the names of applications, --query, or --all")
	}
	if _, err := appquery.Parse(o.request.Query); err != nil {
		return fault.With(err, "--query", "")
	}
	if o.cascade != "" {
		whole, err := strconv.ParseBool(o.cascade)
		if err != nil {
			return usage.Errorf("--cascade is true or false, not %q", o.cascade)
		}
		o.request.Cascade = &whole
	}
	o.request.Propagation = apimodel.Propagation(o.propagation)
	return nil
}

// bulk asks with the plan, starts the request, and says how far it is.
func (a *app) bulk(ctx context.Context, api *client.Client, o bulkOrder) error {
	plan := o.request
	plan.DryRun = true
	planned, raw, err := client.Call[apimodel.Bulk](api.StartBulk(ctx, plan))
	if err != nil {
		return err
	}
	if o.request.DryRun {
		a.Note("%s: %d of %d would be done, %d are not permitted", plan.Action, planned.Counts.Pending, planned.Total, planned.Counts.Refused)
		return a.Print(raw, bulkTable(planned))
	}
	question := fmt.Sprintf("%s %d applications (%d of %d are not permitted)?", o.request.Action, planned.Counts.Pending, planned.Counts.Refused, planned.Total)
	if err := a.confirm(o.yes, strings.ToUpper(question[:1])+question[1:]); err != nil {
		return err
	}
	b, raw, err := client.Call[apimodel.Bulk](api.StartBulk(ctx, o.request))
	if err != nil {
		return err
	}
	if o.async {
		return a.Print(raw, bulkTable(b))
	}
	return a.followBulk(ctx, api, b)
}

// followBulk prints a line for each change of the progress, and the end.
func (a *app) followBulk(ctx context.Context, api *client.Client, b apimodel.Bulk) error {
	shown := -1
	for {
		now, _, err := client.Call[apimodel.Bulk](api.GetBulk(ctx, b.Id, apimodel.GetBulkParams{}))
		if err != nil {
			return fmt.Errorf("the request %s goes on in the hub: %w", b.Id, err)
		}
		if over := now.Total - now.Counts.Pending; over != shown {
			shown = over
			a.Note("%s: %d of %d done, %d failed, %d not permitted", now.Action, now.Counts.Done, now.Total, now.Counts.Failed, now.Counts.Refused)
		}
		if !now.FinishedAt.IsZero() {
			break
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the request %s goes on in the hub: %w", b.Id, ctx.Err())
		case <-time.After(bulkPoll):
		}
	}
	all, err := bulkItems(ctx, api, b.Id)
	if err != nil {
		return err
	}
	raw, err := json.Marshal(all)
	if err != nil {
		return err
	}
	if err := a.Print(raw, bulkTable(all)); err != nil {
		return err
	}
	failed := exit.Failures{Total: all.Total}
	for range all.Counts.Failed + all.Counts.Refused + all.Counts.Cancelled {
		failed.Add(exit.Failed)
	}
	return failed.Err("applications", "were not done")
}

// bulkItems reads a request with all its applications.
func bulkItems(ctx context.Context, api *client.Client, id string) (apimodel.Bulk, error) {
	params := apimodel.GetBulkParams{Limit: 1000}
	all, _, err := client.Call[apimodel.Bulk](api.GetBulk(ctx, id, params))
	for page := all; err == nil && page.Next != 0; all.Items = append(all.Items, page.Items...) {
		params.After = page.Next
		page, _, err = client.Call[apimodel.Bulk](api.GetBulk(ctx, id, params))
	}
	all.Next = 0
	return all, err
}

func bulkTable(b apimodel.Bulk) output.Table {
	t := output.Table{Head: []string{"APPLICATION", "STATE", "OPERATION", "MESSAGE"}}
	for _, i := range b.Items {
		name := client.QualifiedName(apimodel.Metadata{Namespace: i.Namespace, Name: i.Name})
		t.Rows = append(t.Rows, []string{name, string(i.State), output.Dash(i.Operation), output.Dash(i.Message)})
		t.Names = append(t.Names, "application/"+name)
	}
	return t
}
