package helm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"slices"
	"strings"
	"text/template"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chartutil"

	"github.com/capstan-cd/capstan/hub/render"
	"github.com/capstan-cd/capstan/shared/fault"
)

// maxInclude is how deep templates may include one another.
const maxInclude = 1000

// An evaluator executes the templates of one chart and its subcharts, with the
// functions and rules of Helm's engine (a test compares the two). It differs
// where it must know what a template does. It records calls of functions that
// are not repeatable, and returns keys and values of maps in order. It reads
// files of the chart on access, and counts its output.
type evaluator struct {
	ctx    context.Context //nolint:containedctx // lives for one render
	job    render.Job
	root   *loaded
	impure bool
	depth  int   // of include and tpl
	left   int64 // bytes of output
}

func newEvaluator(ctx context.Context, job render.Job, root *loaded) *evaluator {
	return &evaluator{ctx: ctx, job: job, root: root, left: job.Limits.OutputBytes}
}

// A unit is one template file and what it sees.
type unit struct {
	name   string // "web/templates/service.yaml"
	text   string
	base   string // directory of the chart's templates
	values map[string]any
}

// render returns the texts of all files that are not partials, in a stable order.
func (e *evaluator) render(c *chart.Chart, values chartutil.Values) ([]text, error) {
	var units []unit
	e.collect(c, values, &units)
	// What is nearer to the top is parsed later, so its definitions win.
	slices.SortFunc(units, func(a, b unit) int {
		if d := strings.Count(b.name, "/") - strings.Count(a.name, "/"); d != 0 {
			return d
		}
		return strings.Compare(b.name, a.name)
	})
	all := template.New("chart").Option("missingkey=zero").Funcs(e.functions())
	e.bind(all, map[string]int{})
	for _, u := range units {
		if _, err := all.New(u.name).Parse(u.text); err != nil {
			return nil, e.explain(u.name, err)
		}
	}
	var out []text
	for _, u := range units {
		if strings.HasPrefix(path.Base(u.name), "_") {
			continue
		}
		u.values["Template"] = map[string]any{"Name": u.name, "BasePath": u.base}
		made, err := e.execute(all, u.name, u.values)
		if err != nil {
			return nil, e.explain(u.name, err)
		}
		if path.Base(u.name) == "NOTES.txt" || strings.TrimSpace(made) == "" {
			continue
		}
		out = append(out, text{repoName(e.job.Dir, u.name), []byte(made)})
	}
	slices.SortStableFunc(out, func(a, b text) int { return strings.Compare(a.file, b.file) })
	return out, nil
}

// collect collects the templates of a chart and below, each with the values of
// its own chart.
func (e *evaluator) collect(c *chart.Chart, above map[string]any, units *[]unit) map[string]any {
	below := map[string]any{}
	sees := map[string]any{
		"Chart": struct {
			chart.Metadata
			IsRoot bool
		}{*c.Metadata, c.IsRoot()},
		"Files": e.files(c), "Release": above["Release"], "Capabilities": above["Capabilities"],
		"Values": chartutil.Values{}, "Subcharts": below,
	}
	if c.IsRoot() {
		sees["Values"] = above["Values"]
	} else if own, err := chartutil.Values(above).Table("Values." + c.Name()); err == nil {
		sees["Values"] = own
	}
	for _, sub := range c.Dependencies() {
		below[sub.Name()] = e.collect(sub, sees, units)
	}
	library := strings.EqualFold(c.Metadata.Type, "library")
	for _, t := range c.Templates {
		if t == nil || library && !strings.HasPrefix(path.Base(t.Name), "_") {
			continue
		}
		full := c.ChartFullPath()
		*units = append(*units, unit{
			name: path.Join(full, t.Name), text: string(t.Data), base: path.Join(full, "templates"), values: sees,
		})
	}
	return sees
}

func (e *evaluator) files(c *chart.Chart) any {
	if c == e.root.Chart && e.root.lazy {
		return &lazyFiles{ctx: e.ctx, files: e.job.Files, chart: e.root}
	}
	out := fileMap{}
	for _, f := range c.Files {
		out[f.Name] = f.Data
	}
	return out
}

// execute runs one template of a set.
func (e *evaluator) execute(t *template.Template, name string, sees any) (string, error) {
	if err := e.ctx.Err(); err != nil {
		return "", fmt.Errorf("render: %w", err)
	}
	w := &counted{owner: e}
	if err := t.ExecuteTemplate(w, name, sees); err != nil {
		return "", err
	}
	// text/template writes this for what is not there, even with missingkey=zero.
	return strings.ReplaceAll(w.String(), "<no value>", ""), nil
}

