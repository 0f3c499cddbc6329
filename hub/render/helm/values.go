package helm

import (
	"context"
	"path"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/strvals"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/render"
	"github.com/capstan-cd/capstan/hub/repourl"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// collect merges all values of the source, in the order of HELM-11: value
// files, then values or valuesObject, then parameters. As in Argo CD,
// valuesObject replaces values as a whole.
func collect(ctx context.Context, job render.Job, s hub.HelmSource) (map[string]any, error) {
	out := map[string]any{}
	files, err := valueFiles(ctx, job, s)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		more, err := chartutil.ReadValues(f.data)
		if err != nil {
			return nil, fault.With(fault.Wrap(fault.Invalid, err, "the values cannot be read: %s", err), f.name, "")
		}
		if block, ok := more[manifest.EncryptedBlock].(map[string]any); ok && block["mac"] != nil {
			return nil, fault.With(fault.New(fault.Invalid, "the values are encrypted with SOPS, and the hub has no key"), f.name, secretFix)
		}
		out = merge(out, more)
	}
	inline, err := inlineValues(s)
	if err != nil {
		return nil, err
	}
	out = merge(out, inline)
	if err := setParameters(ctx, job, s, out); err != nil {
		return nil, err
	}
	return out, nil
}

func inlineValues(s hub.HelmSource) (map[string]any, error) {
	if len(s.ValuesObject) > 0 && string(s.ValuesObject) != "null" {
		v, err := plainJSON(s.ValuesObject)
		return v, fault.With(err, "helm.valuesObject", "")
	}
	v, err := chartutil.ReadValues([]byte(s.Values))
	if err != nil {
		return nil, fault.With(fault.Wrap(fault.Invalid, err, "the values cannot be read: %s", err), "helm.values", "")
	}
	return v, nil
}

// merge lays b over a; maps are merged, everything else is replaced.
func merge(a, b map[string]any) map[string]any {
	out := make(map[string]any, len(a)+len(b))
	for k, v := range a {
		out[k] = v
	}
	for k, v := range b {
		under, ok1 := out[k].(map[string]any)
		over, ok2 := v.(map[string]any)
		if ok1 && ok2 {
			v = merge(under, over)
		}
		out[k] = v
	}
	return out
}

// setParameters applies parameters in Helm's order: --set, --set-string,
// --set-file.
func setParameters(ctx context.Context, job render.Job, s hub.HelmSource, into map[string]any) error {
	for _, forced := range []bool{false, true} {
		for _, p := range s.Parameters {
			if p.ForceString != forced {
				continue
			}
			if err := setParameter(ctx, job, p, into); err != nil {
				return err
			}
		}
	}
	for _, p := range s.FileParameters {
		if err := setFileParameter(ctx, job, p, into); err != nil {
			return err
		}
	}
	return nil
}

func setParameter(ctx context.Context, job render.Job, p hub.HelmParameter, into map[string]any) error {
	value, err := job.Substitute(ctx, p.Value)
	if err != nil {
		return err
	}
	set := strvals.ParseInto
	if p.ForceString {
		set = strvals.ParseIntoString
	}
	if err := set(p.Name+"="+escape(value), into); err != nil {
		return badParameter(p.Name, err)
	}
	return nil
}

func setFileParameter(ctx context.Context, job render.Job, p hub.HelmFile, into map[string]any) error {
	found, name, err := readNamed(ctx, job, p.Path)
	if err != nil {
		return fault.With(err, "helm.fileParameters "+p.Name, "")
	}
	if !found.Found {
		return fault.With(fault.New(fault.Invalid, "there is no file %q", name), "helm.fileParameters "+p.Name, "")
	}
	content := func([]rune) (any, error) { return string(found.Data), nil }
	if err := strvals.ParseIntoFile(p.Name+"=file", into, content); err != nil {
		return badParameter(p.Name, err)
	}
	return nil
}

func badParameter(name string, err error) error {
	return fault.Wrap(fault.Invalid, err, "helm.parameters: %q cannot be set: %s", name, err)
}

// escape escapes commas in a value, so that they do not start the next one.
// Lists ({a,b}) and escaped commas are not changed.
func escape(v string) string {
	if strings.HasPrefix(v, "{") && strings.HasSuffix(v, "}") {
		return v
	}
	var b strings.Builder
	for i := range len(v) {
		if v[i] == ',' && (i == 0 || v[i-1] != '\\') {
			b.WriteByte('\\')
		}
		b.WriteByte(v[i])
	}
	return b.String()
}

type valueFile struct {
	name string
	data []byte
}

// A wanted file is one entry of helm.valueFiles, or one match of a pattern.
type wanted struct {
	files   render.Files
	name    string // in the tree
	written string
	glob    bool
	remote  bool // written is an address
}

// read returns the contents of files, or of the address.
func (w wanted) read(ctx context.Context, names []string) ([]render.File, error) {
	if !w.remote {
		return w.files.Read(ctx, names...)
	}
	f, err := w.files.Remote(ctx, w.written)
	return []render.File{f}, fault.With(err, "helm.valueFiles", "")
}

