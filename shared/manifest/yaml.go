package manifest

import (
	"encoding/base64"
	"math"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/capstan-cd/capstan/shared/fault"
)

// value converts one node to a plain value. open contains the anchors that are
// being expanded, to detect recursion.
func (p *parser) value(n *yaml.Node, depth int, open []*yaml.Node) (any, error) {
	if depth > p.limits.MaxDepth {
		return nil, p.fail(fault.Exceeded, n.Line, "nested more than %d deep", p.limits.MaxDepth)
	}
	if len(open) > 0 {
		if err := p.count(n); err != nil {
			return nil, err
		}
	}
	switch n.Kind {
	case yaml.MappingNode:
		return p.mapping(n, depth, open)
	case yaml.SequenceNode:
		out := make([]any, 0, len(n.Content))
		for _, c := range n.Content {
			v, err := p.value(c, depth+1, open)
			if err != nil {
				return nil, err
			}
			out = append(out, v)
		}
		return out, nil
	case yaml.AliasNode:
		return p.alias(n, depth, open)
	case yaml.ScalarNode:
		return p.scalar(n)
	case yaml.DocumentNode:
	}
	return nil, p.fail(fault.Invalid, n.Line, "unexpected structure")
}

// count charges a value that an alias repeats.
func (p *parser) count(n *yaml.Node) error {
	p.expanded++
	p.expandedBytes += int64(len(n.Value))
	if p.expanded > p.limits.MaxAliasExpansion || p.expandedBytes > p.limits.MaxBytes {
		return p.fail(fault.Exceeded, n.Line, "aliases add more than %d values or %d bytes", p.limits.MaxAliasExpansion, p.limits.MaxBytes)
	}
	return nil
}

func (p *parser) alias(n *yaml.Node, depth int, open []*yaml.Node) (any, error) {
	for _, o := range open {
		if o == n.Alias {
			return nil, p.fail(fault.Invalid, n.Line, "anchor %q contains itself", n.Value)
		}
	}
	if n.Alias == nil || len(open) >= p.limits.MaxDepth {
		return nil, p.fail(fault.Exceeded, n.Line, "aliases are nested too deep")
	}
	return p.value(n.Alias, depth+1, append(open[:len(open):len(open)], n.Alias))
}

// mapping reads a map. The map's own keys take precedence over those of "<<".
func (p *parser) mapping(n *yaml.Node, depth int, open []*yaml.Node) (any, error) {
	out := make(map[string]any, len(n.Content)/2)
	var merges []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		if k.Kind == yaml.ScalarNode && k.Tag == "!!merge" {
			merges = append(merges, v)
			continue
		}
		key, err := p.key(k)
		if err != nil {
			return nil, err
		}
		if _, twice := out[key]; twice && !p.limits.LastKeyWins {
			return nil, p.fail(fault.Invalid, k.Line, "key %q is given twice in the same map", key)
		}
		if out[key], err = p.value(v, depth+1, open); err != nil {
			return nil, err
		}
	}
	for _, m := range merges {
		if err := p.merge(out, m, depth, open); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (p *parser) merge(into map[string]any, n *yaml.Node, depth int, open []*yaml.Node) error {
	v, err := p.value(n, depth+1, open)
	if err != nil {
		return err
	}
	from, ok := v.([]any)
	if !ok {
		from = []any{v}
	}
	for _, f := range from {
		m, ok := f.(map[string]any)
		if !ok {
			return p.fail(fault.Invalid, n.Line, "only a map, or a list of maps, can be merged with <<")
		}
		for k, v := range m {
			if _, own := into[k]; !own {
				into[k] = v
			}
		}
	}
	return nil
}

// key converts the key of a map to text, as JSON requires.
func (p *parser) key(n *yaml.Node) (string, error) {
	if n.Kind == yaml.AliasNode && n.Alias != nil {
		n = n.Alias
	}
	if n.Kind != yaml.ScalarNode {
		return "", p.fail(fault.Invalid, n.Line, "a key of a map is not text")
	}
	v, err := p.scalar(n)
	if err != nil {
		return "", err
	}
	switch v := v.(type) {
	case string:
		return v, nil
	case bool:
		return strconv.FormatBool(v), nil
	case int64:
		return strconv.FormatInt(v, 10), nil
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 32), nil
	default:
		return "", p.fail(fault.Invalid, n.Line, "a key of a map is empty")
	}
}

// scalar reads one value by the rules of YAML 1.1.
func (p *parser) scalar(n *yaml.Node) (any, error) {
	const quoted = yaml.SingleQuotedStyle | yaml.DoubleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle
	if n.Style&yaml.TaggedStyle != 0 {
		return p.tagged(n)
	}
	if n.Style&quoted != 0 {
		return n.Value, nil
	}
	v, err := resolve(n.Value)
	if err != nil {
		return nil, p.fail(fault.Invalid, n.Line, "%s", err.Error())
	}
	return v, nil
}

