package cli

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/cli/exit"
	"github.com/capstan-cd/capstan/cli/files"
	"github.com/capstan-cd/capstan/cli/output"
	"github.com/capstan-cd/capstan/cli/usage"
	"github.com/capstan-cd/capstan/shared/apimodel"
)

func (a *app) applyCommand() *cobra.Command {
	var names []string
	var dryRun bool
	c := &cobra.Command{
		Use: "apply -f FILE", Short: "Make or change the objects of YAML or JSON files", Args: usage.Exactly(),
		Example: "  capstan apply -f application.yaml\n  capstan apply -f manifests/ --dry-run\n  cat project.yaml | capstan apply -f -",
		RunE: func(cmd *cobra.Command, _ []string) error {
			input, err := files.Read(names, a.in)
			if err != nil {
				return err
			}
			api, err := a.client()
			if err != nil {
				return err
			}
			result, raw, err := client.Call[apimodel.ApplyResult](api.Apply(cmd.Context(), apimodel.ApplyParams{DryRun: dryRun}, client.Raw{ContentType: "application/yaml", Content: bytes.NewReader(input.Text())}))
			if err != nil {
				return placed(input, err)
			}
			return a.applied(input, result, raw)
		},
	}
	c.Flags().StringSliceVarP(&names, "filename", "f", nil, "file, folder, or - for standard input")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "check everything, change nothing")
	_ = c.MarkFlagRequired("filename")
	return c
}

// applied prints the result of each object. The error is that of the refused
// objects.
func (a *app) applied(in files.Input, result apimodel.ApplyResult, raw []byte) error {
	var t output.Table
	failed := exit.Failures{Total: len(result.Results)}
	for _, r := range result.Results {
		name := strings.ToLower(r.Kind) + "/" + r.Name
		t.Names = append(t.Names, name)
		if !client.Given(r.Error) {
			t.Rows = append(t.Rows, []string{name + " " + string(r.Result)})
			a.Warn(r.Warnings)
			continue
		}
		refusal := &client.AnswerError{Status: client.StatusOf(r.Error.Code), Body: r.Error}
		failed.Add(exit.Of(refusal))
		place := fmt.Sprintf("document %d", r.Index)
		if file, line := in.Locate(r.Error.Line); file != "" {
			place = fmt.Sprintf("%s, line %d", file, line)
		}
		t.Rows = append(t.Rows, []string{fmt.Sprintf("%s refused (%s): %s", name, place, refusal.Sentence())})
	}
	if a.Format == "table" || a.Format == "wide" {
		for _, row := range t.Rows {
			fmt.Fprintln(a.Out, row[0])
		}
	} else if err := a.Print(raw, t); err != nil {
		return err
	}
	return failed.Err("documents", "were refused")
}

// placed has a refusal of the text name the file and the line in it.
func placed(in files.Input, err error) error {
	var answer *client.AnswerError
	if !errors.As(err, &answer) {
		return err
	}
	file, line := in.Locate(answer.Body.Line)
	where := fmt.Sprintf("%s, line %d", file, line)
	if file == "" {
		if len(in.Parts) != 1 || !strings.HasPrefix(answer.Body.Object, "the request body") {
			return err
		}
		where = in.Parts[0].Name
	}
	out := *answer
	out.Body.Object, out.Body.Message = where, where+": "+cmp.Or(answer.Body.Cause, answer.Body.Message)
	return &out
}
