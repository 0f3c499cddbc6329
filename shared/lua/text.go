package lua

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	glua "github.com/yuin/gopher-lua"
)

func (r *running) stringFunctions() map[string]glua.LGFunction {
	return map[string]glua.LGFunction{
		"byte": textByte, "char": textChar, "find": r.textFind, "format": r.textFormat, "gmatch": r.textEach, "gfind": r.textEach,
		"gsub": r.textReplace, "len": textLen, "lower": r.textMap(strings.ToLower), "match": r.textMatch, "rep": r.textRepeat,
		"reverse": r.textMap(reversed), "sub": textSub, "upper": r.textMap(strings.ToUpper),
	}
}

func textLen(l *glua.LState) int {
	l.Push(glua.LNumber(len(l.CheckString(1))))
	return 1
}

// span converts Lua's positions, from 1 or from the end if negative, to a slice
// of a text of n bytes.
func span(from, to, n int) (int, int) {
	if from < 0 {
		from = max(from+n+1, 1)
	} else if from == 0 {
		from = 1
	}
	if to < 0 {
		to = to + n + 1
	}
	to = min(to, n)
	if from > to {
		return 0, 0
	}
	return from - 1, to
}

func textSub(l *glua.LState) int {
	s := l.CheckString(1)
	a, b := span(l.CheckInt(2), l.OptInt(3, -1), len(s))
	l.Push(glua.LString(s[a:b]))
	return 1
}

func textByte(l *glua.LState) int {
	s := l.CheckString(1)
	from := l.OptInt(2, 1)
	a, b := span(from, l.OptInt(3, from), len(s))
	if b-a > maxUnpacked {
		l.RaiseError("string slice too long: at most %d bytes are given", maxUnpacked)
	}
	for _, c := range []byte(s[a:b]) {
		l.Push(glua.LNumber(c))
	}
	return b - a
}

func textChar(l *glua.LState) int {
	out := make([]byte, l.GetTop())
	for i := range out {
		n := l.CheckInt(i + 1)
		if n < 0 || n > 255 {
			l.ArgError(i+1, "invalid value")
		}
		out[i] = byte(n)
	}
	l.Push(glua.LString(out))
	return 1
}

func (r *running) textMap(f func(string) string) glua.LGFunction {
	return func(l *glua.LState) int {
		s := l.CheckString(1)
		r.payText(l, len(s))
		l.Push(glua.LString(f(s)))
		return 1
	}
}

func reversed(s string) string {
	b := []byte(s)
	for i, j := 0, len(b)-1; i < j; i, j = i+1, j-1 {
		b[i], b[j] = b[j], b[i]
	}
	return string(b)
}

func (r *running) textRepeat(l *glua.LState) int {
	s, times := l.CheckString(1), float64(l.CheckNumber(2))
	if !(times >= 1) || s == "" {
		l.Push(glua.LString(""))
		return 1
	}
	n := int(min(times, float64(r.b.limits.Text+1))) // beyond is too many in any case
	r.payText(l, len(s)*n)
	l.Push(glua.LString(strings.Repeat(s, n)))
	return 1
}

func (r *running) matcher(src, pattern string) *matcher {
	return &matcher{src: src, pattern: pattern, step: func() error {
		if err := r.b.spend(1, 0); err != nil {
			return err
		}
		if r.b.steps%256 == 0 {
			return r.b.onTime()
		}
		return nil
	}}
}

// find finds the pattern from init on.
func (m *matcher) find(l *glua.LState, init int) (start, end int) {
	anchor := strings.HasPrefix(m.pattern, "^")
	p := 0
	if anchor {
		p = 1
	}
	for s := init; s <= len(m.src); s++ {
		m.captures = m.captures[:0]
		e, err := m.match(s, p)
		if err != nil {
			l.RaiseError("%s", err.Error())
		}
		if e >= 0 {
			return s, e
		}
		if anchor {
			break
		}
	}
	return -1, -1
}

