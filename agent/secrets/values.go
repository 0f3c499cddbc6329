package secrets

import (
	"encoding/base64"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/capstan-cd/capstan/shared/manifest"
)

const (
	// minText is the length of the shortest value that is searched for within
	// longer texts. Shorter ones are masked where they are a whole field.
	minText = 6
	// keptValues is how many earlier values of an object are searched for, too:
	// objects that others have made from it may still have them.
	keptValues = 3
)

// Values are the resolved values of one application. They are searched for in
// everything about it that leaves the cluster. Several goroutines may use it.
type Values struct {
	mu     sync.Mutex
	of     map[manifest.Key][][]string // newest first
	whole  map[string]struct{}         // values as whole fields
	inside *strings.Replacer           // longer ones, in several forms; nil: it must be made
}

// Set notes the resolved fields of an object.
func (v *Values) Set(key manifest.Key, leaves []Leaf) {
	var texts []string
	for _, l := range leaves {
		texts = appendTexts(texts, l.Value)
	}
	v.add(key, texts)
}

// Observe notes what a live object has in fields that were resolved before the
// agent was started.
func (v *Values) Observe(key manifest.Key, o *manifest.Object, paths [][]string) {
	var texts []string
	for _, p := range paths {
		at(o.Object, p, func(value any) any {
			texts = appendTexts(texts, value)
			return value
		})
	}
	v.add(key, texts)
}

func (v *Values) add(key manifest.Key, texts []string) {
	slices.Sort(texts)
	texts = slices.Compact(texts)
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(texts) == 0 || slices.ContainsFunc(v.of[key], func(old []string) bool { return slices.Equal(old, texts) }) {
		return
	}
	if v.of == nil {
		v.of = map[manifest.Key][][]string{}
	}
	all := append([][]string{texts}, v.of[key]...)
	v.of[key] = all[:min(len(all), keptValues)]
	v.inside, v.whole = nil, nil
}

// appendTexts adds the texts of a value; of base64 also what it encodes.
func appendTexts(texts []string, value any) []string {
	switch t := value.(type) {
	case map[string]any:
		for _, e := range t {
			texts = appendTexts(texts, e)
		}
	case []any:
		for _, e := range t {
			texts = appendTexts(texts, e)
		}
	case string:
		texts = append(texts, t)
		if plain := decoded(t); plain != "" && len(t) >= minText && utf8.ValidString(plain) {
			texts = append(texts, plain)
		}
	case nil, bool:
	default:
		if text, err := textOf(t); err == nil {
			texts = append(texts, text)
		}
	}
	return slices.DeleteFunc(texts, func(s string) bool { return s == "" })
}

// build makes the replacer. The caller holds mu.
func (v *Values) build() {
	if v.inside != nil {
		return
	}
	v.whole = map[string]struct{}{}
	forms := map[string]struct{}{}
	for _, sets := range v.of {
		for _, texts := range sets {
			for _, t := range texts {
				v.whole[t] = struct{}{}
				if !v.named(t) {
					addForms(forms, t)
				}
			}
		}
	}
	ordered := make([]string, 0, len(forms))
	for f := range forms {
		ordered = append(ordered, f)
	}
	// Of two values that begin at the same place the longer one is replaced.
	slices.SortFunc(ordered, func(a, b string) int {
		if len(a) != len(b) {
			return len(b) - len(a)
		}
		return strings.Compare(a, b)
	})
	pairs := make([]string, 0, 2*len(ordered))
	for _, f := range ordered {
		pairs = append(pairs, f, hiddenText)
	}
	v.inside = strings.NewReplacer(pairs...)
}

// named reports whether a value is part of the name of an object, which
// everybody sees. The caller holds mu.
func (v *Values) named(t string) bool {
	for key := range v.of {
		if strings.Contains(key.Name, t) || strings.Contains(key.Namespace, t) {
			return true
		}
	}
	return false
}

