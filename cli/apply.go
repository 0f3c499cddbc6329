package cli

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/shared/fault"
)

func (a *app) applyCommand() *cobra.Command {
	var files []string
	var dryRun bool
	c := &cobra.Command{
		Use: "apply -f FILE", Short: "Make or change the objects of YAML or JSON files", Args: exactly(),
		Example: "  capstan apply -f application.yaml\n  capstan apply -f manifests/ --dry-run\n  cat project.yaml | capstan apply -f -",
		RunE: func(cmd *cobra.Command, _ []string) error {
			body, err := a.gather(files)
			if err != nil {
				return err
			}
			api, err := a.client()
			if err != nil {
				return err
			}
			result, raw, err := call[client.ApplyResult](api.ApplyWithBody(cmd.Context(), &client.ApplyParams{DryRun: ref(dryRun)}, "application/yaml", bytes.NewReader(body)))
			if err != nil {
				return err
			}
			var t table
			for _, r := range result.Results {
				name := strings.ToLower(deref(r.Kind)) + "/" + deref(r.Name)
				t.name = append(t.name, name)
				if r.Error != nil {
					t.rows = append(t.rows, []string{fmt.Sprintf("%s refused (document %d): %s", name, r.Index, (&answerError{body: *r.Error}).sentence())})
					continue
				}
				t.rows = append(t.rows, []string{name + " " + string(r.Result)})
				a.warn(r.Warnings)
			}
			t.head = nil
			if a.output == "table" || a.output == "wide" {
				for _, row := range t.rows {
					fmt.Fprintln(a.streams.Out, row[0])
				}
			} else if err := a.print(raw, t); err != nil {
				return err
			}
			if result.Failed > 0 {
				return fault.New(fault.Invalid, "%d of %d documents were refused", result.Failed, len(result.Results))
			}
			return nil
		},
	}
	c.Flags().StringSliceVarP(&files, "filename", "f", nil, "file, folder, or - for standard input")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "check everything, change nothing")
	_ = c.MarkFlagRequired("filename")
	return c
}

// gather joins the documents of all files, in the order given; folders are
// read by name.
func (a *app) gather(files []string) ([]byte, error) {
	var out bytes.Buffer
	add := func(b []byte) {
		if out.Len() > 0 {
			out.WriteString("\n---\n")
		}
		out.Write(b)
	}
	for _, name := range files {
		if name == "-" {
			b, err := io.ReadAll(a.streams.In)
			if err != nil {
				return nil, err
			}
			add(b)
			continue
		}
		paths, err := manifestsBelow(name)
		if err != nil {
			return nil, err
		}
		for _, p := range paths {
			b, err := os.ReadFile(p)
			if err != nil {
				return nil, fault.Wrap(fault.Invalid, err, "%s cannot be read", p)
			}
			add(b)
		}
	}
	return out.Bytes(), nil
}

func manifestsBelow(name string) ([]string, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "%s cannot be read", name)
	}
	if !info.IsDir() {
		return []string{name}, nil
	}
	var out []string
	err = filepath.WalkDir(name, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if !d.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path)) {
			out = append(out, path)
		}
		return nil
	})
	if err == nil && len(out) == 0 {
		err = fault.New(fault.Invalid, "%s holds no .yaml, .yml or .json file", name)
	}
	return out, err
}