// value is a capture, or the whole match for i 0 where there is none.
func (m *matcher) value(l *glua.LState, i, start, end int) glua.LValue {
	if i >= len(m.captures) {
		if i != 0 {
			l.RaiseError("invalid capture index %%%d", i+1)
		}
		return glua.LString(m.src[start:end])
	}
	c := m.captures[i]
	switch c.length {
	case positionCapture:
		return glua.LNumber(c.start + 1)
	case openCapture:
		l.RaiseError("unfinished capture")
	}
	return glua.LString(m.src[c.start : c.start+c.length])
}

// push returns all captures; without any, the whole match if that is asked for.
func (m *matcher) push(l *glua.LState, start, end int, whole bool) int {
	n := len(m.captures)
	if n == 0 && whole {
		n = 1
	}
	for i := range n {
		l.Push(m.value(l, i, start, end))
	}
	return n
}

func beginning(l *glua.LState, n int) int {
	init := l.OptInt(3, 1)
	if init < 0 {
		init = max(init+n+1, 1)
	}
	return max(init, 1) - 1
}

func (r *running) textFind(l *glua.LState) int {
	s, pattern := l.CheckString(1), l.CheckString(2)
	init := beginning(l, len(s))
	if init > len(s) {
		l.Push(glua.LNil)
		return 1
	}
	if glua.LVAsBool(l.Get(4)) || !strings.ContainsAny(pattern, "^$*+?.([%-") {
		r.pay(l, int64(len(s))/64, 0)
		at := strings.Index(s[init:], pattern)
		if at < 0 {
			l.Push(glua.LNil)
			return 1
		}
		l.Push(glua.LNumber(init + at + 1))
		l.Push(glua.LNumber(init + at + len(pattern)))
		return 2
	}
	m := r.matcher(s, pattern)
	start, end := m.find(l, init)
	if start < 0 {
		l.Push(glua.LNil)
		return 1
	}
	l.Push(glua.LNumber(start + 1))
	l.Push(glua.LNumber(end))
	return 2 + m.push(l, start, end, false)
}

func (r *running) textMatch(l *glua.LState) int {
	s := l.CheckString(1)
	m := r.matcher(s, l.CheckString(2))
	if init := beginning(l, len(s)); init <= len(s) {
		if start, end := m.find(l, init); start >= 0 {
			return m.push(l, start, end, true)
		}
	}
	l.Push(glua.LNil)
	return 1
}

func (r *running) textEach(l *glua.LState) int {
	s, pattern := l.CheckString(1), l.CheckString(2)
	at := 0
	l.Push(l.NewFunction(func(l *glua.LState) int {
		m := r.matcher(s, pattern)
		for ; at <= len(s); at++ {
			m.captures = m.captures[:0]
			e, err := m.match(at, 0)
			if err != nil {
				l.RaiseError("%s", err.Error())
			}
			if e < 0 {
				continue
			}
			start := at
			at = max(e, start+1)
			return m.push(l, start, e, true)
		}
		l.Push(glua.LNil)
		return 1
	}))
	return 1
}

func (r *running) textReplace(l *glua.LState) int {
	s, pattern, with := l.CheckString(1), l.CheckString(2), l.Get(3)
	switch with.Type() {
	case glua.LTString, glua.LTNumber, glua.LTTable, glua.LTFunction:
	default:
		l.ArgError(3, "string, function or table expected")
	}
	most, anchored := l.OptInt(4, len(s)+1), strings.HasPrefix(pattern, "^")
	m := r.matcher(s, pattern)
	p := 0
	if anchored {
		p = 1
	}
	var out strings.Builder
	n, at := 0, 0
	for n < most {
		m.captures = m.captures[:0]
		e, err := m.match(at, p)
		if err != nil {
			l.RaiseError("%s", err.Error())
		}
		if e >= 0 {
			n++
			r.appendReplacement(l, &out, m.replacement(l, with, at, e))
		}
		if e > at {
			at = e
		} else {
			out.WriteString(s[at:min(at+1, len(s))])
			at++
		}
		if at > len(s) || anchored {
			break
		}
	}
	out.WriteString(s[min(at, len(s)):])
	r.payText(l, out.Len())
	l.Push(glua.LString(out.String()))
	l.Push(glua.LNumber(n))
	return 2
}