// counted is a writer that stops a template that writes without end. It stores
// its input in parts: a growing copy would need twice its size, and reach the
// limit of memory before the one of output.
type counted struct {
	owner *evaluator
	parts [][]byte
	size  int
}

var _ io.Writer = (*counted)(nil)

// largestPart of what a template writes, except for one write that is larger.
const largestPart = 1 << 20

// Write counts and stores.
func (w *counted) Write(p []byte) (int, error) {
	if w.owner.left -= int64(len(p)); w.owner.left < 0 {
		return 0, fault.New(fault.Exceeded, "the templates write more than %d bytes", w.owner.job.Limits.OutputBytes)
	}
	last := len(w.parts) - 1
	if last < 0 || cap(w.parts[last])-len(w.parts[last]) < len(p) {
		w.parts = append(w.parts, make([]byte, 0, max(len(p), min(w.size, largestPart), 256)))
		last++
	}
	w.parts[last] = append(w.parts[last], p...)
	w.size += len(p)
	return len(p), nil
}

// String is all that was written.
func (w *counted) String() string {
	var all strings.Builder
	all.Grow(w.size)
	for _, part := range w.parts {
		all.Write(part)
	}
	return all.String()
}

// bind adds the functions that execute templates of a set. open counts how
// often each one is being included.
func (e *evaluator) bind(t *template.Template, open map[string]int) {
	t.Funcs(template.FuncMap{
		"include": func(name string, sees any) (string, error) { return e.include(t, open, name, sees) },
		"tpl":     func(text string, sees any) (string, error) { return e.tpl(t, open, text, sees) },
	})
}

func (e *evaluator) include(t *template.Template, open map[string]int, name string, sees any) (string, error) {
	if open[name] > maxInclude {
		return "", fault.New(fault.Exceeded, "the template %q includes itself more than %d deep", name, maxInclude)
	}
	if e.depth++; e.depth > 4*maxInclude {
		return "", fault.New(fault.Exceeded, "templates include each other more than %d deep", 4*maxInclude)
	}
	open[name]++
	defer func() { open[name]--; e.depth-- }()
	w := &counted{owner: e}
	err := t.ExecuteTemplate(w, name, sees)
	return w.String(), err
}

// tpl executes text as a template that knows, and may add to, the definitions
// around it, without changing them for others.
func (e *evaluator) tpl(around *template.Template, open map[string]int, text string, sees any) (string, error) {
	if e.depth++; e.depth > maxInclude {
		return "", fault.New(fault.Exceeded, "tpl is nested more than %d deep", maxInclude)
	}
	defer func() { e.depth-- }()
	own, err := around.Clone()
	if err != nil {
		return "", fmt.Errorf("prepare tpl: %w", err)
	}
	own.Option("missingkey=zero") // a clone does not have it
	e.bind(own, open)
	parsed, err := own.New(around.Name()).Parse(text)
	if err != nil {
		return "", fmt.Errorf("tpl: %w", err)
	}
	return e.execute(parsed, parsed.Name(), sees)
}

// A scriptError has the message of fail or required, which is for users.
type scriptError struct{ words string }

func (s scriptError) Error() string { return s.words }

// explain turns an error of the template engine into one that names its file
// and line, and where the call chain began.
func (e *evaluator) explain(unit string, err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	text := err.Error()
	place := regexp.MustCompile(`template: ([^:\s]+):(\d+)(?::\d+)?: `)
	found := place.FindAllStringSubmatchIndex(text, -1)
	file, line := repoName(e.job.Dir, unit), ""
	cause := text
	if len(found) > 0 {
		first, last := found[0], found[len(found)-1]
		cause = text[last[1]:]
		file, line = repoName(e.job.Dir, text[last[2]:last[3]]), text[last[4]:last[5]]
		if from := repoName(e.job.Dir, text[first[2]:first[3]]); from != file {
			cause += " (included from " + from + ", line " + text[first[4]:first[5]] + ")"
		}
	}
	cause = regexp.MustCompile(`executing "[^"]*" at `).ReplaceAllString(cause, "at ")
	kind := fault.Invalid
	var words scriptError
	if errors.As(err, &words) {
		cause = words.words
	} else if known, ok := fault.As(err); ok {
		kind, cause = known.Kind, known.Cause
		if known.Object != "" {
			cause = known.Object + ": " + cause
		}
	}
	if line != "" {
		file += ", line " + line
	}
	return fault.With(fault.Wrap(kind, nil, "%s", cause), file, "")
}
