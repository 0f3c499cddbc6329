package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/aymanbagabas/go-udiff"
	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/shared/apimodel"
	"github.com/capstan-cd/capstan/shared/yamltext"
)

// externalDiff names the program that shows differences, as kubectl does.
const externalDiff = "KUBECTL_EXTERNAL_DIFF"

// diffing is what was asked for of a comparison.
type diffing struct {
	predict, exit, three bool
	refresh, hard        bool
	code                 int
	local                string
}

func (a *app) appDiff() *cobra.Command {
	var d diffing
	c := a.one("diff NAME", "Show how the cluster differs from Git; exit code 1 if it does",
		"  capstan app diff shop\n  capstan app diff shop --server-side-diff\n  helm template ./chart | capstan app diff shop --local -",
		func(cmd *cobra.Command, api *client.Client, namespace, name string) error {
			return comparisonFailed(a.diff(cmd, api, namespace, name, d))
		})
	f := c.Flags()
	f.BoolVar(&d.predict, "server-side-diff", false, "ask the cluster what an apply would make of each object; nothing is written")
	f.BoolVar(&d.refresh, "refresh", false, "refresh the sources first, and wait for it")
	f.BoolVar(&d.hard, "hard-refresh", false, "the same, and render even if nothing changed")
	f.BoolVar(&d.three, "three-way", false, "show what was applied last, too")
	f.StringVar(&d.local, "local", "", "compare the cluster with these manifests instead: a file, a folder, or - for the input")
	f.BoolVar(&d.exit, "exit-code", true, "end with an exit code of its own if there is a difference")
	f.IntVar(&d.code, "diff-exit-code", exitDiffers, "that exit code")
	return c
}

func (a *app) diff(cmd *cobra.Command, api *client.Client, namespace, name string, d diffing) error {
	if d.code < 1 || d.code > 125 {
		return usageErrorf("--diff-exit-code %d is no exit code from 1 to 125", d.code)
	}
	if d.local != "" && d.predict {
		return usageErrorf("--local and --server-side-diff do not go together")
	}
	var local []localObject
	if d.local != "" {
		var err error
		if local, err = readLocal(d.local, a.in); err != nil {
			return err
		}
	}
	if d.refresh || d.hard {
		if _, err := a.watcher(api).refreshed(cmd.Context(), namespace, name, d.hard, longRefresh); err != nil {
			return err
		}
		if err := a.watcher(api).compared(cmd.Context(), namespace, name); err != nil {
			return err
		}
	}
	got, raw, err := call[struct {
		Items  []apimodel.ObjectDiff `json:"items"`
		Paused apimodel.Paused       `json:"paused,omitzero"`
	}](api.DiffApplication(cmd.Context(), namespace, name, apimodel.DiffApplicationParams{Predict: d.predict, All: d.local != ""}))
	if unavailable(err) {
		return fmt.Errorf("application %s: %w: %s", name, errAway, answerText(err))
	}
	if err != nil {
		return err
	}
	items := got.Items
	a.notePaused(got.Paused)
	if d.local != "" {
		if items, err = againstLocal(items, local); err != nil {
			return err
		}
		got.Items = items
		if raw, err = json.Marshal(got); err != nil {
			return err
		}
	}
	if a.format == "table" || a.format == "wide" {
		for _, o := range items {
			if err := a.viewer(d.three).show(cmd.Context(), o); err != nil {
				return err
			}
		}
	} else if err := a.print(raw, diffNames(items)); err != nil {
		return err
	}
	if len(items) > 0 && d.exit {
		return differs(d.code)
	}
	return nil
}

func (a *app) viewer(threeWay bool) viewer {
	return viewer{out: a.out, err: a.err, threeWay: threeWay}
}

func diffNames(items []apimodel.ObjectDiff) table {
	var t table
	for _, o := range items {
		t.name = append(t.name, strings.ToLower(o.Kind)+"/"+o.Name)
	}
	return t
}

// A viewer shows differences to people.
type viewer struct {
	out, err io.Writer
	threeWay bool // also what was applied last
}

