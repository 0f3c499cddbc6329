package render

import (
	"fmt"
	"path"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// Assemble makes the final objects of all sources: checked, normalised, each
// once, in a stable order and in canonical form. If an object occurs twice, the
// last one counts, with a warning (SRC-12). Objects without a namespace are in
// namespace, that of the destination.
func Assemble(rendered []Rendered, namespace string, limits Limits) ([]Object, []string, error) {
	limits = limits.withDefaults()
	if len(rendered) > limits.Objects {
		return nil, nil, fault.With(fault.New(fault.Exceeded, "the source makes %d objects, more than the limit of %d", len(rendered), limits.Objects),
			"", "split the application")
	}
	files := make(map[*manifest.Object]string, len(rendered))
	for _, r := range rendered {
		if err := checkObject(r.Object); err != nil {
			return nil, nil, fault.With(err, r.File, "")
		}
		if err := manifest.Normalize(r.Object); err != nil {
			return nil, nil, inFile(r.File, err)
		}
		files[r.Object] = r.File
	}
	objects, warnings := dropDuplicates(rendered, namespace)
	manifest.Order(objects)
	out := make([]Object, 0, len(objects))
	var total int64
	for _, o := range objects {
		if foreignHook(o) {
			continue
		}
		made, err := finish(o)
		if err != nil {
			return nil, nil, inFile(files[o], err)
		}
		size := int64(len(made.JSON))
		if size > limits.ObjectBytes {
			return nil, nil, fault.With(fault.New(fault.Exceeded, "%s has %d bytes, and an object may have %d", describe(o), size, limits.ObjectBytes), files[o], "")
		}
		if total += size; total > limits.OutputBytes {
			return nil, nil, fault.With(fault.New(fault.Exceeded, "the objects have more than %d bytes together", limits.OutputBytes), "", "split the application")
		}
		warnings = append(warnings, misread(o)...)
		out = append(out, made)
	}
	return out, warnings, nil
}

// dropDuplicates drops all but the last of objects with the same key.
func dropDuplicates(rendered []Rendered, namespace string) ([]*manifest.Object, []string) {
	count := make(map[manifest.Key]int, len(rendered))
	last := make(map[manifest.Key]int, len(rendered))
	keys := make([]manifest.Key, len(rendered))
	for i, r := range rendered {
		keys[i] = manifest.KeyOf(r.Object)
		if keys[i].Namespace == namespace {
			keys[i].Namespace = ""
		}
		count[keys[i]]++
		last[keys[i]] = i
	}
	var out []*manifest.Object
	var warnings []string
	for i, r := range rendered {
		generated := keys[i].Name == ""
		if !generated && last[keys[i]] != i {
			continue
		}
		out = append(out, r.Object)
		if n := count[keys[i]]; n > 1 && !generated {
			warnings = append(warnings, fmt.Sprintf("%s: %s appeared %d times among the application's objects; the last one wins (%s)",
				RepeatedResource, manifest.KeyOf(r.Object), n, r.File))
		}
	}
	return out, warnings
}

// checkObject is the last check of a renderer's object: it must have what its
// reference needs.
func checkObject(o *manifest.Object) error {
	switch {
	case o == nil || o.Object == nil:
		return fault.New(fault.Invalid, "a document is not a Kubernetes object")
	case o.GetAPIVersion() == "":
		return fault.New(fault.Invalid, "an object has no apiVersion")
	case o.GetKind() == "":
		return fault.New(fault.Invalid, "an object of %s has no kind", quote(o.GetAPIVersion()))
	case o.GetName() == "" && o.GetGenerateName() == "":
		return fault.New(fault.Invalid, "an object of kind %s has neither metadata.name nor metadata.generateName", quote(o.GetKind()))
	}
	key := manifest.KeyOf(o)
	if key.Name == "" {
		key.Name = o.GetGenerateName()
	}
	return checkIdentity(key, manifest.Version(o))
}

// The longest names that are stored, in bytes. No cluster accepts longer ones
// of these kinds; only names that are path segments, such as those of roles,
// have no limit of their own there.
const (
	maxGroup     = 253
	maxKind      = 63
	maxNamespace = 63
	maxName      = 512
)

// checkIdentity refuses what no cluster accepts as the name of an object,
// before it reaches a database, a log or a screen.
func checkIdentity(key manifest.Key, version string) error {
	for _, part := range [...]struct {
		what, text string
		most       int
	}{
		{"the group of its apiVersion", key.Group, maxGroup}, {"the version of its apiVersion", version, maxKind},
		{"its kind", key.Kind, maxKind}, {"metadata.namespace", key.Namespace, maxNamespace}, {"metadata.name", key.Name, maxName},
	} {
		if len(part.text) > part.most {
			return fault.New(fault.Invalid, "an object cannot have this name: %s has %d bytes, more than the limit of %d (%s)",
				part.what, len(part.text), part.most, quote(part.text))
		}
		if !utf8.ValidString(part.text) || strings.ContainsFunc(part.text, unprintable) {
			return fault.New(fault.Invalid, "an object cannot have this name: %s has a character that cannot be printed (%s)", part.what, quote(part.text))
		}
	}
	return nil
}

// unprintable are control characters, those that change the direction of text,
// and invisible ones.
func unprintable(c rune) bool { return !unicode.IsPrint(c) }

func finish(o *manifest.Object) (Object, error) {
	hooks, err := manifest.Hooks(o)
	if err != nil {
		return Object{}, err
	}
	text, err := manifest.Canonical(o)
	if err != nil {
		return Object{}, err
	}
	key := manifest.KeyOf(o)
	if key.Name == "" {
		key.Name = generatedName(o.GetGenerateName(), len(hooks) > 0)
	}
	ref := hub.ObjectRef{
		Group: key.Group, Version: manifest.Version(o), Kind: key.Kind, Namespace: key.Namespace, Name: key.Name,
		Wave: manifest.Wave(o), Hook: strings.Join(hooks, ","),
	}
	return Object{Ref: ref, JSON: text}, nil
}

// generatedName replaces the name of an object that has only generateName. Only
// a hook can be created from it; the agent refuses any other object, and only
// this one (SRC-20).
func generatedName(prefix string, hook bool) string {
	if hook {
		return prefix
	}
	return manifest.StandIn(prefix)
}

func describe(o *manifest.Object) string {
	name := o.GetName()
	if name == "" {
		name = o.GetGenerateName() + "…"
	}
	return o.GetKind() + " " + path.Join(o.GetNamespace(), name)
}

// foreignHook reports whether an object is a Helm hook that has no equivalent,
// such as a test: it is no part of the application (HELM-18).
func foreignHook(o *manifest.Object) bool {
	if _, own := manifest.Annotation(o, "hook"); own {
		return false
	}
	hooks, err := manifest.Hooks(o)
	return err == nil && len(hooks) == 1 && hooks[0] == manifest.HookSkip
}

// misread returns warnings about annotations that are ignored because their
// values are invalid.
func misread(o *manifest.Object) []string {
	out := append(manifest.Misread(o), hub.MisreadSyncOptions(manifest.Options(o), true)...)
	for i := range out {
		out[i] = describe(o) + ": " + out[i]
	}
	return out
}

// inFile adds the file to an error about an object, and preserves the object's
// name.
func inFile(file string, err error) error {
	e, ok := fault.As(err)
	if !ok {
		return fmt.Errorf("%s: %w", file, err)
	}
	c := *e
	c.Object = strings.TrimSuffix(file+": "+e.Object, ": ")
	return &c
}
