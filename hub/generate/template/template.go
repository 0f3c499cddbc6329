// Package template fills the templates of application sets with parameters:
// "{{name}}" of the legacy form, and Go templates with the functions that Argo
// CD has. Templates and parameters are written by strangers, and a template is
// a program: its steps, its values and its output are bounded, it ends with the
// context of its run, and it reads nothing but its parameters. Package generate
// calls it.
package template

import (
	"bytes"
	"context"
	"strings"
	"text/template"
	"time"

	"github.com/capstan-cd/capstan/shared/fault"
)

// The bounds of one application. They are far above what an application can
// have in a cluster.
const (
	maxText   = 128 << 10 // bytes of one template
	maxValue  = 1 << 20   // bytes of one value, and values in it
	maxOutput = 1 << 20   // bytes of all texts of one application
	maxSteps  = 1 << 20   // calls of functions and rounds of loops of one application
	maxCause  = 400       // bytes of the text of an error
	maxDepth  = 128       // nesting of values, and of blocks in a template
)

// An Engine fills templates of one form.
type Engine struct {
	isGo    bool
	options []string
}

// New returns an engine for Go templates with options such as
// "missingkey=error", or for legacy templates, which have no options.
func New(goTemplate bool, options []string) (*Engine, error) {
	for _, o := range options {
		if !validOption(o) {
			return nil, fault.With(fault.New(fault.Invalid, "%q is no option of Go templates", shorten(o)), "",
				"use missingkey=default, missingkey=zero or missingkey=error")
		}
	}
	return &Engine{isGo: goTemplate, options: options}, nil
}

func validOption(o string) bool {
	switch o {
	case "missingkey=default", "missingkey=invalid", "missingkey=zero", "missingkey=error":
		return true
	}
	return false
}

// A Run fills templates until its context ends. It serves one goroutine.
type Run struct {
	engine *Engine
	budget *budget
	base   *template.Template
	texts  map[textKey]*program
}

type textKey struct {
	text   string
	strict bool
}

// Start begins a run, whose templates may take some time together; 0: any time
// until the context ends.
func (e *Engine) Start(ctx context.Context, most time.Duration) *Run {
	r := &Run{engine: e, budget: &budget{ended: ctx.Err, most: most}, texts: map[textKey]*program{}}
	if e.isGo {
		r.base = template.New("template").Funcs(r.budget.functions())
	}
	return r
}

// Next begins another application: its budget is a whole one.
func (r *Run) Next() { r.budget.steps, r.budget.written, r.budget.exceeded = 0, 0, nil }

// Fill fills a template. The error has kind Invalid, or Exceeded if a bound was
// exceeded or the context has ended.
func (r *Run) Fill(text string, params map[string]any) (string, error) {
	return r.fill(text, params, false)
}

// Check parses a template without filling it.
func (r *Run) Check(text string) error {
	if !strings.Contains(text, "{{") {
		return nil
	}
	if !r.engine.isGo {
		_, err := legacy(text, nil)
		return err
	}
	_, err := r.parsed(text, false)
	return err
}

// FillKnown is Fill, but returns a Go template as it is if it needs parameters
// that are not there: another generator has them.
func (r *Run) FillKnown(text string, params map[string]any) (string, error) {
	out, err := r.fill(text, params, true)
	if err != nil && r.engine.isGo && missing(err) {
		return text, nil
	}
	return out, err
}

// missing reports whether an error is that of a parameter that is not there.
func missing(err error) bool {
	s := err.Error()
	return strings.Contains(s, "map has no entry for key") || strings.Contains(s, "can't evaluate field")
}

func (r *Run) fill(text string, params map[string]any, strict bool) (string, error) {
	defer r.budget.measure()()
	if err := r.budget.step(); err != nil {
		return "", err
	}
	if !strings.Contains(text, "{{") {
		return text, r.budget.write(len(text))
	}
	if !r.engine.isGo {
		out, err := legacy(text, params)
		if err == nil {
			err = r.budget.write(len(out))
		}
		return out, err
	}
	p, err := r.parsed(text, strict)
	if err != nil {
		return "", err
	}
	return p.execute(r.budget, params)
}

func (r *Run) parsed(text string, strict bool) (*program, error) {
	key := textKey{text, strict}
	if p, ok := r.texts[key]; ok {
		return p, nil
	}
	options := r.engine.options
	if strict {
		options = append(options[:len(options):len(options)], "missingkey=error")
	}
	p, err := read(r.base, text, options)
	if err == nil {
		r.texts[key] = p
	}
	return p, err
}

// A program is a parsed Go template.
type program struct {
	tree    *template.Template
	changes bool // it has functions that change their arguments
}

// execute fills the template. What it changes of the parameters stays in a copy.
func (p *program) execute(b *budget, params map[string]any) (string, error) {
	if p.changes {
		params = Copy(params).(map[string]any)
	}
	out := &boundedWriter{budget: b}
	err := p.tree.Execute(out, params)
	switch {
	case err == nil:
		return out.String(), nil
	case b.exceeded != nil:
		return "", b.exceeded
	}
	return "", fault.New(fault.Invalid, "the template cannot be filled: %s", cause(err))
}

// cause is what text/template says of an error, without the name that all
// templates have here.
func cause(err error) string {
	s := strings.TrimPrefix(err.Error(), "template: template:")
	s = strings.ReplaceAll(s, "executing \"template\" at ", "at ")
	if len(s) > maxCause {
		s = strings.ToValidUTF8(s[:maxCause], "") + "…"
	}
	return s
}

// A boundedWriter stores what the budget allows.
type boundedWriter struct {
	bytes.Buffer
	budget *budget
}

// Write appends, or fails.
func (w *boundedWriter) Write(p []byte) (int, error) {
	if err := w.budget.write(len(p)); err != nil {
		return 0, err
	}
	return w.Buffer.Write(p)
}

func shorten(s string) string {
	if len(s) > 60 {
		return strings.ToValidUTF8(s[:60], "") + "…"
	}
	return s
}
