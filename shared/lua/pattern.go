package lua

import (
	"fmt"
	"strings"
)

const (
	maxCaptures = 32
	maxCalls    = 200 // of the matcher inside itself

	openCapture     = -1
	positionCapture = -2
)

// A matcher matches one of Lua's patterns with a text. It counts every step, so
// that a pattern with exponential backtracking ends at the run's limit.
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
		switch m.pattern[p] {
		case '(':
			if strings.HasPrefix(m.pattern[p:], "()") {
				return m.begin(s, p+2, positionCapture)
			}
			return m.begin(s, p+1, openCapture)
		case ')':
			return m.end(s, p+1)
		case '$':
			if p+1 == len(m.pattern) {
				if s == len(m.src) {
					return s, nil
				}
				return -1, nil
			}
		case '%':
			if p+1 < len(m.pattern) {
				next, done, err := m.special(s, p)
				if err != nil || done {
					return next, err
				}
				if next >= 0 {
					s, p = next, p+2
					if m.pattern[p-1] == 'b' {
						p += 2
					} else if m.pattern[p-1] == 'f' {
						e, err := m.classEnd(p)
						if err != nil {
							return 0, err
						}
						p = e
					}
					continue
				}
			}
		}
		ep, err := m.classEnd(p)
		if err != nil {
			return 0, err
		}
		var suffix byte
		if ep < len(m.pattern) {
			suffix = m.pattern[ep]
		}
		fits := s < len(m.src) && m.single(m.src[s], p, ep)
		switch suffix {
		case '?':
			if fits {
				if e, err := m.match(s+1, ep+1); err != nil || e >= 0 {
					return e, err
				}
			}
			p = ep + 1
		case '+':
			if !fits {
				return -1, nil
			}
			return m.most(s+1, p, ep)
		case '*':
			return m.most(s, p, ep)
		case '-':
			return m.least(s, p, ep)
		default:
			if !fits {
				return -1, nil
			}
			s, p = s+1, ep
		}
	}
}

// special handles %b, %f and back references. A negative next without done
// means that the item is an ordinary class.
func (m *matcher) special(s, p int) (next int, done bool, err error) {
	switch c := m.pattern[p+1]; {
	case c == 'b':
		if p+3 >= len(m.pattern) {
			return 0, false, errPattern("malformed pattern (missing arguments to '%b')")
		}
		e := m.balance(s, m.pattern[p+2], m.pattern[p+3])
		return e, e < 0, nil
	case c == 'f':
		if p+2 >= len(m.pattern) || m.pattern[p+2] != '[' {
			return 0, false, errPattern("missing '[' after '%f' in pattern")
		}
		ep, err := m.classEnd(p + 2)
		if err != nil {
			return 0, false, err
		}
		var before, at byte
		if s > 0 {
			before = m.src[s-1]
		}
		if s < len(m.src) {
			at = m.src[s]
		}
		if !m.set(before, p+2, ep-1) && m.set(at, p+2, ep-1) {
			return s, false, nil
		}
		return -1, true, nil
	case c >= '0' && c <= '9':
		i := int(c) - '1'
		if i < 0 || i >= len(m.captures) || m.captures[i].length == openCapture {
			return 0, false, errPattern(fmt.Sprintf("invalid capture index %%%c", c))
		}
		if m.captures[i].length == positionCapture {
			return -1, true, nil
		}
		was := m.src[m.captures[i].start : m.captures[i].start+m.captures[i].length]
		if strings.HasPrefix(m.src[s:], was) {
			return s + len(was), false, nil
		}
		return -1, true, nil
	}
	return -1, false, nil
}

// balance returns the end of a text in brackets; -1 if it has none.
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
	yes := true
	p++
	if m.pattern[p] == '^' {
		yes = false
		p++
	}
	for p < end {
		switch {
		case m.pattern[p] == '%' && p+1 < end:
			if inClass(c, m.pattern[p+1]) {
				return yes
			}
			p += 2
		case p+2 < end && m.pattern[p+1] == '-':
			if m.pattern[p] <= c && c <= m.pattern[p+2] {
				return yes
			}
			p += 3
		default:
			if m.pattern[p] == c {
				return yes
			}
			p++
		}
	}
	return !yes
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