// hiddenText stands for a secret within a text.
const hiddenText = "(secret)"

func addForms(forms map[string]struct{}, t string) {
	if len(strings.TrimSpace(t)) < minText {
		return
	}
	quoted := strconv.Quote(t)
	for _, f := range [...]string{
		t, strings.TrimSpace(t), quoted[1 : len(quoted)-1], url.QueryEscape(t), url.PathEscape(t),
		strings.TrimRight(base64.StdEncoding.EncodeToString([]byte(t)), "="),
	} {
		if len(f) >= minText {
			forms[f] = struct{}{}
		}
	}
	if lines := strings.Split(t, "\n"); len(lines) > 1 {
		for _, l := range lines {
			if l = strings.TrimSpace(l); len(l) >= 2*minText {
				forms[l] = struct{}{}
			}
		}
	}
}

// Text replaces secrets within a text.
func (v *Values) Text(s string) string {
	if v == nil || s == "" {
		return s
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.of) == 0 {
		return s
	}
	v.build()
	return v.inside.Replace(s)
}

// Mask returns a copy of an object in which no secret can be read: the fields
// of paths, and every text that is or contains a resolved value, become keyed
// hashes. Names stay, because no secret may stand there.
func (v *Values) Mask(o *manifest.Object, paths [][]string, key []byte) *manifest.Object {
	out := o.DeepCopy()
	for _, p := range paths {
		at(out.Object, p, func(value any) any {
			if text, ok := value.(string); ok && manifest.IsSecret(o) && p[0] == "data" {
				return text // Secrets are masked as a whole, in the same way everywhere
			}
			return maskAll(value, key)
		})
	}
	if v == nil {
		return out
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.of) == 0 {
		return out
	}
	v.build()
	// The callback returns no error.
	_, _ = rewrite(out.Object, nil, func(path []string, text string) (any, error) {
		if identity(path) || text == "" {
			return text, nil
		}
		if _, is := v.whole[text]; is || v.inside.Replace(text) != text {
			if manifest.IsSecret(o) && (path[0] == "data" || path[0] == "stringData") {
				return text, nil
			}
			return manifest.MaskedValue(key, text), nil
		}
		return text, nil
	})
	return out
}

// identity reports whether a field says which object it is.
func identity(path []string) bool {
	if len(path) == 1 {
		return path[0] == "apiVersion" || path[0] == "kind"
	}
	if path[0] != "metadata" {
		return false
	}
	switch path[1] {
	case "name", "namespace", "uid", "ownerReferences", "resourceVersion", "creationTimestamp", "generateName":
		return true
	}
	return false
}

// maskAll masks each value below one.
func maskAll(value any, key []byte) any {
	switch v := value.(type) {
	case map[string]any:
		for k := range v {
			v[k] = maskAll(v[k], key)
		}
		return v
	case []any:
		for i := range v {
			v[i] = maskAll(v[i], key)
		}
		return v
	case nil:
		return nil
	}
	return manifest.MaskedValue(key, value)
}

// at replaces the value of a path, if it exists. Items are found by their names.
func at(v any, path []string, f func(any) any) {
	for i, s := range path {
		last := i == len(path)-1
		switch t := v.(type) {
		case map[string]any:
			next, ok := t[s]
			if !ok {
				return
			}
			if last {
				t[s] = f(next)
				return
			}
			v = next
		case []any:
			n := itemIndex(t, s)
			if n < 0 {
				return
			}
			if last {
				t[n] = f(t[n])
				return
			}
			v = t[n]
		default:
			return
		}
	}
}

func itemIndex(list []any, s string) int {
	if name, ok := strings.CutPrefix(s, itemPrefix); ok {
		return slices.IndexFunc(list, func(e any) bool {
			m, _ := e.(map[string]any)
			return m["name"] == name
		})
	}
	n, err := strconv.Atoi(s)
	if err != nil || n >= len(list) || n < 0 {
		return -1
	}
	return n
}