// show prints one object for people: of live what the manifests speak of,
// or with a prediction all of it, against what should be.
func (v viewer) show(ctx context.Context, o apimodel.ObjectDiff) error {
	title := o.Kind + " " + o.Name
	if ns := o.Namespace; ns != "" {
		title = o.Kind + " " + ns + "/" + o.Name
	}
	fmt.Fprintf(v.out, "===== %s: %s\n", title, dash(o.Summary))
	if why := o.Problem; why != "" {
		fmt.Fprintln(v.out, "an apply would be refused:", why)
	}
	from, to := o.NormalizedLive, o.Desired
	if from == nil {
		from = o.Live
	}
	if o.Predicted != nil {
		from, to = o.Live, o.Predicted
	}
	live, err := lines(from)
	if err != nil {
		return err
	}
	desired, err := lines(to)
	if err != nil {
		return err
	}
	if program := os.Getenv(externalDiff); program != "" {
		return v.external(ctx, program, o, live, desired)
	}
	fmt.Fprint(v.out, udiff.Unified("live", "desired", live, desired))
	if !v.threeWay {
		return nil
	}
	applied, err := lines(o.Applied)
	if err != nil {
		return err
	}
	fmt.Fprint(v.out, udiff.Unified("last applied", "desired", applied, desired))
	return nil
}

