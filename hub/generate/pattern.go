package generate

import (
	"path"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/capstan-cd/capstan/shared/fault"
)

// maxPattern is the length of the longest pattern, in bytes.
const maxPattern = 1 << 10

// patternOf reads a pattern of git.files. With pathGlobs * stops at slashes and
// ** does not. Otherwise it is a pathspec of Git: both match everything, and
// the name of a directory means all files in it (AGEN-05).
func patternOf(text string, pathGlobs bool) (func(name string) bool, error) {
	wrong := func(why string) error {
		return fault.New(fault.Invalid, "%q is no pattern of files: %s", text[:min(len(text), 100)], why)
	}
	pattern := path.Clean(text)
	switch {
	case len(text) > maxPattern:
		return nil, wrong("it is too long")
	case strings.HasPrefix(text, ":"):
		return nil, wrong("it begins with a colon")
	case strings.HasPrefix(pattern, "/") || pattern == ".." || strings.HasPrefix(pattern, "../"):
		return nil, wrong("it leaves the repository")
	case pathGlobs && (strings.Count(pattern, "**") > 8 || strings.Count(pattern, "{") > 8):
		return nil, wrong("it has too many ** or braces")
	case pathGlobs && !doublestar.ValidatePattern(pattern):
		return nil, wrong("its brackets or braces are not closed")
	case pathGlobs:
		return func(name string) bool { ok, _ := doublestar.Match(pattern, name); return ok }, nil
	case pattern == ".":
		return func(string) bool { return true }, nil
	}
	whole := pattern
	if strings.HasSuffix(text, "/") || strings.HasSuffix(text, "/.") { // a directory, and no file
		whole += "/"
	}
	return func(name string) bool {
		return name == whole || strings.HasPrefix(name, pattern+"/") || wild(whole, name)
	}, nil
}

// wild matches a name as Git does: * any text, ? one character, [a-z] and [!a]
// classes, and \ before a literal character. A class that is not closed matches
// nothing. Its time is the product of the lengths.
func wild(pattern, name string) bool {
	star, resume := -1, 0 // the last star, and where the name goes on behind it
	p, n := 0, 0
	for n < len(name) {
		if p < len(pattern) && pattern[p] == '*' {
			star, resume = p, n
			p++
			continue
		}
		if size, ok := one(pattern[p:], name[n]); ok {
			p += size
			n++
			continue
		}
		if star < 0 {
			return false
		}
		resume++
		p, n = star+1, resume
	}
	return strings.Trim(pattern[p:], "*") == ""
}

// one matches a character with the beginning of a pattern, and returns how long
// that is.
func one(pattern string, c byte) (size int, ok bool) {
	switch {
	case pattern == "":
		return 0, false
	case pattern[0] == '?':
		return 1, true
	case pattern[0] == '\\' && len(pattern) > 1:
		return 2, pattern[1] == c
	case pattern[0] == '[':
		return class(pattern, c)
	}
	return 1, pattern[0] == c
}

// class matches a character with a class such as [a-z], [!a] and [[:digit:]].
func class(pattern string, c byte) (size int, ok bool) {
	i, negated, matched := 1, false, false
	if i < len(pattern) && (pattern[i] == '!' || pattern[i] == '^') {
		negated = true
		i++
	}
	for first := true; i < len(pattern) && (first || pattern[i] != ']'); first = false {
		if name, _, closed := strings.Cut(strings.TrimPrefix(pattern[i:], "[:"), ":]"); closed && strings.HasPrefix(pattern[i:], "[:") {
			matched = matched || named(name, c)
			i += len(name) + len("[::]")
			continue
		}
		low, next := member(pattern, i)
		high := low
		if next+1 < len(pattern) && pattern[next] == '-' && pattern[next+1] != ']' {
			high, next = member(pattern, next+1)
		}
		matched = matched || low <= c && c <= high
		i = next
	}
	if i >= len(pattern) {
		return 0, false
	}
	return i + 1, matched != negated
}

func member(pattern string, i int) (c byte, next int) {
	if pattern[i] == '\\' && i+1 < len(pattern) {
		i++
	}
	return pattern[i], i + 1
}

// named reports whether a character is in a named class of POSIX.
func named(class string, c byte) bool {
	digit, lower, upper := c >= '0' && c <= '9', c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z'
	switch class {
	case "digit":
		return digit
	case "lower":
		return lower
	case "upper":
		return upper
	case "alpha":
		return lower || upper
	case "alnum":
		return digit || lower || upper
	case "xdigit":
		return digit || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
	case "space":
		return c == ' ' || c >= '\t' && c <= '\r'
	case "punct":
		return c > ' ' && c < 0x7f && !digit && !lower && !upper
	}
	return false
}
