package tenancy

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/cli/command"
	"github.com/capstan-cd/capstan/cli/output"
	"github.com/capstan-cd/capstan/cli/usage"
	"github.com/capstan-cd/capstan/shared/apimodel"
	"github.com/capstan-cd/capstan/shared/auditlog"
)

// Audit is the command audit.
func Audit(env *command.Env) *cobra.Command {
	a := commands{env}
	return command.Noun("audit", "The record of writes, refused writes, sign-ins and streams", nil, a.auditList(), a.auditExport(), a.auditVerify(), a.auditRetention())
}

// auditPage is how many records one request asks for.
const auditPage = 500

type auditRecords struct {
	Items []apimodel.AuditRecord `json:"items"`
	Next  int64                  `json:"next,omitempty"`
}

func (a commands) auditList() *cobra.Command {
	var p apimodel.ListAuditParams
	var since, until, result string
	var limit int
	c := a.Plain("list", "Find who did what, newest first", "  capstan audit list\n  capstan audit list --actor ann --action delete --since 7d\n  capstan audit list --result denied --text shop -o json",
		func(cmd *cobra.Command, api *client.Client) error {
			var err error
			if p.From, err = pastTime("since", since); err != nil {
				return err
			}
			if p.To, err = pastTime("until", until); err != nil {
				return err
			}
			p.Result = apimodel.ListAuditParamsResult(result)
			all := auditRecords{Items: []apimodel.AuditRecord{}}
			for more := true; more && len(all.Items) < limit; {
				p.Limit = min(auditPage, limit-len(all.Items))
				page, _, err := client.Call[auditRecords](api.ListAudit(cmd.Context(), p))
				if err != nil {
					return err
				}
				all.Items = append(all.Items, page.Items...)
				all.Next, p.Before, more = page.Next, page.Next, page.Next != 0
			}
			raw, err := json.Marshal(all)
			if err != nil {
				return err
			}
			return a.Print(raw, auditTable(all.Items))
		})
	f := c.Flags()
	f.StringVar(&p.Actor, "actor", "", "only acts of this user")
	f.StringVar(&p.Action, "action", "", "only this action, such as create, delete, sync, login")
	f.StringVar(&p.Resource, "resource", "", "only this resource, such as applications, projects, accounts")
	f.StringVar(&p.Object, "object", "", "only objects whose name contains this")
	f.StringVar(&result, "result", "", "allowed, denied or failed")
	f.StringVar(&p.Text, "text", "", "only records that contain this anywhere")
	f.BoolVar(&p.WithoutStreams, "without-streams", false, "not the records of streams that begin and end")
	f.StringVar(&since, "since", "", "not before: a time such as 2026-05-01T10:00:00Z, or an age such as 12h or 7d")
	f.StringVar(&until, "until", "", "not after: like --since")
	f.IntVar(&limit, "limit", 100, "how many records at most")
	f.Int64Var(&p.Before, "before", 0, "only records with smaller numbers")
	return c
}

func auditTable(all []apimodel.AuditRecord) output.Table {
	t := output.Table{Head: []string{"SEQ", "AT", "ACTOR", "ACTION", "OBJECT", "RESULT", "REASON"}}
	for _, r := range all {
		t.Rows = append(t.Rows, []string{
			strconv.FormatInt(r.Seq, 10), r.At.Local().Format("2006-01-02 15:04:05 -0700"), r.Actor, r.Action, r.Resource + "/" + r.Object, string(r.Result), output.Dash(r.Reason),
		})
		t.Names = append(t.Names, strconv.FormatInt(r.Seq, 10))
	}
	return t
}

// pastTime reads a time, or how long ago it was; days are written like 7d.
func pastTime(flag, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return t, nil
		}
	}
	if days, isDays := strings.CutSuffix(text, "d"); isDays {
		if n, err := strconv.Atoi(days); err == nil && n >= 0 {
			return time.Now().AddDate(0, 0, -n), nil
		}
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return time.Now().Add(-d), nil
	}
	return time.Time{}, usage.Errorf("--%s %q is neither a time such as 2026-05-01T10:00:00Z nor an age such as 12h or 7d", flag, text)
}

func (a commands) auditExport() *cobra.Command {
	var file string
	c := a.Plain("export", "Save the whole log as JSON lines, which can be checked without the hub", "  capstan audit export --file audit.jsonl\n  capstan audit export | jq -c 'select(.action == \"delete\")'",
		func(cmd *cobra.Command, api *client.Client) error {
			res, err := api.ExportAudit(cmd.Context())
			if file == "" {
				return client.Save(a.Out, res, err)
			}
			return client.SaveFile(file, res, err)
		})
	c.Flags().StringVarP(&file, "file", "f", "", "where to save it (default: standard output)")
	return c
}

