package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/capstan-cd/capstan/shared/fault"
)

// json reads a file that holds exactly one JSON object (DIR-05).
func (p *parser) json(data []byte) error {
	if !utf8.Valid(data) {
		return p.fail(fault.Invalid, 0, "not JSON: the text is not UTF-8")
	}
	r := jsonReader{p: p, data: data, dec: json.NewDecoder(bytes.NewReader(data))}
	r.dec.UseNumber()
	v, err := r.value(0)
	if errors.Is(err, io.EOF) && len(bytes.TrimSpace(data)) == 0 {
		return nil
	}
	if err != nil {
		if !p.limits.Strict && !namesObject(data) && fault.KindOf(err) != fault.Exceeded {
			return nil
		}
		return err
	}
	if _, err := r.dec.Token(); !errors.Is(err, io.EOF) {
		return p.fail(fault.Invalid, r.line(), "a JSON file has one object, and more follows")
	}
	m, ok := v.(map[string]any)
	if !ok || !(p.limits.Strict || hasObjectKey(m)) {
		if p.limits.Strict || namesObject(data) {
			return p.fail(fault.Invalid, 1, "not a Kubernetes object")
		}
		return nil
	}
	p.recordJSONOrder(m, data)
	return p.add(m, func(...string) int { return 0 }, 0)
}

// retryJSON reads a YAML stream that could not be parsed and looks like JSON:
// JSON writes characters beyond 16 bits as two escapes, which YAML does not
// accept.
func (p *parser) retryJSON(data []byte) bool {
	q := &parser{file: p.file, limits: p.limits}
	if q.json(data) != nil {
		return false
	}
	p.objects = q.objects
	return true
}

func jsonText(data []byte) bool {
	return bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte("{"))
}

func hasObjectKey(m map[string]any) bool {
	for _, k := range [...]string{"apiVersion", "kind", "metadata"} {
		if _, ok := m[k]; ok {
			return true
		}
	}
	return false
}

// A jsonReader reads JSON token by token, because otherwise duplicate keys are
// not detected.
type jsonReader struct {
	p    *parser
	data []byte
	dec  *json.Decoder
}

func (r jsonReader) line() int {
	return 1 + bytes.Count(r.data[:min(r.dec.InputOffset(), int64(len(r.data)))], []byte("\n"))
}

func (r jsonReader) value(depth int) (any, error) {
	if depth > r.p.limits.MaxDepth {
		return nil, r.p.fail(fault.Exceeded, r.line(), "nested more than %d deep", r.p.limits.MaxDepth)
	}
	tok, err := r.dec.Token()
	if err != nil {
		return nil, r.wrong(err)
	}
	switch t := tok.(type) {
	case json.Delim:
		if t == '{' {
			return r.object(depth)
		}
		return r.array(depth)
	case json.Number:
		v, err := jsonNumber(t)
		if err != nil {
			return nil, r.p.fail(fault.Invalid, r.line(), "%s", err.Error())
		}
		return v, nil
	default:
		return tok, nil
	}
}

func (r jsonReader) object(depth int) (any, error) {
	out := make(map[string]any)
	for r.dec.More() {
		tok, err := r.dec.Token()
		if err != nil {
			return nil, r.wrong(err)
		}
		key, ok := tok.(string)
		if !ok {
			return nil, r.p.fail(fault.Invalid, r.line(), "not JSON: a key is not text")
		}
		if _, twice := out[key]; twice && !r.p.limits.LastKeyWins {
			return nil, r.p.fail(fault.Invalid, r.line(), "key %q is given twice in the same map", key)
		}
		if out[key], err = r.value(depth + 1); err != nil {
			return nil, err
		}
	}
	if _, err := r.dec.Token(); err != nil {
		return nil, r.wrong(err)
	}
	return out, nil
}

func (r jsonReader) array(depth int) (any, error) {
	out := []any{}
	for r.dec.More() {
		v, err := r.value(depth + 1)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	if _, err := r.dec.Token(); err != nil {
		return nil, r.wrong(err)
	}
	return out, nil
}

func (r jsonReader) wrong(err error) error {
	if errors.Is(err, io.EOF) && len(bytes.TrimSpace(r.data)) == 0 {
		return io.EOF
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return r.p.fail(fault.Invalid, r.line(), "not JSON: %s", err.Error())
}

// jsonNumber follows the rule for YAML: int64, else an exact number or a
// fraction.
func jsonNumber(n json.Number) (any, error) {
	if i, err := n.Int64(); err == nil {
		return i, nil
	}
	f, err := n.Float64()
	if err != nil {
		return nil, fault.New(fault.Invalid, "a number is out of range; put it in quotes if it is text")
	}
	if strings.ContainsAny(n.String(), ".eE") {
		return number(f)
	}
	return bigNumber(n.String())
}