// valueFiles reads the value files in their order. A file that matches a
// pattern and is also named stays where it is named (HELM-06).
func valueFiles(ctx context.Context, job render.Job, s hub.HelmSource) ([]valueFile, error) {
	var all []wanted
	named := map[[2]any]bool{}
	for _, written := range s.ValueFiles {
		w, err := locate(ctx, job, written)
		if err != nil {
			return nil, fault.With(err, "helm.valueFiles", "")
		}
		if !w.glob && !w.remote {
			named[[2]any{w.files.Source, w.name}] = true
		}
		all = append(all, w)
	}
	var out []valueFile
	for _, w := range all {
		names, err := w.names(ctx, named, s.IgnoreMissingValueFiles)
		if err != nil {
			return nil, err
		}
		found, err := w.values(ctx, names, s.IgnoreMissingValueFiles)
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
	}
	return out, nil
}

// names returns the file that the entry names, or the files that its pattern
// matches and that no entry names.
func (w wanted) names(ctx context.Context, named map[[2]any]bool, mayMiss bool) ([]string, error) {
	if !w.glob {
		return []string{w.name}, nil
	}
	matches, err := expand(ctx, w)
	if err != nil {
		return nil, err
	}
	if len(matches) == 0 && !mayMiss {
		return nil, fault.With(fault.New(fault.Invalid, "no file matches %q", w.written), "helm.valueFiles", "correct the pattern, or set helm.ignoreMissingValueFiles")
	}
	return slices.DeleteFunc(matches, func(n string) bool { return named[[2]any{w.files.Source, n}] }), nil
}

// values reads the files of these names.
func (w wanted) values(ctx context.Context, names []string, mayMiss bool) ([]valueFile, error) {
	found, err := w.read(ctx, names)
	if err != nil {
		return nil, err
	}
	var out []valueFile
	for i, f := range found {
		if f.Found {
			out = append(out, valueFile{names[i], f.Data})
		} else if !mayMiss {
			return nil, fault.With(fault.New(fault.Invalid, "there is no file %q (written %q)", names[i], w.written), "helm.valueFiles", "correct the path, or set helm.ignoreMissingValueFiles")
		}
	}
	return out, nil
}

// locate returns the file and the source that an entry names: relative to the
// chart, absolute from the root of the repository, or "$ref/…" (SRC-11).
func locate(ctx context.Context, job render.Job, written string) (wanted, error) {
	files, rest, foreign, err := job.Foreign(written)
	if err != nil {
		return wanted{}, err
	}
	if !foreign {
		files, rest = job.Files, written
	}
	if rest, err = job.Substitute(ctx, rest); err != nil {
		return wanted{}, err
	}
	if decrypts(rest) {
		return wanted{}, fault.With(fault.New(fault.Invalid, "the address %s is one of the plugin helm-secrets, which would decrypt in the hub", repourl.Redact(rest)), "", secretFix)
	}
	if render.Remote(rest) {
		return wanted{files: job.Files, name: repourl.Redact(rest), written: written, remote: true}, nil
	}
	dir := job.Dir
	if foreign {
		dir = "."
	}
	name, err := render.Within(dir, rest)
	if err != nil {
		return wanted{}, err
	}
	w := wanted{files: files, name: name, written: written}
	if strings.ContainsAny(name, "*?[{") {
		kind, err := files.Kind(ctx, name)
		if err != nil {
			return wanted{}, err
		}
		w.glob = kind != hub.InputFile
	}
	return w, nil
}

// secretFix says how charts get secrets.
const secretFix = "write placeholders such as <path:secret/data/shop#password> into the values, which the agent resolves, or keep an encrypted Secret beside the chart"

// decrypts reports whether an address has a scheme of helm-secrets: secrets://,
// or one such as secrets+age-import://.
func decrypts(address string) bool {
	scheme, _, ok := strings.Cut(address, "://")
	return ok && (scheme == "secrets" || strings.HasPrefix(scheme, "secrets+") || scheme == "vault" || scheme == "sops")
}

// expand returns the files that match a pattern, sorted.
func expand(ctx context.Context, w wanted) ([]string, error) {
	if !doublestar.ValidatePattern(w.name) {
		return nil, fault.With(fault.New(fault.Invalid, "the pattern %q is malformed", w.written), "helm.valueFiles", "")
	}
	base, pattern := doublestar.SplitPattern(w.name)
	_, entries, err := w.files.List(ctx, base, render.Question{Recurse: true, Hidden: true})
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		if e.Kind != hub.InputDir && doublestar.MatchUnvalidated(pattern, e.Path) {
			out = append(out, path.Join(base, e.Path))
		}
	}
	slices.Sort(out)
	return out, nil
}

// readNamed reads the file that a path in the spec means.
func readNamed(ctx context.Context, job render.Job, written string) (render.File, string, error) {
	w, err := locate(ctx, job, written)
	if err != nil {
		return render.File{}, written, err
	}
	found, err := w.read(ctx, []string{w.name})
	if err != nil {
		return render.File{}, w.name, err
	}
	return found[0], w.name, nil
}
