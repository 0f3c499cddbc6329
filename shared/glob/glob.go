// Package glob matches names with the patterns that projects, access policies
// and sync windows use, in the syntax that Argo CD's users know: * any run of
// characters, ? one character, [abc] and [a-z] a class, [!a] its opposite,
// {a,b} alternatives, and \ in front of a literal character.
//
// Hub and agent both use these patterns, so both must interpret them alike.
// Patterns become regular expressions of the standard library, whose time is
// linear, because untrusted users write them. github.com/gobwas/glob is not
// used for decisions, because it accepts unclosed braces and lets ? match
// nothing.
package glob

import (
	"errors"
	"regexp"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/capstan-cd/capstan/shared/fault"
)

// MaxPattern is the length of the longest pattern, in bytes.
const MaxPattern = 1 << 10

// Match reports whether s as a whole matches a pattern. * and ? match slashes
// too. A malformed pattern matches nothing; Check refuses it when it is
// entered.
func Match(pattern, s string) bool {
	if !strings.ContainsAny(pattern, `[{\`) {
		return simple(pattern, s)
	}
	re := compile(pattern, false)
	return re != nil && re.MatchString(s)
}

// MatchPath is Match with * and ? stopping at slashes; ** matches them.
func MatchPath(pattern, s string) bool {
	if pattern == "*" {
		return true
	}
	if Literal(pattern) {
		return pattern == s
	}
	re := compile(pattern, true)
	return re != nil && re.MatchString(s)
}

// Check returns an error with a sentence that names the pattern if it is
// malformed or too long.
func Check(pattern string) error {
	if len(pattern) > MaxPattern {
		return fault.New(fault.Exceeded, "a pattern has %d bytes, and may have %d", len(pattern), MaxPattern)
	}
	if !utf8.ValidString(pattern) {
		return fault.New(fault.Invalid, "the pattern %q is not UTF-8", pattern)
	}
	if !strings.ContainsAny(pattern, `[{\`) {
		return nil // stars and question marks stand anywhere
	}
	if _, err := expression(pattern, false); err != nil {
		return fault.With(fault.New(fault.Invalid, "the pattern %q is malformed: %v", pattern, err), "",
			`close every [ and {, and write \ in front of a character that is to mean itself`)
	}
	return nil
}

// Literal reports whether a pattern matches nothing but itself.
func Literal(pattern string) bool { return !strings.ContainsAny(pattern, `*?[{\`) }

// simple matches patterns that have only * and ?, without allocation.
func simple(pattern, s string) bool {
	p, i, star, mark := 0, 0, -1, 0
	for i < len(s) {
		_, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, i
			p++
		case p < len(pattern) && pattern[p] == '?':
			p++
			i += size
		case p < len(pattern) && pattern[p] == s[i]:
			p++
			i++
		case star >= 0:
			mark++
			p, i = star+1, mark
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

// maxCompiled bounds the compiled patterns in memory: a tenant can write as
// many as it likes over time.
const maxCompiled = 4096

type key struct {
	pattern string
	path    bool
}

var compiled = struct {
	sync.RWMutex
	patterns map[key]*regexp.Regexp // nil for a malformed pattern
}{patterns: map[key]*regexp.Regexp{}}

func compile(pattern string, path bool) *regexp.Regexp {
	if len(pattern) > MaxPattern {
		return nil
	}
	k := key{pattern, path}
	compiled.RLock()
	re, ok := compiled.patterns[k]
	compiled.RUnlock()
	if ok {
		return re
	}
	re, err := expression(pattern, path)
	if err != nil {
		re = nil
	}
	compiled.Lock()
	defer compiled.Unlock()
	if len(compiled.patterns) >= maxCompiled {
		clear(compiled.patterns)
	}
	compiled.patterns[k] = re
	return re
}

// expression returns the regular expression for a pattern. With path, * and ?
// stop at slashes.
func expression(pattern string, path bool) (*regexp.Regexp, error) {
	one := "."
	if path {
		one = "[^/]"
	}
	var out strings.Builder
	out.WriteString(`(?s)\A(?:`)
	depth := 0
	for rest := pattern; rest != ""; {
		c, size := utf8.DecodeRuneInString(rest)
		rest = rest[size:]
		switch {
		case c == '*' && strings.HasPrefix(rest, "*"):
			rest = strings.TrimLeft(rest, "*")
			out.WriteString(".*")
		case c == '*':
			out.WriteString(one + "*")
		case c == '?':
			out.WriteString(one)
		case c == '[':
			class, after, err := class(rest)
			if err != nil {
				return nil, err
			}
			out.WriteString(class)
			rest = after
		case c == '{':
			depth++
			out.WriteString("(?:")
		case c == ',' && depth > 0:
			out.WriteString("|")
		case c == '}' && depth > 0:
			depth--
			out.WriteString(")")
		case c == '\\':
			if rest == "" {
				return nil, errors.New(`it ends in \`)
			}
			c, size = utf8.DecodeRuneInString(rest)
			rest = rest[size:]
			out.WriteString(regexp.QuoteMeta(string(c)))
		default:
			out.WriteString(regexp.QuoteMeta(string(c)))
		}
	}
	if depth > 0 {
		return nil, errors.New("a { is not closed")
	}
	out.WriteString(`)\z`)
	return regexp.Compile(out.String())
}

// class translates the text after a [ and returns the rest after its ].
func class(s string) (expression, after string, err error) {
	var out strings.Builder
	out.WriteString("[")
	if rest, not := strings.CutPrefix(s, "!"); not {
		out.WriteString("^")
		s = rest
	}
	for n := 0; s != ""; n++ {
		c, size := utf8.DecodeRuneInString(s)
		s = s[size:]
		switch {
		case c == ']' && n > 0:
			return out.String() + "]", s, nil
		case c == ']':
			return "", "", errors.New("a class is empty")
		case c == '-' && n > 0 && s != "" && s[0] != ']':
			out.WriteString("-")
			continue
		case c == '\\' && s != "":
			c, size = utf8.DecodeRuneInString(s)
			s = s[size:]
		}
		if strings.ContainsRune(`\]-^[&~`, c) {
			out.WriteString(`\`)
		}
		out.WriteRune(c)
	}
	return "", "", errors.New("a [ is not closed")
}
