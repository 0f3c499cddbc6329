package lua

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	glua "github.com/yuin/gopher-lua"

	"github.com/capstan-cd/capstan/shared/fault"
)

// maxDepth is how deep values may nest on their way in and out.
const maxDepth = 200

// fromGo converts a value of an object for the script. Lua has no null: in a
// map the entry is missing, in a list it is false, so that the indexes of the
// others stay.
func (r *running) fromGo(v any, depth int) (glua.LValue, error) {
	if depth > maxDepth {
		return nil, fault.New(fault.Exceeded, "the object nests deeper than %d levels", maxDepth)
	}
	switch v := v.(type) {
	case nil:
		return glua.LNil, nil
	case bool:
		return glua.LBool(v), nil
	case string:
		return glua.LString(v), nil
	case []any:
		return r.fromList(v, depth)
	case map[string]any:
		return r.fromMap(v, depth)
	}
	n, ok := number(v)
	if !ok {
		return nil, fmt.Errorf("value of type %T in an object", v)
	}
	return n, nil
}

func (r *running) fromList(list []any, depth int) (glua.LValue, error) {
	t := r.l.CreateTable(len(list), 0)
	r.origins[t] = list
	for _, e := range list {
		x, err := r.fromGo(e, depth+1)
		if err != nil {
			return nil, err
		}
		if e == nil {
			x = glua.LFalse
		}
		t.Append(x)
	}
	return t, nil
}

func (r *running) fromMap(m map[string]any, depth int) (glua.LValue, error) {
	t := r.l.CreateTable(0, len(m))
	r.origins[t] = m
	for k, e := range m {
		x, err := r.fromGo(e, depth+1)
		if err != nil {
			return nil, err
		}
		if x != glua.LNil {
			t.RawSetString(k, x)
		}
	}
	return t, nil
}

func number(v any) (glua.LNumber, bool) {
	switch n := v.(type) {
	case int64:
		return glua.LNumber(n), true
	case float64:
		return glua.LNumber(n), true
	case int:
		return glua.LNumber(n), true
	case int32:
		return glua.LNumber(n), true
	case json.Number:
		f, err := n.Float64()
		return glua.LNumber(f), err == nil
	}
	return 0, false
}

// toGo converts a value of the script. Origin is the value at the same path of
// the object, or nil: a value that the script did not change is returned
// unchanged.
func (r *running) toGo(v glua.LValue, origin any, depth int) (any, error) {
	if err := r.b.spend(1, entryBytes); err != nil {
		return nil, err
	}
	if depth > maxDepth {
		return nil, wrong("a value that nests deeper than %d levels, or contains itself", maxDepth)
	}
	switch v := v.(type) {
	case *glua.LNilType:
		return nil, nil
	case glua.LBool:
		return bool(v), nil
	case glua.LString:
		if !utf8.ValidString(string(v)) {
			return nil, wrong("a text that is not UTF-8")
		}
		if err := r.b.text(len(v)); err != nil {
			return nil, err
		}
		return string(v), nil
	case glua.LNumber:
		return backNumber(v, origin)
	case *glua.LTable:
		if own, ok := r.origins[v]; ok {
			origin = own
		}
		return r.backTable(v, origin, depth)
	}
	return nil, wrong("a %s, which is no value", v.Type())
}

// backNumber returns the number of the origin if it is the same, else a whole
// number as an integer.
func backNumber(v glua.LNumber, origin any) (any, error) {
	if was, ok := number(origin); ok && was == v {
		return origin, nil
	}
	f := float64(v)
	switch {
	case math.IsNaN(f) || math.IsInf(f, 0):
		return nil, wrong("a number that is none (%v)", f)
	case f == math.Trunc(f) && math.Abs(f) < 1<<63:
		return int64(f), nil
	}
	return f, nil
}

// backTable distinguishes lists from maps by their keys. An empty table has the
// type of its origin, or of the value at its path; a new one is a map.
func (r *running) backTable(t *glua.LTable, origin any, depth int) (any, error) {
	first, _ := t.Next(glua.LNil)
	if first == glua.LNil {
		if _, list := origin.([]any); list {
			return []any{}, nil
		}
		return map[string]any{}, nil
	}
	if first.Type() == glua.LTNumber {
		was, _ := origin.([]any)
		return r.backList(t, was, depth)
	}
	was, _ := origin.(map[string]any)
	return r.backMap(t, was, depth)
}

func (r *running) backList(t *glua.LTable, was []any, depth int) (any, error) {
	n, entries := t.Len(), 0
	for k, _ := t.Next(glua.LNil); k != glua.LNil; k, _ = t.Next(k) {
		if k.Type() != glua.LTNumber {
			return nil, wrong("a table that is neither a list nor a map: it has numbers and names as keys")
		}
		if err := r.b.spend(1, 0); err != nil {
			return nil, err
		}
		entries++
	}
	if entries != n {
		return nil, wrong("a list with gaps")
	}
	out := make([]any, 0, n)
	for i := range n {
		var origin any
		if i < len(was) {
			origin = was[i]
		}
		e := t.RawGetInt(i + 1)
		if e == glua.LFalse && i < len(was) && was[i] == nil {
			out = append(out, nil)
			continue
		}
		x, err := r.toGo(e, origin, depth+1)
		if err != nil {
			return nil, err
		}
		out = append(out, x)
	}
	return out, nil
}

func (r *running) backMap(t *glua.LTable, was map[string]any, depth int) (any, error) {
	out := map[string]any{}
	for k, v := t.Next(glua.LNil); k != glua.LNil; k, v = t.Next(k) {
		name, ok := k.(glua.LString)
		if !ok {
			return nil, wrong("a table that is neither a list nor a map: it has names and a %s as keys", k.Type())
		}
		x, err := r.toGo(v, was[string(name)], depth+1)
		if err != nil {
			return nil, err
		}
		out[strings.ToValidUTF8(string(name), "?")] = x
	}
	for k, v := range was {
		if _, ok := out[k]; !ok && v == nil {
			out[k] = nil
		}
	}
	return out, nil
}
