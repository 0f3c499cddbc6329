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
	"time"

	"github.com/aymanbagabas/go-udiff"
	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// externalDiff names the program that shows differences, as kubectl does.
const externalDiff = "KUBECTL_EXTERNAL_DIFF"

// diffing is what was asked for of a comparison.
type diffing struct {
	predict, exit, refresh, hard, three bool
	code                                int
	local                               string
}

func (a *app) appDiff() *cobra.Command {
	var d diffing
	c := a.one("diff NAME", "Show how the cluster differs from Git; exit code 3 if it does",
		"  capstan app diff shop\n  capstan app diff shop --server-side-diff\n  helm template ./chart | capstan app diff shop --local -",
		func(cmd *cobra.Command, api *client.Client, namespace, name string) error {
			return a.diff(cmd, api, namespace, name, d)
		})
	f := c.Flags()
	f.BoolVar(&d.predict, "server-side-diff", false, "ask the cluster what an apply would make of each object; nothing is written")
	f.BoolVar(&d.three, "three-way", false, "show what was applied last, too")
	f.StringVar(&d.local, "local", "", "compare the cluster with these manifests instead: a file, a folder, or - for the input")
	f.BoolVar(&d.refresh, "refresh", false, "look at the sources again first")
	f.BoolVar(&d.hard, "hard-refresh", false, "render anew first")
	f.BoolVar(&d.exit, "exit-code", true, "end with an exit code of its own if there is a difference")
	f.IntVar(&d.code, "diff-exit-code", exitDiffers, "that exit code")
	return c
}

