package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/shared/apimodel"
	"github.com/capstan-cd/capstan/shared/fault"
)

func (a *app) applyCommand() *cobra.Command {
	var files []string
	var dryRun bool
	c := &cobra.Command{
		Use: "apply -f FILE", Short: "Make or change the objects of YAML or JSON files", Args: exactly(),
		Example: "  capstan apply -f application.yaml\n  capstan apply -f manifests/ --dry-run\n  cat project.yaml | capstan apply -f -",
		RunE: func(cmd *cobra.Command, _ []string) error {
			input, err := readFiles(files, a.in)
			if err != nil {
				return err
			}
			api, err := a.client()
			if err != nil {
				return err
			}
			result, raw, err := call[apimodel.ApplyResult](api.Apply(cmd.Context(), apimodel.ApplyParams{DryRun: dryRun}, client.Raw{ContentType: "application/yaml", Content: bytes.NewReader(input.text())}))
			if err != nil {
				return placed(input, err)
			}
			return a.applied(input, result, raw)
		},
	}
	c.Flags().StringSliceVarP(&files, "filename", "f", nil, "file, folder, or - for standard input")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "check everything, change nothing")
	_ = c.MarkFlagRequired("filename")
	return c
}

// applied prints the result of each object. The error is that of the refused
// objects.
func (a *app) applied(in input, result apimodel.ApplyResult, raw []byte) error {
	var t table
	failed := failures{of: len(result.Results)}
	for _, r := range result.Results {
		name := strings.ToLower(r.Kind) + "/" + r.Name
		t.name = append(t.name, name)
		if !given(r.Error) {
			t.rows = append(t.rows, []string{name + " " + string(r.Result)})
			a.warn(r.Warnings)
			continue
		}
		refusal := &answerError{status: statusOf(r.Error.Code), body: r.Error}
		failed.add(exitCode(refusal))
		place := fmt.Sprintf("document %d", r.Index)
		if file, line := in.locate(r.Error.Line); file != "" {
			place = fmt.Sprintf("%s, line %d", file, line)
		}
		t.rows = append(t.rows, []string{fmt.Sprintf("%s refused (%s): %s", name, place, refusal.sentence())})
	}
	if a.format == "table" || a.format == "wide" {
		for _, row := range t.rows {
			fmt.Fprintln(a.out, row[0])
		}
	} else if err := a.print(raw, t); err != nil {
		return err
	}
	return failed.err("documents", "were refused")
}

// An input is the text of files one behind the other.
type input struct{ parts []inputPart }

type inputPart struct {
	name string // of the file; stdin for standard input
	text []byte
}

const (
	stdinName = "stdin"
	between   = "\n---\n" // files
)

func (in input) text() []byte {
	var texts [][]byte
	for _, p := range in.parts {
		texts = append(texts, p.text)
	}
	return bytes.Join(texts, []byte(between))
}

// locate finds the file in which a line of the text stands, and its line there.
// The name is empty if there is no such line.
func (in input) locate(line int) (file string, at int) {
	if line < 1 {
		return "", 0
	}
	for _, p := range in.parts {
		rows := bytes.Count(p.text, []byte("\n")) + 1
		if line <= rows {
			return p.name, line
		}
		if line -= rows; line == 1 { // the line between two files
			return p.name, rows
		}
		line--
	}
	return "", 0
}

// placed has a refusal of the text name the file and the line in it.
func placed(in input, err error) error {
	var answer *answerError
	if !errors.As(err, &answer) {
		return err
	}
	file, line := in.locate(answer.body.Line)
	where := fmt.Sprintf("%s, line %d", file, line)
	if file == "" {
		if len(in.parts) != 1 || !strings.HasPrefix(answer.body.Object, "the request body") {
			return err
		}
		where = in.parts[0].name
	}
	out := *answer
	out.body.Object, out.body.Message = where, where+": "+first(answer.body.Cause, answer.body.Message)
	return &out
}

// readFiles reads all files, in the order given; folders are read by name.
func readFiles(files []string, stdin io.Reader) (input, error) {
	var out input
	add := func(name string, text []byte) {
		out.parts = append(out.parts, inputPart{name, bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))})
	}
	for _, name := range files {
		if name == "-" {
			b, err := io.ReadAll(stdin)
			if err != nil {
				return out, err
			}
			add(stdinName, b)
			continue
		}
		paths, err := manifestsBelow(name)
		if err != nil {
			return out, err
		}
		for _, p := range paths {
			b, err := os.ReadFile(p)
			if err != nil {
				return out, fault.Wrap(fault.Invalid, err, "%s cannot be read", p)
			}
			add(p, b)
		}
	}
	return out, nil
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
		err = fault.New(fault.Invalid, "%s contains no .yaml, .yml or .json file", name)
	}
	return out, err
}
