package lua

import (
	"fmt"
	"strings"
)

const (
	maxCaptures = 32
	maxCalls    = 200 // recursion depth of the matcher

	openCapture     = -1
	positionCapture = -2
)

// A matcher matches a Lua pattern with a text. It counts every step, so that a
// pattern with exponential backtracking ends at the run's limit.
type matcher struct {
	src, pattern string
	step         func() error
	calls        int
	captures     []capture
}

type capture struct{ start, length int }

// errPattern says what is wrong with a pattern.
type errPattern string

func (e errPattern) Error() string { return string(e) }

// match returns the end of a match of the pattern from p on that begins at s; -1
// if there is none.
func (m *matcher) match(s, p int) (int, error) {
	if m.calls++; m.calls > maxCalls {
		return 0, errPattern("pattern too complex")
	}
	defer func() { m.calls-- }()
	for {
		if err := m.step(); err != nil {
			return 0, err
		}
		if p == len(m.pattern) {
			return s, nil
		}
		at, err := m.advance(s, p)
		if err != nil || at.over {
			return at.s, err
		}
		s, p = at.s, at.p
	}
}

// A position is the state of a match: how far it is in the text and in the
// pattern. With over, the match has ended at s, or failed if s is -1.
type position struct {
	s, p int
	over bool
}

// ended is the position after the rest of the pattern was matched.
func ended(s int, err error) (position, error) { return position{s: s, over: true}, err }

// mismatch is the position after an item that does not match.
func mismatch() (position, error) { return ended(-1, nil) }

// advance matches the item of the pattern at p with the text at s.
func (m *matcher) advance(s, p int) (position, error) {
	switch rest := m.pattern[p:]; {
	case strings.HasPrefix(rest, "()"):
		return ended(m.begin(s, p+2, positionCapture))
	case rest[0] == '(':
		return ended(m.begin(s, p+1, openCapture))
	case rest[0] == ')':
		return ended(m.end(s, p+1))
	case rest == "$":
		if s < len(m.src) {
			return mismatch()
		}
		return ended(s, nil)
	case strings.HasPrefix(rest, "%b"):
		return m.balanced(s, p)
	case strings.HasPrefix(rest, "%f"):
		return m.frontier(s, p)
	case len(rest) > 1 && rest[0] == '%' && digit(rest[1]):
		return m.reference(s, p)
	}
	return m.repeated(s, p)
}

// repeated matches a class with the suffix that says how often it may occur.
func (m *matcher) repeated(s, p int) (position, error) {
	ep, err := m.classEnd(p)
	if err != nil {
		return position{}, err
	}
	var suffix byte
	if ep < len(m.pattern) {
		suffix = m.pattern[ep]
	}
	fits := s < len(m.src) && m.single(m.src[s], p, ep)
	switch {
	case suffix == '*':
		return ended(m.most(s, p, ep))
	case suffix == '-':
		return ended(m.least(s, p, ep))
	case suffix == '?':
		return m.optional(s, ep+1, fits)
	case !fits:
		return mismatch()
	case suffix == '+':
		return ended(m.most(s+1, p, ep))
	}
	return position{s: s + 1, p: ep}, nil
}

// optional tries the rest of the pattern, from p on, behind a byte that fits,
// and continues without that byte otherwise.
func (m *matcher) optional(s, p int, fits bool) (position, error) {
	if fits {
		if e, err := m.match(s+1, p); err != nil || e >= 0 {
			return ended(e, err)
		}
	}
	return position{s: s, p: p}, nil
}

// balanced matches %b and its two characters.
func (m *matcher) balanced(s, p int) (position, error) {
	if p+3 >= len(m.pattern) {
		return position{}, errPattern("malformed pattern (missing arguments to '%b')")
	}
	e := m.balance(s, m.pattern[p+2], m.pattern[p+3])
	return position{s: e, p: p + 4, over: e < 0}, nil
}

// frontier matches %f and its set: a place where the set begins to fit.
func (m *matcher) frontier(s, p int) (position, error) {
	p += 2
	if p >= len(m.pattern) || m.pattern[p] != '[' {
		return position{}, errPattern("missing '[' after '%f' in pattern")
	}
	ep, err := m.classEnd(p)
	if err != nil {
		return position{}, err
	}
	var before, at byte
	if s > 0 {
		before = m.src[s-1]
	}
	if s < len(m.src) {
		at = m.src[s]
	}
	if m.set(before, p, ep-1) || !m.set(at, p, ep-1) {
		return mismatch()
	}
	return position{s: s, p: ep}, nil
}

// reference matches a back reference such as %1.
func (m *matcher) reference(s, p int) (position, error) {
	number := m.pattern[p+1]
	i := int(number) - '1'
	if i < 0 || i >= len(m.captures) || m.captures[i].length == openCapture {
		return position{}, errPattern(fmt.Sprintf("invalid capture index %%%c", number))
	}
	c := m.captures[i]
	if c.length == positionCapture {
		return mismatch()
	}
	captured := m.src[c.start : c.start+c.length]
	if !strings.HasPrefix(m.src[s:], captured) {
		return mismatch()
	}
	return position{s: s + len(captured), p: p + 2}, nil
}

