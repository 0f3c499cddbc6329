package manifest

import (
	"bytes"
	"errors"
	"io"

	"go.yaml.in/yaml/v3"

	"github.com/capstan-cd/capstan/shared/fault"
)

// Value reads the first document of a text that need not be a manifest: a map
// is map[string]any, a list []any, and scalars are as with Parse. An empty text
// is nil. The limits and the errors are those of Parse.
func Value(file string, data []byte, l Limits) (any, error) {
	l = l.withDefaults()
	if int64(len(data)) > l.MaxBytes {
		return nil, fault.With(fault.New(fault.Exceeded, "%d bytes are over the limit of %d", len(data), l.MaxBytes), file, "")
	}
	p := &parser{file: file, limits: l, doc: 1}
	n, err := p.first(bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")))
	if err != nil || n == nil {
		return nil, err
	}
	return p.value(n, 0, nil)
}

// first is the root of the first document; nil: there is none.
func (p *parser) first(data []byte) (root *yaml.Node, err error) {
	defer func() {
		if r := recover(); r != nil { // the library panics on some malicious texts
			root, err = nil, p.fail(fault.Invalid, 0, "not YAML: %v", r)
		}
	}()
	var n yaml.Node
	switch err := yaml.NewDecoder(bytes.NewReader(data)).Decode(&n); {
	case errors.Is(err, io.EOF):
		return nil, nil
	case err != nil:
		return nil, p.notYAML(data, err)
	}
	if len(n.Content) == 0 {
		return nil, nil
	}
	return n.Content[0], nil
}