func (a *app) diff(cmd *cobra.Command, api *client.Client, namespace, name string, d diffing) error {
	if d.code < 1 || d.code > 125 {
		return usageError{fmt.Errorf("--diff-exit-code %d is no exit code from 1 to 125", d.code)}
	}
	if d.local != "" && d.predict {
		return usageError{errors.New("--local and --server-side-diff do not go together")}
	}
	if d.refresh || d.hard {
		if err := a.refreshed(cmd.Context(), api, namespace, name, d.hard); err != nil {
			return err
		}
	}
	got, raw, err := call[struct {
		Items []client.ObjectDiff `json:"items"`
	}](api.DiffApplication(cmd.Context(), namespace, name, &client.DiffApplicationParams{Predict: ref(d.predict), All: ref(d.local != "")}))
	if err != nil {
		return err
	}
	items := got.Items
	if d.local != "" {
		if items, err = a.againstLocal(items, d.local); err != nil {
			return err
		}
		if raw, err = json.Marshal(map[string]any{"items": items}); err != nil {
			return err
		}
	}
	if a.output == "table" || a.output == "wide" {
		for _, o := range items {
			if err := a.showDiff(cmd, o, d); err != nil {
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

const (
	refreshTime  = 2 * time.Minute // a diff waits for a refresh that it asked for
	refreshPause = 300 * time.Millisecond
)

// refreshed has the sources looked at again and waits until that was done.
func (a *app) refreshed(ctx context.Context, api *client.Client, namespace, name string, hard bool) error {
	before, _, err := call[client.Application](api.GetApplication(ctx, namespace, name))
	if err != nil {
		return err
	}
	since := deref(deref(deref(before.Status).Capstan).RefreshedAt)
	if _, err := read(api.RefreshApplication(ctx, namespace, name, &client.RefreshApplicationParams{Hard: ref(hard)})); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, refreshTime, errTimeout)
	defer cancel()
	again := time.NewTicker(refreshPause) // a refresh that changes nothing makes no event
	defer again.Stop()
	for {
		now, _, err := call[client.Application](api.GetApplication(ctx, namespace, name))
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return err
		case deref(deref(deref(now.Status).Capstan).RefreshedAt).After(since):
			return nil
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func diffNames(items []client.ObjectDiff) table {
	var t table
	for _, o := range items {
		t.name = append(t.name, strings.ToLower(o.Kind)+"/"+o.Name)
	}
	return t
}

// showDiff prints one object for people: of live what the manifests speak of,
// or with a prediction all of it, against what should be.
func (a *app) showDiff(cmd *cobra.Command, o client.ObjectDiff, d diffing) error {
	title := o.Kind + " " + o.Name
	if ns := deref(o.Namespace); ns != "" {
		title = o.Kind + " " + ns + "/" + o.Name
	}
	fmt.Fprintf(a.streams.Out, "===== %s: %s\n", title, dash(deref(o.Summary)))
	if why := deref(o.Problem); why != "" {
		fmt.Fprintln(a.streams.Out, "an apply would be refused:", why)
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
		return a.external(cmd, program, o, live, desired)
	}
	fmt.Fprint(a.streams.Out, udiff.Unified("live", "desired", live, desired))
	if !d.three {
		return nil
	}
	applied, err := lines(o.Applied)
	if err != nil {
		return err
	}
	fmt.Fprint(a.streams.Out, udiff.Unified("last applied", "desired", applied, desired))
	return nil
}

// external has another program show a difference. That it ends with 1 means
// that there is one.
func (a *app) external(cmd *cobra.Command, program string, o client.ObjectDiff, live, desired string) error {
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
	run := exec.CommandContext(cmd.Context(), words[0], args...) //nolint:gosec // the user names the program
	run.Stdout, run.Stderr = a.streams.Out, a.streams.Err
	var ended *exec.ExitError
	if err := run.Run(); err != nil && !(errors.As(err, &ended) && ended.ExitCode() == 1) {
		return usageError{fmt.Errorf("%s=%q cannot be run; name a program that takes two files, such as diff -u", externalDiff, program)}
	}
	return nil
}

func lines(object *client.AnyObject) (string, error) {
	if object == nil || len(*object) == 0 || string(*object) == "null" {
		return "", nil
	}
	b, err := yaml.JSONToYAML(*object)
	return string(b), err
}

// againstLocal compares what is live with manifests on this machine. Secrets
// are left out: their values are not shown here.
func (a *app) againstLocal(all []client.ObjectDiff, from string) ([]client.ObjectDiff, error) {
	local, err := a.localManifests(from)
	if err != nil {
		return nil, err
	}
	var out []client.ObjectDiff
	for _, o := range all {
		i := slices.IndexFunc(local, func(m *manifest.Object) bool { return same(m, o) })
		var mine *manifest.Object
		if i >= 0 {
			mine = local[i]
			local = slices.Delete(local, i, i+1)
		}
		if o.Kind == "Secret" && o.Group == "" {
			continue
		}
		changed, err := replaced(&o, mine)
		if err != nil {
			return nil, err
		}
		if changed {
			out = append(out, o)
		}
	}
	for _, m := range local {
		if m.GetKind() == "Secret" {
			continue
		}
		key := manifest.KeyOf(m)
		o := client.ObjectDiff{Group: key.Group, Version: manifest.Version(m), Kind: key.Kind, Namespace: ref(key.Namespace), Name: key.Name, Status: "OutOfSync"}
		if _, err := replaced(&o, m); err != nil {
			return nil, err
		}
		out = append(out, o)
	}
	return out, nil
}

func same(m *manifest.Object, o client.ObjectDiff) bool {
	key := manifest.KeyOf(m)
	return key.Group == o.Group && key.Kind == o.Kind && key.Name == o.Name && (key.Namespace == "" || key.Namespace == deref(o.Namespace))
}

// replaced puts a local manifest in the place of the desired object, and says
// whether live differs from it.
func replaced(o *client.ObjectDiff, mine *manifest.Object) (bool, error) {
	o.Desired, o.NormalizedLive, o.Summary, o.Predicted = nil, nil, nil, nil
	if mine == nil {
		o.Status, o.Summary = "OutOfSync", ref("not among the local manifests")
		return true, nil
	}
	o.Summary = ref("local manifest")
	wish := mine.DeepCopy()
	if ns := deref(o.Namespace); ns != "" {
		wish.SetNamespace(ns)
	}
	text, err := manifest.Canonical(wish)
	if err != nil {
		return false, err
	}
	desired := client.AnyObject(text)
	o.Desired = &desired
	if o.Live == nil {
		o.Summary = ref("not in the cluster")
		return true, nil
	}
	live, err := manifest.FromCanonical(*o.Live)
	if err != nil {
		return false, err
	}
	slim, err := manifest.Canonical(&manifest.Object{Object: restricted(live.Object, wish.Object).(map[string]any)})
	if err != nil {
		return false, err
	}
	normal := client.AnyObject(slim)
	o.NormalizedLive = &normal
	return !bytes.Equal(slim, text), nil
}

// restricted gives of a live value what a wish speaks of. Items of lists are
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

// localManifests reads a file, all files of a folder, or the input.
func (a *app) localManifests(from string) ([]*manifest.Object, error) {
	var out []*manifest.Object
	add := func(name string, data []byte) error {
		objects, err := manifest.Parse(name, data, manifest.Limits{})
		if err != nil {
			return usageError{err}
		}
		for _, o := range objects {
			if err := manifest.Normalize(o); err != nil {
				return usageError{err}
			}
		}
		out = append(out, objects...)
		return nil
	}
	if from == "-" {
		data, err := io.ReadAll(a.streams.In)
		if err != nil {
			return nil, fmt.Errorf("read the input: %w", err)
		}
		err = add("input.yaml", data)
		return out, err
	}
	err := filepath.WalkDir(from, func(path string, e os.DirEntry, err error) error {
		if err != nil {
			return usageError{err}
		}
		ext := strings.ToLower(filepath.Ext(path))
		if e.IsDir() || (path != from && ext != ".yaml" && ext != ".yml" && ext != ".json") {
			return nil
		}
		data, err := os.ReadFile(path) //nolint:gosec // the user names the files
		if err != nil {
			return usageError{err}
		}
		return add(path, data)
	})
	return out, err
}
