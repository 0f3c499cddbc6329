// Package jsonnet evaluates Jsonnet files of a directory (DIR-09). Imports are
// read from the source's tree through render.Files and from nowhere else. It
// runs in a worker, whose limits end what does not end by itself.
package jsonnet

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"path"
	"strings"

	"github.com/google/go-jsonnet"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/render"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/manifest"
)

const (
	maxStack    = 500 // calls within each other, as the jsonnet command has it
	maxImports  = 10_000
	importLimit = 4 << 10 // bytes of a path that is imported
)

// An Evaluator evaluates the files of one source, with the same variables.
type Evaluator struct {
	job      render.Job
	settings hub.JsonnetSource
	libs     []string
}

// New prepares the evaluation of a source's files. Values of variables and
// arguments may contain the build environment.
func New(ctx context.Context, job render.Job, settings hub.JsonnetSource) (*Evaluator, error) {
	e := &Evaluator{job: job, libs: []string{job.Dir}}
	for _, written := range settings.Libs {
		dir, err := render.Within(".", written)
		if err != nil {
			return nil, fault.With(err, "directory.jsonnet.libs", "")
		}
		e.libs = append(e.libs, dir)
	}
	var err error
	if e.settings.ExtVars, err = substitute(ctx, job, settings.ExtVars); err != nil {
		return nil, err
	}
	if e.settings.TLAs, err = substitute(ctx, job, settings.TLAs); err != nil {
		return nil, err
	}
	return e, nil
}

func substitute(ctx context.Context, job render.Job, vars []hub.JsonnetVar) ([]hub.JsonnetVar, error) {
	out := make([]hub.JsonnetVar, len(vars))
	for i, v := range vars {
		value, err := job.Substitute(ctx, v.Value)
		if err != nil {
			return nil, err
		}
		out[i] = hub.JsonnetVar{Name: v.Name, Value: value, Code: v.Code}
	}
	return out, nil
}

// Evaluate returns the objects that a file makes: one, or those of a list.
func (e *Evaluator) Evaluate(ctx context.Context, name string, text []byte) ([]*manifest.Object, error) {
	in := &importer{ctx: ctx, files: e.job.Files, libs: e.libs, known: map[string]jsonnet.Contents{name: jsonnet.MakeContentsRaw(text)}}
	vm := e.machine(in)
	made, err := vm.EvaluateFile(name) // a snippet's name would not be known to its imports
	if in.failed != nil {
		return nil, in.failed
	}
	if err != nil {
		return nil, fault.With(fault.Wrap(fault.Invalid, err, "the Jsonnet cannot be evaluated: %s", explain(err)), name, "")
	}
	return e.objects(name, []byte(made))
}

func (e *Evaluator) machine(in *importer) *jsonnet.VM {
	vm := jsonnet.MakeVM()
	vm.MaxStack = maxStack
	vm.SetTraceOut(io.Discard)
	vm.Importer(in)
	for _, v := range e.settings.ExtVars {
		if v.Code {
			vm.ExtCode(v.Name, v.Value)
		} else {
			vm.ExtVar(v.Name, v.Value)
		}
	}
	for _, v := range e.settings.TLAs {
		if v.Code {
			vm.TLACode(v.Name, v.Value)
		} else {
			vm.TLAVar(v.Name, v.Value)
		}
	}
	return vm
}

// explain shortens an error of the evaluation, and keeps its file and line.
func explain(err error) string {
	text := strings.TrimSpace(strings.ReplaceAll(err.Error(), "\t", " "))
	lines := strings.Split(text, "\n")
	const most = 6
	if len(lines) > most {
		lines = append(lines[:most], "…")
	}
	return strings.Join(lines, "; ")
}

// objects reads what an evaluation has made.
func (e *Evaluator) objects(name string, made []byte) ([]*manifest.Object, error) {
	limits := e.job.Limits
	if int64(len(made)) > limits.OutputBytes {
		return nil, fault.With(fault.New(fault.Exceeded, "the Jsonnet makes more than %d bytes", limits.OutputBytes), name, "")
	}
	items := []json.RawMessage{made}
	if bytes.HasPrefix(bytes.TrimSpace(made), []byte("[")) {
		items = nil
		if err := json.Unmarshal(made, &items); err != nil {
			return nil, fault.With(fault.Wrap(fault.Invalid, err, "the Jsonnet makes no list of objects: %s", err), name, "")
		}
	}
	if len(items) > limits.Objects {
		return nil, fault.With(fault.New(fault.Exceeded, "the Jsonnet makes %d objects, more than the limit of %d", len(items), limits.Objects), name, "split the application")
	}
	var out []*manifest.Object
	for i, item := range items {
		found, err := manifest.Parse(name, item, manifest.Limits{MaxBytes: limits.OutputBytes, MaxDocs: limits.Objects, MaxDepth: limits.Depth})
		if err != nil {
			return nil, err
		}
		if len(found) == 0 && !isList(item) {
			return nil, fault.With(fault.New(fault.Invalid, "item %d of what the Jsonnet makes is no Kubernetes object", i+1), name,
				"make one object or a list of objects, each with apiVersion, kind and metadata; a library has the extension .libsonnet")
		}
		out = append(out, found...)
	}
	return out, nil
}

// isList reports whether an object of the kind List is empty, which is no error.
func isList(item []byte) bool {
	var head struct {
		Kind string `json:"kind"`
	}
	return json.Unmarshal(item, &head) == nil && strings.HasSuffix(head.Kind, "List")
}

// An importer reads what a file imports: beside the file, then in the
// libraries, the last one first.
type importer struct {
	ctx    context.Context //nolint:containedctx // the library's interface has no place for it; one evaluation long
	files  render.Files
	libs   []string
	known  map[string]jsonnet.Contents
	failed error // of the hub, which ends the render unchanged
}

// Import returns the contents of a path and the name that it was found under.
func (i *importer) Import(from, written string) (jsonnet.Contents, string, error) {
	if i.failed != nil {
		return jsonnet.Contents{}, "", i.failed
	}
	if len(written) > importLimit {
		return jsonnet.Contents{}, "", fault.New(fault.Invalid, "the path of an import has more than %d bytes", importLimit)
	}
	dirs := []string{path.Dir(from)}
	for n := len(i.libs) - 1; n >= 0; n-- {
		dirs = append(dirs, i.libs[n])
	}
	if path.IsAbs(written) {
		dirs = dirs[:1] // it is relative to the root of the repository
	}
	for _, dir := range dirs {
		name, err := render.Within(dir, written)
		if err != nil {
			return jsonnet.Contents{}, "", err
		}
		found, ok, err := i.read(name)
		if err != nil || ok {
			return found, name, err
		}
	}
	return jsonnet.Contents{}, "", fault.New(fault.Invalid, "there is no file %q beside %s or in directory.jsonnet.libs", written, from)
}

func (i *importer) read(name string) (jsonnet.Contents, bool, error) {
	if c, ok := i.known[name]; ok {
		return c, true, nil
	}
	if len(i.known) >= maxImports {
		return jsonnet.Contents{}, false, fault.New(fault.Exceeded, "more than %d files are imported", maxImports)
	}
	kind, err := i.files.Kind(i.ctx, name)
	if err != nil || kind != hub.InputFile {
		i.failed = err
		return jsonnet.Contents{}, false, err
	}
	files, err := i.files.Read(i.ctx, name)
	if err != nil || !files[0].Found {
		i.failed = err
		return jsonnet.Contents{}, false, err
	}
	c := jsonnet.MakeContentsRaw(files[0].Data)
	i.known[name] = c
	return c, true, nil
}