func (a commands) auditVerify() *cobra.Command {
	var head string
	c := &cobra.Command{
		Use: "verify [FILE]", Short: "Check that no record was changed, removed or added",
		Long: "Check that no record was changed, removed or added. With a file of \"capstan audit export\" no hub is needed. Somebody\n" +
			"who writes a whole new file passes that check, so compare its head with one that you noted or that the hub shows:\n" +
			"--head SEQ:HASH does so, for any record of the file.",
		Example: "  capstan audit verify\n  capstan audit verify audit.jsonl\n  capstan audit verify audit.jsonl --head 4711:9f86d081884c7d65…",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				return a.verifyFile(args[0], head)
			}
			if head != "" {
				return usage.Errorf("--head needs a file")
			}
			return a.verifyHub(cmd)
		},
	}
	c.Flags().StringVar(&head, "head", "", "SEQ:HASH of a record that the file has to contain")
	return c
}

func (a commands) verifyHub(cmd *cobra.Command) error {
	api, err := a.Client()
	if err != nil {
		return err
	}
	v, raw, err := client.Call[struct {
		OK       bool               `json:"ok"`
		Records  int64              `json:"records"`
		Head     apimodel.AuditMark `json:"head"`
		Anchor   apimodel.AuditMark `json:"anchor"`
		FirstBad int64              `json:"firstBad"`
		Problem  string             `json:"problem"`
	}](api.VerifyAudit(cmd.Context()))
	if err != nil {
		return err
	}
	if err := a.Print(raw, verified(v.Records, v.Anchor.Seq, v.Head.Seq, v.Head.Hash, v.OK)); err != nil || v.OK {
		return err
	}
	return fmt.Errorf("record %d: %s", v.FirstBad, v.Problem)
}

func verified(records, anchor, seq int64, hash string, ok bool) output.Table {
	result := "every record fits"
	if !ok {
		result = "TAMPERED"
	}
	return output.Table{
		Head: []string{"RECORDS", "FROM", "HEAD", "RESULT"}, Names: []string{strconv.FormatInt(seq, 10) + ":" + hash},
		Rows: [][]string{{strconv.FormatInt(records, 10), strconv.FormatInt(anchor+1, 10), strconv.FormatInt(seq, 10) + ":" + output.Dash(hash), result}},
	}
}

func (a commands) verifyFile(path, head string) error {
	var in io.Reader = a.In
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return usage.Errorf("%v", err)
		}
		defer f.Close()
		in = f
	}
	wanted := head == ""
	report, err := auditlog.Verify(in, func(r auditlog.Record) {
		wanted = wanted || strconv.FormatInt(r.Seq, 10)+":"+hex.EncodeToString(r.Hash) == strings.ToLower(head)
	})
	if err != nil {
		return errors.New(err.Error()) // nothing is wrong with the command line
	}
	if !wanted {
		return fmt.Errorf("the file has no record %s: it is another log, or somebody has written it anew", head)
	}
	raw, err := json.Marshal(report)
	if err != nil {
		return err
	}
	return a.Print(raw, verified(report.Records, report.Header.Anchor.Seq, report.Head.Seq, hex.EncodeToString(report.Head.Hash), true))
}

func (a commands) auditRetention() *cobra.Command {
	c := a.Plain("retention", "Show or set after how many days records are removed", "  capstan audit retention\n  capstan audit retention --days 365\n  capstan audit retention --days 0",
		func(cmd *cobra.Command, api *client.Client) error {
			days, err := cmd.Flags().GetInt("days")
			if err != nil {
				return err
			}
			ask := func() (*http.Response, error) { return api.GetAuditRetention(cmd.Context()) }
			if cmd.Flags().Changed("days") {
				ask = func() (*http.Response, error) {
					return api.PutAuditRetention(cmd.Context(), apimodel.PutAuditRetentionJSONRequestBody{Days: days})
				}
			}
			r, raw, err := client.Call[apimodel.AuditRetention](ask())
			if err != nil {
				return err
			}
			limit := "never removed"
			if r.Days > 0 {
				limit = fmt.Sprintf("removed after %d days", r.Days)
			}
			return a.Print(raw, output.Table{Head: []string{"RECORDS ARE", "REMOVED SO FAR"}, Rows: [][]string{{limit, strconv.FormatInt(r.Anchor.Seq, 10)}}, Names: []string{strconv.Itoa(r.Days)}})
		})
	c.Flags().Int("days", 0, "30 or more; 0 stores them for ever")
	return c
}
