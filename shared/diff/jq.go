package diff

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/itchyny/gojq"

	"github.com/capstan-cd/capstan/shared/fault"
)

// The limits of one jq expression on one object (DIFF-07), also for malicious
// expressions: functions that could build large values in few steps are
// refused.
const (
	jqText   = 4096 // bytes of the expression
	jqSteps  = 200_000
	jqPaths  = 10_000
	jqPeriod = time.Second
)

// compileJQ reads a jq expression and makes it yield the paths that it selects.
func compileJQ(text string) (*gojq.Code, error) {
	if len(text) > jqText {
		return nil, fault.New(fault.Invalid, "ignoreDifferences: a jq expression of %d bytes is over the limit of %d", len(text), jqText)
	}
	q, err := gojq.Parse(text)
	if err != nil {
		return nil, fault.New(fault.Invalid, "ignoreDifferences: %q is not a jq expression", text)
	}
	if word := forbidden(q); word != "" {
		return nil, fault.New(fault.Invalid, "ignoreDifferences: jq expression %q uses %s, which a path expression does not need and which is not allowed", text, word)
	}
	wrapped := &gojq.Query{Term: &gojq.Term{Type: gojq.TermTypeFunc, Func: &gojq.Func{Name: "path", Args: []*gojq.Query{q}}}}
	code, err := gojq.Compile(wrapped)
	if err != nil {
		return nil, fault.New(fault.Invalid, "ignoreDifferences: jq expression %q: %s", text, err.Error())
	}
	return code, nil
}

// runJQ returns the places that an expression selects in an object. Where an
// expression does not match the object, it selects nothing more.
func runJQ(code *gojq.Code, object map[string]any) ([][]any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), jqPeriod)
	defer cancel()
	steps := &stepContext{Context: ctx, left: jqSteps}
	iter := code.RunWithContext(steps, forJQ(object))
	var out [][]any
	for {
		v, ok := iter.Next()
		if !ok {
			return out, nil
		}
		if err, is := v.(error); is {
			if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errSteps) {
				return nil, fault.New(fault.Exceeded, "ignoreDifferences: a jq expression exceeded its time limit")
			}
			return out, nil // such as iterating over null
		}
		if place, is := v.([]any); is && len(place) > 0 {
			out = append(out, slices.Clone(place))
		}
		if len(out) > jqPaths {
			return nil, fault.New(fault.Exceeded, "ignoreDifferences: a jq expression selects more than %d fields", jqPaths)
		}
	}
}

var errSteps = errors.New("too many steps")

// A stepContext ends after a number of checks. The interpreter checks once for
// each instruction. Only one goroutine uses it.
type stepContext struct {
	context.Context //nolint:containedctx // this is a context
	left            int
}

// Done counts, and is closed when the steps are used up.
func (c *stepContext) Done() <-chan struct{} {
	if c.left--; c.left > 0 {
		return c.Context.Done()
	}
	over := make(chan struct{})
	close(over)
	return over
}

// Err says why the context ended.
func (c *stepContext) Err() error {
	if c.left <= 0 {
		return errSteps
	}
	return c.Context.Err()
}

// forJQ copies a value with the number type of the interpreter.
func forJQ(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			out[k] = forJQ(e)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = forJQ(e)
		}
		return out
	case int64:
		return int(v)
	case int32:
		return int(v)
	default:
		return v
	}
}

// forbidden returns the first part of an expression that is not allowed; empty
// if there is none. Allowed are paths, comparisons, conditions, and functions
// whose results are not larger than their arguments.
func forbidden(q *gojq.Query) string {
	if q == nil {
		return ""
	}
	switch q.Op {
	case 0, gojq.OpPipe, gojq.OpComma, gojq.OpEq, gojq.OpNe, gojq.OpGt, gojq.OpLt, gojq.OpGe, gojq.OpLe, gojq.OpAnd, gojq.OpOr, gojq.OpAlt:
	default:
		return "the operator " + q.Op.String()
	}
	if len(q.FuncDefs) > 0 || len(q.Imports) > 0 || q.Meta != nil {
		return "a definition"
	}
	if len(q.Patterns) > 0 {
		return "a variable"
	}
	return first(forbidden(q.Left), forbidden(q.Right), forbiddenTerm(q.Term))
}

