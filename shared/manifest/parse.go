package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/yamltext"
)

// Limits bound what Parse reads. A zero field means its default. Malicious text
// can need several hundred times its size in memory while it is parsed, so a
// process without limits of its own should set MaxBytes accordingly.
type Limits struct {
	MaxBytes          int64 // of one text; default 10 MiB
	MaxDocs           int   // documents in one text, and objects including the items of lists; default 20,000
	MaxDepth          int   // of nesting; default 256
	MaxAliasExpansion int   // values that aliases may add in one text; default 50,000

	// LastKeyWins uses the last value of a duplicate key, as Helm and kubectl
	// do, instead of refusing the map.
	LastKeyWins bool

	// Strict refuses documents that are not Kubernetes objects, and invalid
	// text of any kind. It is for the output of template engines. Without it,
	// documents without apiVersion, kind and metadata are skipped (DIR-06).
	Strict bool

	// JSON parses the text as one JSON object, whatever the file name.
	JSON bool
}

func (l Limits) withDefaults() Limits {
	if l.MaxBytes <= 0 {
		l.MaxBytes = 10 << 20
	}
	if l.MaxDocs <= 0 {
		l.MaxDocs = 20_000
	}
	if l.MaxDepth <= 0 {
		l.MaxDepth = 256
	}
	if l.MaxAliasExpansion <= 0 {
		l.MaxAliasExpansion = 50_000
	}
	return l
}

// Parse reads all Kubernetes objects of one file: a stream of YAML documents,
// or, for a name that ends in .json, one JSON object (DIR-05). Lists are
// replaced by their items. Scalars mean what they mean to kubectl (YAML 1.1:
// "on" is a boolean), with one difference: keys given twice are an error unless
// LastKeyWins is set. Whole numbers become int64, others float64; a whole
// number that neither represents exactly is an error. Errors name file,
// document and line and have kind Invalid, or Exceeded if a limit was exceeded;
// they never quote values.
func Parse(file string, data []byte, l Limits) ([]*Object, error) {
	l = l.withDefaults()
	if int64(len(data)) > l.MaxBytes {
		return nil, fault.With(fault.New(fault.Exceeded, "%d bytes are over the limit of %d", len(data), l.MaxBytes), file, "")
	}
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	p := &parser{file: file, limits: l}
	var err error
	if l.JSON || strings.HasSuffix(file, ".json") {
		err = p.json(data)
	} else {
		err = p.stream(data)
	}
	if err != nil {
		return nil, err
	}
	return p.objects, nil
}

// Lines returns, for each object that Parse finds in a YAML stream, a function
// that returns the line of a field: its path, with items of lists by their
// index. A missing field has the line of the nearest one above it, and an empty
// path that of the object. A text that cannot be read has no lines.
func Lines(data []byte, l Limits) []func(path ...string) int {
	p := &parser{limits: l.withDefaults(), placed: true}
	if p.stream(bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))) != nil {
		return nil
	}
	return p.lines
}

// ParseDocuments is Parse for a text that was split into its documents by
// rules other than YAML's. Lines in errors count from the start of a document.
func ParseDocuments(file string, docs []string, l Limits) ([]*Object, error) {
	l = l.withDefaults()
	p := &parser{file: file, limits: l}
	var size int64
	for i, doc := range docs {
		p.before = i
		if size += int64(len(doc)); size > l.MaxBytes {
			return nil, fault.With(fault.New(fault.Exceeded, "%d bytes are over the limit of %d", size, l.MaxBytes), file, "")
		}
		if err := p.stream([]byte(doc)); err != nil {
			return nil, err
		}
	}
	return p.objects, nil
}

// A parser reads one text.
type parser struct {
	file    string
	limits  Limits
	objects []*Object
	before  int // documents of the text before the stream being read
	doc     int // number of the document being read, from 1

	placed bool // keep the lines of objects
	lines  []func(path ...string) int

	expanded      int   // values that aliases have added so far
	expandedBytes int64 // and their text
}