// tagged reads a value with an explicit tag.
func (p *parser) tagged(n *yaml.Node) (any, error) {
	wrong := func() (any, error) {
		return nil, p.fail(fault.Invalid, n.Line, "the value does not fit its tag %s", n.Tag)
	}
	switch n.Tag {
	case "!!binary":
		raw, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(n.Value), ""))
		if err != nil {
			return wrong()
		}
		return string(raw), nil
	case "!!null", "!!bool", "!!int", "!!float":
	default:
		return n.Value, nil
	}
	v, err := resolve(n.Value)
	if err != nil {
		return nil, p.fail(fault.Invalid, n.Line, "%s", err.Error())
	}
	fits := false
	switch v.(type) {
	case nil:
		fits = n.Tag == "!!null"
	case bool:
		fits = n.Tag == "!!bool"
	case int64:
		fits = n.Tag == "!!int" || n.Tag == "!!float"
	case float64:
		fits = n.Tag == "!!float" || n.Tag == "!!int"
	}
	if !fits {
		return wrong()
	}
	return v, nil
}

// resolve returns the value of an unquoted, untagged scalar. The result is a
// string, bool, int64, float64 or nil.
func resolve(s string) (any, error) {
	if s == "" {
		return nil, nil
	}
	switch s {
	case "~", "null", "Null", "NULL":
		return nil, nil
	case "y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON":
		return true, nil
	case "n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF":
		return false, nil
	case ".nan", ".NaN", ".NAN", ".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF", "-.inf", "-.Inf", "-.INF":
		return nil, fault.New(fault.Invalid, "JSON has no infinite numbers and no NaN; put the value in quotes")
	}
	switch c := s[0]; {
	case c == '.':
		if f, err := strconv.ParseFloat(s, 64); err == nil {
			return number(f)
		}
	case c == '+' || c == '-' || (c >= '0' && c <= '9'):
		return resolveNumber(s)
	}
	return s, nil
}

func resolveNumber(s string) (any, error) {
	plain := strings.ReplaceAll(s, "_", "")
	if i, err := strconv.ParseInt(plain, 0, 64); err == nil {
		return i, nil
	}
	if _, err := strconv.ParseUint(plain, 0, 64); err == nil {
		return bigNumber(plain)
	}
	if decimal(plain) {
		if f, err := strconv.ParseFloat(plain, 64); err == nil {
			if strings.Trim(plain, "+-0123456789") == "" && math.Abs(f) >= 1<<63 {
				return bigNumber(plain)
			}
			return number(f)
		}
	}
	return s, nil
}

// number returns a float as the type that its JSON text would be read as.
func number(f float64) (any, error) {
	if math.IsInf(f, 0) || math.IsNaN(f) {
		return nil, fault.New(fault.Invalid, "a number is out of range; put it in quotes if it is text")
	}
	if f == math.Trunc(f) && math.Abs(f) < 1<<63 {
		return int64(f), nil
	}
	return f, nil
}

// bigNumber accepts a whole number beyond int64 if a float represents it
// exactly: other numbers would be changed.
func bigNumber(s string) (any, error) {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || strconv.FormatFloat(f, 'f', 0, 64) != strings.TrimPrefix(s, "+") {
		return nil, fault.New(fault.Invalid, "a whole number does not fit into 64 bits; put it in quotes if it is text")
	}
	return f, nil
}

// decimal reports whether s is digits with an optional sign, fraction and exponent.
func decimal(s string) bool {
	s = strings.TrimLeft(s[:1], "+-") + s[1:]
	mantissa, exponent := s, "0"
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		mantissa, exponent = s[:i], s[i+1:]
		if exponent != "" {
			exponent = strings.TrimLeft(exponent[:1], "+-") + exponent[1:]
		}
	}
	whole, fraction, dotted := strings.Cut(mantissa, ".")
	return digits(exponent) && ((digits(whole) && (fraction == "" || digits(fraction))) || (dotted && whole == "" && digits(fraction)))
}

func digits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

// lineOf finds the line of a field, or of the deepest part of the path that
// exists.
func lineOf(n *yaml.Node, path []string) int {
	line := n.Line
	for _, step := range path {
		if n.Kind == yaml.AliasNode && n.Alias != nil {
			n = n.Alias
		}
		next, at := child(n, step)
		if next == nil {
			return line
		}
		n, line = next, at
	}
	return line
}

func child(n *yaml.Node, step string) (*yaml.Node, int) {
	if n.Kind == yaml.SequenceNode {
		if i, err := strconv.Atoi(step); err == nil && i >= 0 && i < len(n.Content) {
			return n.Content[i], n.Content[i].Line
		}
		return nil, 0
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == step {
			return n.Content[i+1], n.Content[i].Line
		}
	}
	return nil, 0
}

func emptyNode(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && (n.Tag == "!!null" || n.Value == "")
}

func shape(n *yaml.Node) string {
	if n.Kind == yaml.SequenceNode {
		return "a list"
	}
	return "a single value"
}
