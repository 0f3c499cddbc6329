package manifest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/capstan-cd/capstan/shared/fault"
)

// Canonical is the canonical text of an object: JSON with sorted keys, no
// spaces, and numbers in their shortest exact form. Equal objects have equal
// text.
func Canonical(o *Object) ([]byte, error) {
	out, err := AppendCanonical(make([]byte, 0, 1024), o.Object)
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", objectName(o), err)
	}
	return out, nil
}

// FromCanonical reads what Canonical wrote. It accepts any JSON object; whole
// numbers become int64, others float64.
func FromCanonical(data []byte) (*Object, error) {
	var m map[string]any
	if err := utiljson.Unmarshal(data, &m); err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "a stored object is not JSON")
	}
	if m == nil {
		return nil, fault.New(fault.Invalid, "a stored object is empty")
	}
	return &Object{Object: m}, nil
}

// AppendCanonical appends the canonical text of one value made of maps, lists,
// strings, numbers, booleans and nil.
func AppendCanonical(dst []byte, v any) ([]byte, error) {
	switch v := v.(type) {
	case map[string]any:
		return appendMap(dst, v)
	case []any:
		dst = append(dst, '[')
		var err error
		for i, e := range v {
			if i > 0 {
				dst = append(dst, ',')
			}
			if dst, err = AppendCanonical(dst, e); err != nil {
				return nil, err
			}
		}
		return append(dst, ']'), nil
	case string:
		return appendString(dst, v), nil
	case nil:
		return append(dst, "null"...), nil
	case bool:
		return strconv.AppendBool(dst, v), nil
	case int64:
		return strconv.AppendInt(dst, v, 10), nil
	case float64:
		return appendFloat(dst, v)
	default:
		return appendOther(dst, v)
	}
}

func appendMap(dst []byte, m map[string]any) ([]byte, error) {
	var few [16]string
	keys := few[:0]
	keys = slices.AppendSeq(keys, maps.Keys(m))
	slices.Sort(keys)
	dst = append(dst, '{')
	var err error
	for i, k := range keys {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(appendString(dst, k), ':')
		if dst, err = AppendCanonical(dst, m[k]); err != nil {
			return nil, err
		}
	}
	return append(dst, '}'), nil
}

func appendFloat(dst []byte, f float64) ([]byte, error) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return nil, fault.New(fault.Invalid, "a number is infinite or not a number")
	}
	if f == math.Trunc(f) && math.Abs(f) < 1<<63 {
		return strconv.AppendInt(dst, int64(f), 10), nil
	}
	text, err := json.Marshal(f)
	if err != nil {
		return nil, fmt.Errorf("write number: %w", err)
	}
	return append(dst, text...), nil
}

// appendOther accepts the types that Go code sometimes puts into objects.
func appendOther(dst []byte, v any) ([]byte, error) {
	switch v := v.(type) {
	case int:
		return strconv.AppendInt(dst, int64(v), 10), nil
	case int32:
		return strconv.AppendInt(dst, int64(v), 10), nil
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return strconv.AppendInt(dst, n, 10), nil
		}
		f, err := v.Float64()
		if err != nil {
			return nil, fault.New(fault.Invalid, "%q is not a number", v.String())
		}
		return appendFloat(dst, f)
	case map[string]string:
		m := make(map[string]any, len(v))
		for k, s := range v {
			m[k] = s
		}
		return appendMap(dst, m)
	case []string:
		l := make([]any, len(v))
		for i, s := range v {
			l[i] = s
		}
		return AppendCanonical(dst, l)
	default:
		return nil, fault.New(fault.Internal, "an object contains a value of type %T", v)
	}
}

func appendString(dst []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			return appendEscaped(dst, s)
		}
	}
	dst = append(dst, '"')
	dst = append(dst, s...)
	return append(dst, '"')
}

func appendEscaped(dst []byte, s string) []byte {
	buf := bytes.NewBuffer(dst)
	enc := json.NewEncoder(buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		return strconv.AppendQuote(dst, s) // encoding/json accepts every string; never reached
	}
	out := buf.Bytes()
	return out[:len(out)-1] // without the encoder's newline
}