// appendReplacement adds a replacement to the result, both within the limit of
// a run's texts.
func (r *running) appendReplacement(l *glua.LState, out *strings.Builder, text string) {
	r.payText(l, len(text))
	if out.Len()+len(text) > r.b.limits.Text {
		r.payText(l, out.Len()+len(text))
	}
	out.WriteString(text)
}

// replacement returns the text that replaces a match.
func (m *matcher) replacement(l *glua.LState, with glua.LValue, start, end int) string {
	var v glua.LValue
	switch w := with.(type) {
	case *glua.LTable:
		v = l.GetTable(w, m.value(l, 0, start, end))
	case *glua.LFunction:
		l.Push(w)
		l.Call(m.push(l, start, end, true), 1)
		v = l.Get(-1)
		l.Pop(1)
	default:
		return m.expanded(l, with.String(), start, end)
	}
	if !glua.LVAsBool(v) {
		return m.src[start:end]
	}
	if !glua.LVCanConvToString(v) {
		l.RaiseError("invalid replacement value (a %s)", v.Type())
	}
	return v.String()
}

func (m *matcher) expanded(l *glua.LState, text string, start, end int) string {
	if !strings.Contains(text, "%") {
		return text
	}
	var out strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] != '%' || i+1 == len(text) {
			out.WriteByte(text[i])
			continue
		}
		i++
		switch c := text[i]; {
		case c == '0':
			out.WriteString(m.src[start:end])
		case digit(c):
			out.WriteString(m.value(l, int(c-'1'), start, end).String())
		default:
			out.WriteByte(c)
		}
	}
	return out.String()
}

// textFormat is string.format, with widths of at most two digits as in C.
func (r *running) textFormat(l *glua.LState) int {
	format := l.CheckString(1)
	var out strings.Builder
	arg := 1
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			out.WriteByte(format[i])
			continue
		}
		i++
		if i < len(format) && format[i] == '%' {
			out.WriteByte('%')
			continue
		}
		spec, verb, next, err := readSpec(format, i)
		if err != nil {
			l.RaiseError("%s", err.Error())
		}
		i = next
		arg++
		text := formatted(l, spec, verb, arg)
		if out.Len()+len(text) > r.b.limits.Text {
			r.payText(l, out.Len()+len(text))
		}
		r.payText(l, len(text))
		out.WriteString(text)
	}
	r.payText(l, out.Len())
	l.Push(glua.LString(out.String()))
	return 1
}

var errFormat = errors.New("invalid format (width or precision too long)")

func readSpec(format string, i int) (spec string, verb byte, next int, err error) {
	begin := i
	digits := func() bool {
		from := i
		for i < len(format) && digit(format[i]) {
			i++
		}
		return i-from <= 2
	}
	for i < len(format) && strings.IndexByte("-+ #0", format[i]) >= 0 {
		i++
	}
	if i-begin > 5 || !digits() {
		return "", 0, 0, errFormat
	}
	if i < len(format) && format[i] == '.' {
		i++
		if !digits() {
			return "", 0, 0, errFormat
		}
	}
	if i >= len(format) {
		return "", 0, 0, errors.New("invalid option '%' to 'format'")
	}
	return "%" + format[begin:i], format[i], i, nil
}

func formatted(l *glua.LState, spec string, verb byte, arg int) string {
	switch verb {
	case 'd', 'i':
		return fmt.Sprintf(spec+"d", int64(l.CheckNumber(arg)))
	case 'u':
		return fmt.Sprintf(spec+"d", uint64(l.CheckNumber(arg)))
	case 'c':
		return string([]byte{byte(l.CheckInt(arg))})
	case 'o', 'x', 'X':
		return fmt.Sprintf(spec+string(verb), int64(l.CheckNumber(arg)))
	case 'e', 'E', 'f', 'F', 'g', 'G':
		return fmt.Sprintf(spec+string(verb), float64(l.CheckNumber(arg)))
	case 'q':
		return strconv.Quote(l.CheckString(arg))
	case 's':
		v := l.ToStringMeta(l.CheckAny(arg))
		return fmt.Sprintf(spec+"s", v.String())
	}
	l.RaiseError("invalid option '%%%c' to 'format'", verb)
	return ""
}