// external has another program show a difference. That it ends with 1 means
// that there is one.
func (v viewer) external(ctx context.Context, program string, o apimodel.ObjectDiff, live, desired string) error {
	dir, err := os.MkdirTemp("", "capstan-diff-")
	if err != nil {
		return fmt.Errorf("make a folder for %s: %w", externalDiff, err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	words := strings.Fields(program)
	args := words[1:]
	for _, side := range [...]struct{ name, text string }{{"live", live}, {"desired", desired}} {
		path := filepath.Join(dir, side.name+"-"+strings.ToLower(o.Kind)+".yaml")
		if err := os.WriteFile(path, []byte(side.text), 0o600); err != nil {
			return fmt.Errorf("write for %s: %w", externalDiff, err)
		}
		args = append(args, path)
	}
	run := exec.CommandContext(ctx, words[0], args...) //nolint:gosec // the user names the program
	run.Stdout, run.Stderr = v.out, v.err
	var ended *exec.ExitError
	if err := run.Run(); err != nil && !(errors.As(err, &ended) && ended.ExitCode() == 1) {
		return usageErrorf("%s=%q cannot be run; name a program with two file arguments, such as diff -u", externalDiff, program)
	}
	return nil
}

func lines(object apimodel.AnyObject) (string, error) {
	if len(object) == 0 || string(object) == "null" {
		return "", nil
	}
	b, err := yaml.JSONToYAML(object)
	return string(b), err
}

// localObject is a manifest on this machine.
type localObject map[string]any

func (o localObject) text(path ...string) string {
	var v any = map[string]any(o)
	for _, step := range path {
		m, _ := v.(map[string]any)
		v = m[step]
	}
	s, _ := v.(string)
	return s
}

func (o localObject) group() string {
	group, _, ok := strings.Cut(o.text("apiVersion"), "/")
	if !ok {
		return ""
	}
	return group
}

func (o localObject) is(d apimodel.ObjectDiff) bool {
	namespace := o.text("metadata", "namespace")
	return o.group() == d.Group && o.text("kind") == d.Kind && o.text("metadata", "name") == d.Name && (namespace == "" || namespace == d.Namespace)
}

// secret reports whether the values of a kind are not shown here.
func secret(group, kind string) bool { return group == "" && kind == "Secret" }

// againstLocal compares what is live with manifests on this machine. Secrets
// are left out.
func againstLocal(all []apimodel.ObjectDiff, local []localObject) ([]apimodel.ObjectDiff, error) {
	var out []apimodel.ObjectDiff
	for _, d := range all {
		var mine localObject
		if i := slices.IndexFunc(local, func(o localObject) bool { return o.is(d) }); i >= 0 {
			mine = local[i]
			local = slices.Delete(local, i, i+1)
		}
		if secret(d.Group, d.Kind) {
			continue
		}
		changed, err := replaced(&d, mine)
		if err != nil {
			return nil, err
		}
		if changed {
			out = append(out, d)
		}
	}
	for _, o := range local {
		if secret(o.group(), o.text("kind")) {
			continue
		}
		version := o.text("apiVersion")
		if _, after, ok := strings.Cut(version, "/"); ok {
			version = after
		}
		d := apimodel.ObjectDiff{Group: o.group(), Version: version, Kind: o.text("kind"), Name: o.text("metadata", "name"), Status: "OutOfSync"}
		if ns := o.text("metadata", "namespace"); ns != "" {
			d.Namespace = ns
		}
		if _, err := replaced(&d, o); err != nil {
			return nil, err
		}
		out = append(out, d)
	}
	return out, nil
}

// replaced puts a local manifest in the place of the desired object, and says
// whether live differs from it.
func replaced(d *apimodel.ObjectDiff, mine localObject) (bool, error) {
	d.Desired, d.NormalizedLive, d.Predicted = nil, nil, nil
	if mine == nil {
		d.Status, d.Summary = "OutOfSync", "not among the local manifests"
		return true, nil
	}
	d.Summary = "local manifest"
	delete(mine, "status")
	if meta, ok := mine["metadata"].(map[string]any); ok && d.Namespace != "" {
		meta["namespace"] = d.Namespace
	}
	desired, err := json.Marshal(mine)
	if err != nil {
		return false, fmt.Errorf("write %s %s: %w", d.Kind, d.Name, err)
	}
	d.Desired = desired
	if d.Live == nil {
		d.Summary = "not in the cluster"
		return true, nil
	}
	var live any
	if err := json.Unmarshal(d.Live, &live); err != nil {
		return false, fmt.Errorf("read the live %s %s: %w", d.Kind, d.Name, err)
	}
	normal, err := json.Marshal(restricted(live, map[string]any(mine)))
	if err != nil {
		return false, fmt.Errorf("write the live %s %s: %w", d.Kind, d.Name, err)
	}
	d.NormalizedLive = normal
	return !bytes.Equal(normal, desired), nil
}

// restricted returns of a live value what a wish speaks of. Items of lists are
// compared by their place.
func restricted(live, wish any) any {
	switch w := wish.(type) {
	case map[string]any:
		l, ok := live.(map[string]any)
		if !ok {
			return live
		}
		out := map[string]any{}
		for k, v := range w {
			if have, there := l[k]; there {
				out[k] = restricted(have, v)
			}
		}
		return out
	case []any:
		l, ok := live.([]any)
		if !ok || len(l) != len(w) {
			return live
		}
		out := make([]any, len(l))
		for i := range l {
			out[i] = restricted(l[i], w[i])
		}
		return out
	}
	return live
}

// readLocal reads a file, all files of a folder, or the input.
func readLocal(from string, stdin io.Reader) ([]localObject, error) {
	all, err := readFiles([]string{from}, stdin)
	if err != nil {
		return nil, asUsage(err)
	}
	var out []localObject
	for _, file := range all.parts {
		objects, err := objects(file)
		if err != nil {
			return nil, asUsage(err)
		}
		out = append(out, objects...)
	}
	return out, nil
}

// objects reads the documents of one file.
func objects(p inputPart) ([]localObject, error) {
	var out []localObject
	var part []string
	start := 1 // line of the document
	for i, line := range strings.Split(string(p.text)+"\n---", "\n") {
		if trimmed := strings.TrimRight(line, " \t\r"); trimmed != "---" {
			part = append(part, line)
			continue
		}
		o, err := parseObject(p, strings.Join(part, "\n"), start)
		if err != nil {
			return nil, err
		}
		if len(o) > 0 {
			out = append(out, o)
		}
		part, start = nil, i+2
	}
	return out, nil
}

// parseObject parses one document, which begins on a line of the file. An empty
// document has no object.
func parseObject(p inputPart, text string, start int) (localObject, error) {
	var o localObject
	if err := yaml.Unmarshal([]byte(text), &o); err != nil {
		line, cause := yamltext.Place([]byte(text), errors.New(strings.TrimPrefix(err.Error(), "error converting YAML to JSON: ")))
		return nil, fmt.Errorf("%s, line %d: not YAML: %s", p.name, start+line-1, cause)
	}
	if len(o) > 0 && (o.text("kind") == "" || o.text("metadata", "name") == "") {
		return nil, fmt.Errorf("%s, line %d: the document has no kind or no name", p.name, start)
	}
	return o, nil
}