// stream reads YAML documents one after another.
func (p *parser) stream(data []byte) error {
	docs, err := p.documents(data)
	if err != nil {
		if jsonText(data) && p.retryJSON(data) {
			return nil
		}
		if !p.limits.Strict && fault.KindOf(err) != fault.Exceeded && !namesObject(data) {
			return nil // invalid, and not a manifest at all
		}
		return err
	}
	for i, doc := range docs {
		p.doc = p.before + i + 1
		if err := p.document(doc); err != nil {
			return err
		}
	}
	return nil
}

func (p *parser) documents(data []byte) (docs []*yaml.Node, err error) {
	defer func() {
		if r := recover(); r != nil { // the library panics on some malicious texts
			docs, err = nil, p.fail(fault.Invalid, 0, "not YAML: %v", r)
		}
	}()
	dec := yaml.NewDecoder(bytes.NewReader(data))
	for {
		p.doc = p.before + len(docs) + 1
		var n yaml.Node
		err := dec.Decode(&n)
		if errors.Is(err, io.EOF) {
			return docs, nil
		}
		if err != nil {
			return nil, p.notYAML(data, err)
		}
		if p.before+len(docs) == p.limits.MaxDocs {
			return nil, p.fail(fault.Exceeded, n.Line, "more than %d documents", p.limits.MaxDocs)
		}
		if len(n.Content) == 1 {
			docs = append(docs, n.Content[0])
		}
	}
}

// document converts one document to objects.
func (p *parser) document(n *yaml.Node) error {
	if n.Kind != yaml.MappingNode {
		if p.limits.Strict && !emptyNode(n) {
			return p.fail(fault.Invalid, n.Line, "not a Kubernetes object but %s", shape(n))
		}
		return nil
	}
	if !p.limits.Strict && !keysNameObject(n) {
		return nil
	}
	v, err := p.value(n, 0, nil)
	if err != nil {
		return err
	}
	m, ok := v.(map[string]any)
	if !ok {
		return p.fail(fault.Invalid, n.Line, "not a Kubernetes object")
	}
	if len(m) == 0 {
		return nil
	}
	RecordKeyOrder(&Object{Object: m}, n)
	return p.add(m, func(path ...string) int { return lineOf(n, path) }, 0)
}

// add checks one object and stores it; a list is replaced by its items. line
// finds the line of a field for messages.
func (p *parser) add(m map[string]any, line func(path ...string) int, depth int) error {
	if items, ok := listItems(m); ok {
		return p.addItems(m, items, line, depth)
	}
	if err := p.check(m, line); err != nil {
		return err
	}
	if len(p.objects) == p.limits.MaxDocs {
		return p.fail(fault.Exceeded, line(), "more than %d objects", p.limits.MaxDocs)
	}
	p.objects = append(p.objects, &Object{Object: m})
	if p.placed {
		p.lines = append(p.lines, line)
	}
	return nil
}