func first(words ...string) string {
	for _, w := range words {
		if w != "" {
			return w
		}
	}
	return ""
}

func forbiddenTerm(t *gojq.Term) string {
	if t == nil {
		return ""
	}
	word := ""
	switch t.Type {
	case gojq.TermTypeIdentity, gojq.TermTypeRecurse, gojq.TermTypeNull, gojq.TermTypeTrue, gojq.TermTypeFalse, gojq.TermTypeNumber:
	case gojq.TermTypeIndex:
		word = forbiddenIndex(t.Index)
	case gojq.TermTypeFunc:
		word = forbiddenFunc(t.Func)
	case gojq.TermTypeString:
		word = forbiddenString(t.Str)
	case gojq.TermTypeArray:
		word = forbiddenArray(t.Array.Query)
	case gojq.TermTypeIf:
		word = forbiddenIf(t.If)
	case gojq.TermTypeTry:
		word = first(forbidden(t.Try.Body), forbidden(t.Try.Catch))
	case gojq.TermTypeQuery:
		word = forbidden(t.Query)
	default:
		word = "a construction (object, reduce, foreach, label or format)"
	}
	for _, s := range t.SuffixList {
		word = first(word, forbiddenIndex(s.Index))
	}
	return word
}

func forbiddenIndex(i *gojq.Index) string {
	if i == nil {
		return ""
	}
	if i.IsSlice {
		return "a slice"
	}
	return first(forbiddenString(i.Str), forbidden(i.Start), forbidden(i.End))
}

func forbiddenString(s *gojq.String) string {
	if s != nil && len(s.Queries) > 0 {
		return "text with expressions in it"
	}
	return ""
}

// forbiddenArray allows arrays of constants, which IN and inside need.
func forbiddenArray(q *gojq.Query) string {
	switch {
	case q == nil:
		return ""
	case q.Op == gojq.OpComma:
		return first(forbiddenArray(q.Left), forbiddenArray(q.Right))
	case q.Op == 0 && q.Term != nil && len(q.Term.SuffixList) == 0:
		switch q.Term.Type {
		case gojq.TermTypeArray:
			return forbiddenArray(q.Term.Array.Query)
		case gojq.TermTypeString:
			return forbiddenString(q.Term.Str)
		case gojq.TermTypeNumber, gojq.TermTypeNull, gojq.TermTypeTrue, gojq.TermTypeFalse:
			return ""
		default:
		}
	}
	return "an array of other things than constants"
}

func forbiddenIf(c *gojq.If) string {
	word := first(forbidden(c.Cond), forbidden(c.Then), forbidden(c.Else))
	for _, e := range c.Elif {
		word = first(word, forbidden(e.Cond), forbidden(e.Then))
	}
	return word
}

func forbiddenFunc(f *gojq.Func) string {
	allowed := [...]string{
		"select", "recurse", "empty", "not", "any", "all", "has", "in", "IN", "startswith", "endswith", "test",
		"length", "type", "keys", "index", "first", "last", "nth", "limit", "until", "getpath", "values", "nulls", "strings",
		"numbers", "booleans", "arrays", "objects", "scalars", "iterables", "true", "false", "null", "tostring", "tonumber",
		"ascii_downcase", "ascii_upcase", "ltrimstr", "rtrimstr", "isempty",
	}
	constant := [...]string{"contains", "inside"} // quadratic, so only with a constant
	for _, a := range f.Args {
		word := forbidden(a)
		if slices.Contains(constant[:], f.Name) {
			word = forbiddenArray(&gojq.Query{Term: &gojq.Term{Type: gojq.TermTypeArray, Array: &gojq.Array{Query: a}}})
		}
		if word != "" {
			return word
		}
	}
	if !slices.Contains(allowed[:], f.Name) && !slices.Contains(constant[:], f.Name) {
		return "the function " + f.Name
	}
	return ""
}
