package secrets

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"k8s.io/client-go/util/jsonpath"

	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// The annotations of argocd-vault-plugin that count.
const (
	pathAnnotation    = "avp.kubernetes.io/path"           // path of the short form <key>
	versionAnnotation = "avp.kubernetes.io/secret-version" // version of the short form
	ignoreAnnotation  = "avp.kubernetes.io/ignore"         // the object is left alone
	kvAnnotation      = "avp.kubernetes.io/kv-version"     // version of the KV engine
)

// A reference is what a placeholder stands for.
type reference struct {
	store     string // empty: the first Vault
	path      string
	key       string
	version   int // 0: the newest
	kv        int // version of the KV engine; 0: the server's
	modifiers []string
}

// String names a reference without its value.
func (r reference) String() string {
	s := r.path + "#" + r.key
	if r.store != "" {
		s = r.store + ":" + s
	}
	if r.version > 0 {
		s += "#" + strconv.Itoa(r.version)
	}
	return s
}

var (
	longForm  = regexp.MustCompile(`<path:[^<>\n]*>`)
	shortForm = regexp.MustCompile(`<[A-Za-z0-9_.\-/]+(?: *\|[^<>\n]*)?>`)
)

// opening is how a placeholder begins.
const opening = "<path:"

// form is how placeholders look in one object.
type form struct {
	short   *regexp.Regexp // nil: the object has no annotation with a path
	path    string
	version int
	kv      int
}

// formOf reads the annotations of an object.
func formOf(o *manifest.Object) (form, error) {
	var f form
	if kv, ok := manifest.RawAnnotation(o, kvAnnotation); ok {
		n, err := strconv.Atoi(kv)
		if err != nil || n < 1 || n > 2 {
			return f, fault.New(fault.Invalid, "annotation %s is not 1 or 2", kvAnnotation)
		}
		f.kv = n
	}
	path, ok := manifest.RawAnnotation(o, pathAnnotation)
	if !ok {
		return f, nil
	}
	f.short, f.path = shortForm, path
	if v, ok := manifest.RawAnnotation(o, versionAnnotation); ok {
		n, err := versionOf(v)
		if err != nil {
			return f, err
		}
		f.version = n
	}
	return f, nil
}

func versionOf(s string) (int, error) {
	n, err := strconv.Atoi(strings.TrimSpace(s))
	if err != nil || n < 1 {
		return 0, fault.New(fault.Invalid, "the version of a secret is a whole number from 1")
	}
	return n, nil
}

// has reports whether a text has a placeholder, or what looks like one.
func (f form) has(text string) bool {
	return strings.Contains(text, opening) || f.short != nil && f.short.MatchString(text)
}

// A part is a piece of a text: literal, or a reference.
type part struct {
	literal string
	ref     *reference
}

// parts splits a text at its placeholders.
func (f form) parts(text string) ([]part, error) {
	var out []part
	for text != "" {
		at, isShort := longForm.FindStringIndex(text), false
		if f.short != nil {
			if s := f.short.FindStringIndex(text); s != nil && (at == nil || s[0] < at[0]) {
				at, isShort = s, true
			}
		}
		before := text
		if at != nil {
			before = text[:at[0]]
		}
		if strings.Contains(before, opening) {
			return nil, malformed()
		}
		if before != "" {
			out = append(out, part{literal: before})
		}
		if at == nil {
			return out, nil
		}
		ref, err := f.parse(text[at[0]+1:at[1]-1], isShort)
		if err != nil {
			return nil, err
		}
		out = append(out, part{ref: &ref})
		text = text[at[1]:]
	}
	return out, nil
}

func malformed() error {
	return fault.With(fault.New(fault.Invalid, "a placeholder is malformed"), "", "write it as <path:secret/data/shop#password>, optionally with #VERSION and | base64encode")
}