// addItems adds the items of a list. Items of a typed list may omit their kind.
func (p *parser) addItems(list map[string]any, items []any, line func(path ...string) int, depth int) error {
	if depth >= p.limits.MaxDepth {
		return p.fail(fault.Exceeded, line(), "lists are nested more than %d deep", p.limits.MaxDepth)
	}
	kind := strings.TrimSuffix(text(list["kind"]), "List")
	for i, item := range items {
		at := func(path ...string) int { return line(append([]string{"items", fmt.Sprint(i)}, path...)...) }
		m, ok := item.(map[string]any)
		if !ok {
			return p.fail(fault.Invalid, at(), "item %d of %s is not an object", i, text(list["kind"]))
		}
		if kind != "" && m["kind"] == nil && m["apiVersion"] == nil {
			m["kind"], m["apiVersion"] = kind, list["apiVersion"]
		}
		if err := p.add(m, at, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// listItems reports whether m is a list, and returns its items. A list has a
// kind that ends in "List", items, and no name of its own.
func listItems(m map[string]any) ([]any, bool) {
	if !strings.HasSuffix(text(m["kind"]), "List") {
		return nil, false
	}
	raw, has := m["items"]
	items, isList := raw.([]any)
	if !has || (raw != nil && !isList) {
		return nil, false
	}
	if meta, ok := m["metadata"].(map[string]any); ok && text(meta["name"]) != "" {
		return nil, false
	}
	return items, true
}

// check refuses objects that every API server would refuse, or that would
// confuse our own code.
func (p *parser) check(m map[string]any, line func(path ...string) int) error {
	if err := p.checkReadable(m, line); err != nil {
		return err
	}
	for _, field := range [...]string{"apiVersion", "kind"} {
		if s, ok := m[field].(string); !ok || s == "" || strings.TrimSpace(s) != s {
			return p.fail(fault.Invalid, line(field), "%s is missing or not text", field)
		}
	}
	if strings.Count(text(m["apiVersion"]), "/") > 1 || strings.Contains(text(m["kind"]), "/") {
		return p.fail(fault.Invalid, line("apiVersion"), "apiVersion %q or kind %q is malformed", m["apiVersion"], m["kind"])
	}
	who := text(m["kind"])
	meta, ok := m["metadata"].(map[string]any)
	if !ok {
		return p.fail(fault.Invalid, line("metadata"), "%s: metadata is missing or not a map", who)
	}
	if err := p.checkNames(who, meta, line); err != nil {
		return err
	}
	for _, field := range [...]string{"labels", "annotations"} {
		if err := p.checkTexts(who+" "+text(meta["name"]), field, meta, line); err != nil {
			return err
		}
	}
	return nil
}

func (p *parser) checkNames(who string, meta map[string]any, line func(path ...string) int) error {
	for _, field := range [...]string{"name", "generateName", "namespace"} {
		raw, has := meta[field]
		if !has || raw == nil {
			delete(meta, field)
			continue
		}
		s, ok := raw.(string)
		if !ok {
			return p.fail(fault.Invalid, line("metadata", field), "%s: metadata.%s is not text; put it in quotes", who, field)
		}
		if strings.ContainsAny(s, "/%\x00\n") {
			return p.fail(fault.Invalid, line("metadata", field), "%s: metadata.%s %q has a character that no name may have", who, field, s)
		}
	}
	if text(meta["name"]) == "" && text(meta["generateName"]) == "" {
		return p.fail(fault.Invalid, line("metadata"), "%s: metadata.name is missing", who)
	}
	return nil
}

func (p *parser) checkTexts(who, field string, meta map[string]any, line func(path ...string) int) error {
	raw, has := meta[field]
	if !has || raw == nil {
		delete(meta, field)
		return nil
	}
	m, ok := raw.(map[string]any)
	if !ok {
		return p.fail(fault.Invalid, line("metadata", field), "%s: metadata.%s is not a map", who, field)
	}
	for k, v := range m {
		if v == nil {
			m[k] = ""
			continue
		}
		if _, ok := v.(string); !ok {
			return p.fail(fault.Invalid, line("metadata", field, k), "%s: metadata.%s %q is not text; put the value in quotes", who, field, k)
		}
	}
	return nil
}

// fail makes an error that says where: file, document, line.
func (p *parser) fail(kind fault.Kind, line int, format string, args ...any) error {
	where := p.file
	if p.doc > 0 {
		where += fmt.Sprintf(", document %d", p.doc)
	}
	if line > 0 {
		where += fmt.Sprintf(", line %d", line)
	}
	return &fault.Error{Kind: kind, Object: where, Cause: fmt.Sprintf(format, args...), Line: line}
}

// notYAML converts an error of the library to one with a line.
func (p *parser) notYAML(data []byte, err error) error {
	line, cause := yamltext.Place(data, err)
	return p.fail(fault.Invalid, line, "not YAML: %s", cause)
}

// namesObject reports whether a text that cannot be parsed looks like a
// manifest.
func namesObject(data []byte) bool {
	for _, word := range [...]string{"apiVersion", "kind", "metadata"} {
		if bytes.Contains(data, []byte(word+":")) || bytes.Contains(data, []byte(`"`+word+`"`)) {
			return true
		}
	}
	return false
}

func keysNameObject(n *yaml.Node) bool {
	for i := 0; i+1 < len(n.Content); i += 2 {
		switch n.Content[i].Value {
		case "apiVersion", "kind", "metadata":
			return true
		case "<<":
			return true // it may come with the merge
		}
	}
	return false
}

func text(v any) string {
	s, _ := v.(string)
	return s
}
