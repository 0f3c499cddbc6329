package diff

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/capstan-cd/capstan/shared/manifest"
)

// Summary describes in a few words how live differs from the desired object:
// "spec.replicas: 3 → 5; metadata.labels.team: a → (none); 4 more". At most
// limit fields are named. Values of Secrets are never shown; of other objects
// only short scalars.
func (v Result) Summary(desired, live *manifest.Object, limit int) string {
	if v.Void != "" {
		return "not comparable: " + v.Void
	}
	var parts []string
	for i, p := range v.paths {
		if i == limit {
			parts = append(parts, strconv.Itoa(len(v.paths)-limit)+" more")
			break
		}
		parts = append(parts, change(p, desired, live))
	}
	return strings.Join(parts, "; ")
}

func change(p path, desired, live *manifest.Object) string {
	name := p.String()
	if live.GetKind() == "Secret" || (desired != nil && desired.GetKind() == "Secret") {
		return name + ": changed"
	}
	is, found := lookup(live.Object, p)
	now := shown(is, found)
	if desired == nil {
		return name + ": now " + now
	}
	was, had := lookup(desired.Object, p)
	before := shown(was, had)
	if !had || before == now || before == "" || now == "" {
		if !found {
			return name + ": gone"
		}
		return name + ": changed"
	}
	return name + ": " + before + " → " + now
}

// lookup finds the first value that a path stands for.
func lookup(object map[string]any, p path) (any, bool) {
	values := []any{object}
	for _, e := range p {
		var index itemIndex
		next, err := index.match(&field{element: e}, values)
		if err != nil || len(next) == 0 {
			return nil, false
		}
		values = next
	}
	return values[0], true
}

// shown writes a scalar; nothing for other values.
func shown(v any, found bool) string {
	if !found {
		return "(none)"
	}
	switch v := v.(type) {
	case map[string]any, []any:
		return ""
	case string:
		const longest = 60
		if len(v) > longest {
			cut := longest
			for cut > 0 && !utf8.RuneStart(v[cut]) {
				cut--
			}
			v = v[:cut] + "…"
		}
		if v == "" || strings.ContainsAny(v, "\n\t\" ;") {
			return strconv.Quote(v)
		}
		return v
	default:
		text, err := manifest.AppendCanonical(nil, v)
		if err != nil {
			return ""
		}
		return string(text)
	}
}