// parse reads what is between the brackets.
func (f form) parse(text string, isShort bool) (reference, error) {
	words := strings.Split(text, "|")
	r := reference{kv: f.kv}
	for _, m := range words[1:] {
		r.modifiers = append(r.modifiers, strings.TrimSpace(m))
	}
	name := strings.TrimSpace(words[0])
	if isShort {
		r.path, r.key, r.version = f.path, name, f.version
	} else {
		fields := strings.Split(strings.TrimPrefix(name, "path:"), "#")
		if len(fields) < 2 || len(fields) > 3 || strings.TrimSpace(fields[1]) == "" {
			return r, malformed()
		}
		r.path, r.key = strings.TrimSpace(fields[0]), strings.TrimSpace(fields[1])
		if len(fields) == 3 {
			n, err := versionOf(fields[2])
			if err != nil {
				return r, err
			}
			r.version = n
		}
	}
	if store, path, ok := strings.Cut(r.path, ":"); ok {
		r.store, r.path = store, path
	}
	return r, r.check()
}

// check refuses unknown modifiers before anything is read.
func (r reference) check() error {
	for _, m := range r.modifiers {
		name, argument, _ := strings.Cut(m, " ")
		switch name {
		case "base64encode", "base64decode", "sha256sum":
			if argument != "" {
				return fault.New(fault.Invalid, "the modifier %s has no argument", name)
			}
		case "jsonPath":
			if err := jsonpath.New("").Parse(strings.TrimSpace(argument)); argument == "" || err != nil {
				return fault.New(fault.Invalid, "the modifier jsonPath needs a path such as {.user.name}")
			}
		case "indent":
			if n, err := strconv.Atoi(strings.TrimSpace(argument)); err != nil || n < 0 || n > 100 {
				return fault.New(fault.Invalid, "the modifier indent needs a number up to 100")
			}
		default:
			return fault.With(fault.New(fault.Invalid, "the modifier %q is not supported", name), "", "use base64encode, base64decode, jsonPath, indent or sha256sum")
		}
	}
	return nil
}

// hashed reports whether the result is only a hash of the secret.
func (r reference) hashed() bool {
	return len(r.modifiers) > 0 && r.modifiers[len(r.modifiers)-1] == "sha256sum"
}

// modify applies the modifiers to a value.
func (r reference) modify(v any) (any, error) {
	for _, m := range r.modifiers {
		name, argument, _ := strings.Cut(m, " ")
		out, err := modify(v, name, strings.TrimSpace(argument))
		if err != nil {
			return nil, fault.New(fault.Invalid, "the modifier %s cannot be applied to the value of %s", name, r)
		}
		v = out
	}
	return v, nil
}

func modify(v any, name, argument string) (any, error) {
	text, err := textOf(v)
	if err != nil {
		return nil, err
	}
	switch name {
	case "base64encode":
		return base64.StdEncoding.EncodeToString([]byte(text)), nil
	case "base64decode":
		raw, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(text), ""))
		return string(raw), err
	case "sha256sum":
		sum := sha256.Sum256([]byte(text))
		return hex.EncodeToString(sum[:]), nil
	case "indent":
		n, err := strconv.Atoi(argument)
		return strings.ReplaceAll(text, "\n", "\n"+strings.Repeat(" ", n)), err
	}
	return selectJSON(v, text, argument)
}

// selectJSON returns what a JSON path selects in a value, or in the JSON that
// it contains.
func selectJSON(v any, text, path string) (any, error) {
	if _, is := v.(string); is {
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			return nil, err
		}
	}
	p := jsonpath.New("")
	if err := p.Parse(path); err != nil {
		return nil, err
	}
	found, err := p.FindResults(v)
	if err != nil {
		return nil, err
	}
	if len(found) != 1 || len(found[0]) != 1 {
		return nil, fmt.Errorf("it selects not exactly one value")
	}
	return found[0][0].Interface(), nil
}

// textOf writes a value as text: text as it is, numbers and booleans as JSON,
// and objects as JSON, too.
func textOf(v any) (string, error) {
	switch v := v.(type) {
	case string:
		return v, nil
	case nil:
		return "", nil
	case json.Number:
		return v.String(), nil
	}
	raw, err := json.Marshal(v)
	return string(raw), err
}
