// Package diff shows how objects differ, and compares what is live with manifests on
// this machine. It asks no hub: objects come in, text goes out.
package diff

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
	"sigs.k8s.io/yaml"

	"github.com/capstan-cd/capstan/cli/output"
	"github.com/capstan-cd/capstan/cli/usage"
	"github.com/capstan-cd/capstan/shared/apimodel"
)

// External names the program that shows differences, as kubectl does.
const External = "KUBECTL_EXTERNAL_DIFF"

// A Viewer shows differences to people.
type Viewer struct {
	Out, Err io.Writer
	ThreeWay bool // also what was applied last
}

// Show prints one object for people: of live what the manifests speak of,
// or with a prediction all of it, against what should be.
func (v Viewer) Show(ctx context.Context, o apimodel.ObjectDiff) error {
	title := o.Kind + " " + o.Name
	if ns := o.Namespace; ns != "" {
		title = o.Kind + " " + ns + "/" + o.Name
	}
	fmt.Fprintf(v.Out, "===== %s: %s\n", title, output.Dash(o.Summary))
	if why := o.Problem; why != "" {
		fmt.Fprintln(v.Out, "an apply would be refused:", why)
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
	if program := os.Getenv(External); program != "" {
		return v.external(ctx, program, o, live, desired)
	}
	fmt.Fprint(v.Out, udiff.Unified("live", "desired", live, desired))
	if !v.ThreeWay {
		return nil
	}
	applied, err := lines(o.Applied)
	if err != nil {
		return err
	}
	fmt.Fprint(v.Out, udiff.Unified("last applied", "desired", applied, desired))
	return nil
}

// external has another program show a difference. That it ends with 1 means
// that there is one.
func (v Viewer) external(ctx context.Context, program string, o apimodel.ObjectDiff, live, desired string) error {
	dir, err := os.MkdirTemp("", "capstan-diff-")
	if err != nil {
		return fmt.Errorf("make a folder for %s: %w", External, err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	words := strings.Fields(program)
	args := words[1:]
	for _, side := range [...]struct{ name, text string }{{"live", live}, {"desired", desired}} {
		path := filepath.Join(dir, side.name+"-"+strings.ToLower(o.Kind)+".yaml")
		if err := os.WriteFile(path, []byte(side.text), 0o600); err != nil {
			return fmt.Errorf("write for %s: %w", External, err)
		}
		args = append(args, path)
	}
	run := exec.CommandContext(ctx, words[0], args...) //nolint:gosec // the user names the program
	run.Stdout, run.Stderr = v.Out, v.Err
	var ended *exec.ExitError
	if err := run.Run(); err != nil && !(errors.As(err, &ended) && ended.ExitCode() == 1) {
		return usage.Errorf("%s=%q cannot be run; name a program with two file arguments, such as diff -u", External, program)
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

// Object is a manifest on this machine.
type Object map[string]any

func (o Object) text(path ...string) string {
	var v any = map[string]any(o)
	for _, step := range path {
		m, _ := v.(map[string]any)
		v = m[step]
	}
	s, _ := v.(string)
	return s
}

func (o Object) group() string {
	group, _, ok := strings.Cut(o.text("apiVersion"), "/")
	if !ok {
		return ""
	}
	return group
}

func (o Object) is(d apimodel.ObjectDiff) bool {
	namespace := o.text("metadata", "namespace")
	return o.group() == d.Group && o.text("kind") == d.Kind && o.text("metadata", "name") == d.Name && (namespace == "" || namespace == d.Namespace)
}

// secret reports whether the values of a kind are not shown here.
func secret(group, kind string) bool { return group == "" && kind == "Secret" }

// AgainstLocal compares what is live with manifests on this machine. Secrets
// are left out.
func AgainstLocal(all []apimodel.ObjectDiff, local []Object) ([]apimodel.ObjectDiff, error) {
	var out []apimodel.ObjectDiff
	for _, d := range all {
		var mine Object
		mine, local = cutMatch(local, d)
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
		d := o.absent()
		if _, err := replaced(&d, o); err != nil {
			return nil, err
		}
		out = append(out, d)
	}
	return out, nil
}

// cutMatch takes the object that a difference is about out of the list; nil: there is
// none.
func cutMatch(local []Object, d apimodel.ObjectDiff) (Object, []Object) {
	i := slices.IndexFunc(local, func(o Object) bool { return o.is(d) })
	if i < 0 {
		return nil, local
	}
	match := local[i]
	return match, slices.Delete(local, i, i+1)
}

// absent is the difference of an object that is not live.
func (o Object) absent() apimodel.ObjectDiff {
	version := o.text("apiVersion")
	if _, after, ok := strings.Cut(version, "/"); ok {
		version = after
	}
	return apimodel.ObjectDiff{
		Group: o.group(), Version: version, Kind: o.text("kind"), Namespace: o.text("metadata", "namespace"), Name: o.text("metadata", "name"), Status: "OutOfSync",
	}
}

// replaced puts a local manifest in the place of the desired object, and says
// whether live differs from it.
func replaced(d *apimodel.ObjectDiff, mine Object) (bool, error) {
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
