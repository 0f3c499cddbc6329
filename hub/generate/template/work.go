package template

import (
	"reflect"
	"regexp"
	"regexp/syntax"
	"strconv"
	"strings"
)

// maxWork bounds one call of a function: bytes or values that it makes, or
// steps that it takes.
const maxWork = 32 << 20

// work estimates what a call needs, for functions that need more than their
// arguments are long. Arguments are values that were measured before, so that
// products of two lengths do not overflow.
var work = map[string]func(args []reflect.Value) int{
	"repeat":       func(a []reflect.Value) int { return product(number(a[0]), text(a[1])) },
	"indent":       indented,
	"nindent":      indented,
	"until":        func(a []reflect.Value) int { return magnitude(number(a[0])) },
	"untilStep":    func(a []reflect.Value) int { return span(number(a[0]), number(a[1]), number(a[2])) },
	"seq":          sequence,
	"randAlphaNum": random,
	"randAlpha":    random,
	"randAscii":    random,
	"randNumeric":  random,
	"randBytes":    random,
	"join":         func(a []reflect.Value) int { return product(text(a[0])+1, elements(a[1])) },
	"replace": func(a []reflect.Value) int {
		return sum(product(strings.Count(plain(a[2]), plain(a[0])), text(a[1])), text(a[2]))
	},
	"wrap":     func(a []reflect.Value) int { return 2 * text(a[1]) },
	"wrapWith": func(a []reflect.Value) int { return product(text(a[1])+1, text(a[2])+1) },
	"printf":   formatted,

	"uniq":        quadratic,
	"mustUniq":    quadratic,
	"without":     func(a []reflect.Value) int { return product(elements(a[0])+1, size(a[1])+1) },
	"mustWithout": func(a []reflect.Value) int { return product(elements(a[0])+1, size(a[1])+1) },

	"toYaml":           nested,
	"toPrettyJson":     nested,
	"mustToPrettyJson": nested,

	"regexMatch":                 func(a []reflect.Value) int { return searched(a[0], a[1]) },
	"mustRegexMatch":             func(a []reflect.Value) int { return searched(a[0], a[1]) },
	"regexFind":                  func(a []reflect.Value) int { return searched(a[0], a[1]) },
	"mustRegexFind":              func(a []reflect.Value) int { return searched(a[0], a[1]) },
	"regexFindAll":               func(a []reflect.Value) int { return searched(a[0], a[1]) },
	"mustRegexFindAll":           func(a []reflect.Value) int { return searched(a[0], a[1]) },
	"regexSplit":                 func(a []reflect.Value) int { return searched(a[0], a[1]) },
	"mustRegexSplit":             func(a []reflect.Value) int { return searched(a[0], a[1]) },
	"regexReplaceAll":            replaced,
	"mustRegexReplaceAll":        replaced,
	"regexReplaceAllLiteral":     replaced,
	"mustRegexReplaceAllLiteral": replaced,
}

func number(v reflect.Value) int { return int(v.Int()) }

func plain(v reflect.Value) string {
	if v.Kind() == reflect.String {
		return v.String()
	}
	return ""
}

func text(v reflect.Value) int { return len(plain(v)) }

func size(v reflect.Value) int {
	weight, _ := weigh(v)
	return weight
}

// elements is how many elements a list has; 1 for another value.
func elements(v reflect.Value) int {
	for v.Kind() == reflect.Interface && !v.IsNil() {
		v = v.Elem()
	}
	if v.Kind() == reflect.Slice || v.Kind() == reflect.Array {
		return v.Len()
	}
	return 1
}

// product is a*b; -1 if it is too much.
func product(a, b int) int {
	if a > 0 && b > 0 && a > maxWork/b {
		return -1
	}
	return max(a, 0) * max(b, 0)
}

// sum adds; -1 if one of them is too much.
func sum(all ...int) int {
	out := 0
	for _, n := range all {
		if n < 0 {
			return -1
		}
		out += n
	}
	return out
}

func magnitude(n int) int {
	if n < 0 {
		return -max(n, -maxWork-1)
	}
	return n
}

// span is how many numbers lie between two others.
func span(from, to, step int) int {
	if step == 0 || (to < from) != (step < 0) {
		return 0
	}
	distance := float64(to) - float64(from)
	if n := distance / float64(step); n < maxWork {
		return int(n) + 1
	}
	return -1
}

func sequence(a []reflect.Value) int {
	n := a[0]
	at := func(i int) int { return number(n.Index(i)) }
	switch n.Len() {
	case 1:
		return 8 * magnitude(at(0))
	case 2:
		step := 1
		if at(1) < at(0) {
			step = -1
		}
		return 8 * span(at(0), at(1), step)
	case 3:
		return 8 * span(at(0), at(2), at(1))
	}
	return 0
}

func random(a []reflect.Value) int { return 16 * magnitude(number(a[0])) }

func indented(a []reflect.Value) int {
	return sum(product(number(a[0]), strings.Count(plain(a[1]), "\n")+1), text(a[1]))
}

func quadratic(a []reflect.Value) int { return product(elements(a[0]), size(a[0])) }

// nested is for texts that are indented by their depth.
func nested(a []reflect.Value) int {
	weight, depth := weigh(a[0])
	return product(weight, 2*depth+2)
}

var widths = regexp.MustCompile(`[0-9]+`)

// formatted counts what widths and repeated arguments of a format can add.
func formatted(a []reflect.Value) int {
	format := plain(a[0])
	n := 0
	for _, digits := range widths.FindAllString(format, -1) {
		width, err := strconv.Atoi(digits)
		if err != nil || width > maxWork {
			return -1
		}
		n += width
	}
	args := size(a[1])
	if strings.Contains(format, "*") {
		args += maxFormatWidth
	}
	return sum(n, product(strings.Count(format, "%"), args), len(format))
}

// maxFormatWidth is the largest width that package fmt takes from an argument.
const maxFormatWidth = 1_000_000

// searched is what a regular expression needs at most: its instructions for
// each byte of the text. Expressions of Go have no other worst case.
func searched(expression, s reflect.Value) int {
	re, err := syntax.Parse(plain(expression), syntax.Perl)
	if err != nil {
		return 0 // the function returns the error
	}
	return product(instructions(re), text(s)+1)
}

func replaced(a []reflect.Value) int {
	return sum(searched(a[0], a[1]), product(text(a[1])+1, text(a[2])))
}

// instructions is the size of the program that an expression becomes.
func instructions(re *syntax.Regexp) int {
	n := 1 + len(re.Rune)
	for _, sub := range re.Sub {
		n += instructions(sub)
	}
	if re.Op == syntax.OpRepeat {
		n = product(n, max(re.Min, re.Max, 1))
		if n < 0 {
			n = maxWork
		}
	}
	return min(n, maxWork)
}