// balance returns the end of a text in brackets; -1 if there is none at s.
func (m *matcher) balance(s int, open, shut byte) int {
	if s >= len(m.src) || m.src[s] != open {
		return -1
	}
	depth := 1
	for i := s + 1; i < len(m.src); i++ {
		if i%64 == 0 && m.step() != nil {
			return -1 // the next step ends the run
		}
		switch m.src[i] {
		case shut:
			if depth--; depth == 0 {
				return i + 1
			}
		case open:
			depth++
		}
	}
	return -1
}

// most matches the item from p to ep as often as possible, then the rest.
func (m *matcher) most(s, p, ep int) (int, error) {
	n := 0
	for s+n < len(m.src) && m.single(m.src[s+n], p, ep) {
		if err := m.step(); err != nil {
			return 0, err
		}
		n++
	}
	for ; n >= 0; n-- {
		if e, err := m.match(s+n, ep+1); err != nil || e >= 0 {
			return e, err
		}
	}
	return -1, nil
}

// least matches the item from p to ep as rarely as possible, then the rest.
func (m *matcher) least(s, p, ep int) (int, error) {
	for {
		if e, err := m.match(s, ep+1); err != nil || e >= 0 {
			return e, err
		}
		if s >= len(m.src) || !m.single(m.src[s], p, ep) {
			return -1, nil
		}
		s++
	}
}

// begin opens a capture and matches the rest.
func (m *matcher) begin(s, p, what int) (int, error) {
	if len(m.captures) >= maxCaptures {
		return 0, errPattern("too many captures")
	}
	m.captures = append(m.captures, capture{s, what})
	e, err := m.match(s, p)
	if err == nil && e < 0 {
		m.captures = m.captures[:len(m.captures)-1]
	}
	return e, err
}

// end closes the newest open capture and matches the rest.
func (m *matcher) end(s, p int) (int, error) {
	at := -1
	for i := len(m.captures) - 1; i >= 0; i-- {
		if m.captures[i].length == openCapture {
			at = i
			break
		}
	}
	if at < 0 {
		return 0, errPattern("invalid pattern capture")
	}
	m.captures[at].length = s - m.captures[at].start
	e, err := m.match(s, p)
	if err == nil && e < 0 {
		m.captures[at].length = openCapture
	}
	return e, err
}

// classEnd returns the end of the single item that begins at p.
func (m *matcher) classEnd(p int) (int, error) {
	c := m.pattern[p]
	p++
	if c == '%' {
		if p == len(m.pattern) {
			return 0, errPattern("malformed pattern (ends with '%')")
		}
		return p + 1, nil
	}
	if c != '[' {
		return p, nil
	}
	if p < len(m.pattern) && m.pattern[p] == '^' {
		p++
	}
	for first := true; ; first = false {
		if p >= len(m.pattern) {
			return 0, errPattern("malformed pattern (missing ']')")
		}
		c := m.pattern[p]
		p++
		if c == '%' && p < len(m.pattern) {
			p++
		}
		if c == ']' && !first {
			return p, nil
		}
	}
}

// single reports whether a byte fits the item from p to ep.
func (m *matcher) single(c byte, p, ep int) bool {
	switch m.pattern[p] {
	case '.':
		return true
	case '%':
		return inClass(c, m.pattern[p+1])
	case '[':
		return m.set(c, p, ep-1)
	}
	return m.pattern[p] == c
}

// set reports whether a byte is in the set that begins at p with [ and ends at
// end with ].
func (m *matcher) set(c byte, p, end int) bool {
	p++
	negated := m.pattern[p] == '^'
	if negated {
		p++
	}
	for p < end {
		fits, next := m.member(c, p, end)
		if fits {
			return !negated
		}
		p = next
	}
	return negated
}

// member reports whether a byte fits the class, the range or the character at p
// of a set, and where the next one begins.
func (m *matcher) member(c byte, p, end int) (fits bool, next int) {
	switch {
	case m.pattern[p] == '%' && p+1 < end:
		return inClass(c, m.pattern[p+1]), p + 2
	case p+2 < end && m.pattern[p+1] == '-':
		return m.pattern[p] <= c && c <= m.pattern[p+2], p + 3
	}
	return m.pattern[p] == c, p + 1
}

func inClass(c, class byte) bool {
	var in bool
	switch class | 0x20 {
	case 'a':
		in = letter(c)
	case 'c':
		in = c < 32 || c == 127
	case 'd':
		in = digit(c)
	case 'l':
		in = c >= 'a' && c <= 'z'
	case 'p':
		in = c > 32 && c < 127 && !letter(c) && !digit(c)
	case 's':
		in = c == ' ' || c >= 9 && c <= 13
	case 'u':
		in = c >= 'A' && c <= 'Z'
	case 'w':
		in = letter(c) || digit(c)
	case 'x':
		in = digit(c) || c|0x20 >= 'a' && c|0x20 <= 'f'
	case 'z':
		in = c == 0
	default:
		return class == c
	}
	if !letter(class) {
		return class == c
	}
	if class < 'a' {
		return !in
	}
	return in
}

func letter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }

func digit(c byte) bool { return c >= '0' && c <= '9' }
