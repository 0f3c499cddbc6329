package cli

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/cli/output"
	"github.com/capstan-cd/capstan/shared/apimodel"
)

// treeOf is the form that only app get has, if that is what was asked for.
func treeOf(c *cobra.Command, format string) string {
	if c.Name() == "get" && c.HasParent() && c.Parent().Name() == "app" && (format == "tree" || format == "tree=detailed") {
		return format
	}
	return ""
}

// treeOf is the table of tree, or of tree=detailed with age and message.
func (a *app) treeOf(tree apimodel.Tree) output.Table {
	t := ownershipTable(tree)
	if a.tree == "tree=detailed" {
		return t
	}
	t.Head = t.Head[:len(t.Head)-1]
	for i, row := range t.Rows {
		t.Rows[i] = row[:min(len(row), len(t.Head))]
	}
	return t
}

// describeMore prints what app get shows on request.
func (a *app) describeMore(x apimodel.Application, params, operation bool) error {
	if params {
		fmt.Fprintln(a.Out)
		if err := a.Tabulate(parameterTable(x.Spec)); err != nil {
			return err
		}
	}
	if op := x.Status.OperationState; operation && client.Given(op.Phase) {
		fmt.Fprintf(a.Out, "\nOperation: %s %s\nStarted: %s\nFinished: %s\nMessage: %s\n\n", op.Kind, op.Phase, output.Ago(op.StartedAt), output.Ago(op.FinishedAt), output.Plain(output.Dash(op.Message)))
		t := output.Table{Head: []string{"KIND", "NAMESPACE", "NAME", "RESULT", "HOOK", "MESSAGE"}}
		for _, r := range op.SyncResult.Resources {
			t.Rows = append(t.Rows, []string{r.Kind, output.Dash(r.Namespace), r.Name, output.Dash(string(r.Status)), output.Dash(string(r.HookPhase)), r.Message})
		}
		return a.Tabulate(t)
	}
	return nil
}

// parameterTable lists parameters of charts, images and value files.
func parameterTable(spec []byte) output.Table {
	type source struct {
		RepoURL string `json:"repoURL"`
		Helm    struct {
			Parameters []struct {
				Name  string `json:"name"`
				Value string `json:"value"`
			} `json:"parameters"`
			ValueFiles []string `json:"valueFiles"`
		} `json:"helm"`
		Kustomize struct {
			Images []string `json:"images"`
		} `json:"kustomize"`
	}
	var s struct {
		Source  *source  `json:"source"`
		Sources []source `json:"sources"`
	}
	t := output.Table{Head: []string{"SOURCE", "NAME", "VALUE"}}
	if json.Unmarshal(spec, &s) != nil {
		return t
	}
	all := s.Sources
	if len(all) == 0 && s.Source != nil {
		all = []source{*s.Source}
	}
	for i, one := range all {
		add := func(name, value string) { t.Rows = append(t.Rows, []string{strconv.Itoa(i + 1), name, value}) }
		for _, p := range one.Helm.Parameters {
			add(p.Name, p.Value)
		}
		if len(one.Helm.ValueFiles) > 0 {
			add("(value files)", strings.Join(one.Helm.ValueFiles, ", "))
		}
		for _, image := range one.Kustomize.Images {
			add("(image)", image)
		}
	}
	return t
}
