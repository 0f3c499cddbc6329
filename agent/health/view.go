package health

import (
	"strings"

	"github.com/capstan-cd/capstan/shared/manifest"
)

// A view reads fields of an object without copying them.
type view struct{ object map[string]any }

func (v view) get(path ...string) any {
	var at any = v.object
	for _, p := range path {
		m, ok := at.(map[string]any)
		if !ok {
			return nil
		}
		at = m[p]
	}
	return at
}

func (v view) text(path ...string) string {
	s, _ := v.get(path...).(string)
	return s
}

func (v view) yes(path ...string) bool {
	b, _ := v.get(path...).(bool)
	return b
}

func (v view) number(path ...string) int64 { return v.numberOr(0, path...) }

func (v view) numberOr(otherwise int64, path ...string) int64 {
	switch n := v.get(path...).(type) {
	case int64:
		return n
	case int:
		return int64(n)
	case int32:
		return int64(n)
	case float64:
		return int64(n)
	}
	return otherwise
}

func (v view) list(path ...string) []view { return views(v.get(path...)) }

func views(raw any) []view {
	l, _ := raw.([]any)
	out := make([]view, 0, len(l))
	for _, e := range l {
		if m, ok := e.(map[string]any); ok {
			out = append(out, view{m})
		}
	}
	return out
}

// condition returns the status condition of a type; an empty view if there is none.
func (v view) condition(kind string) view {
	for _, c := range v.list("status", "conditions") {
		if c.text("type") == kind {
			return c
		}
	}
	return view{}
}

// is reports whether the condition of a type is True.
func (v view) is(condition string) bool { return v.condition(condition).text("status") == "True" }

// behind reports whether the controller has not yet seen the newest spec.
func (v view) behind() bool {
	return v.number("metadata", "generation") > v.number("status", "observedGeneration")
}

// heldByHook reports whether the object has no finalizer except the hook
// finalizer.
func (v view) heldByHook() bool {
	l, _ := v.get("metadata", "finalizers").([]any)
	for _, f := range l {
		if f != HookFinalizer && f != argoHookFinalizer {
			return false
		}
	}
	return len(l) > 0
}

// finalizers returns the finalizers that delay the object's deletion.
func (v view) finalizers() string {
	l, _ := v.get("metadata", "finalizers").([]any)
	names := make([]string, 0, len(l))
	for _, f := range l {
		if s, ok := f.(string); ok {
			names = append(names, s)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return ", held by finalizer " + strings.Join(names, ", ")
}

func (v view) annotation(name string) string {
	s, _ := manifest.Annotation(&manifest.Object{Object: v.object}, name)
	return s
}

// hook reports whether the object is a hook.
func (v view) hook() bool {
	types, err := manifest.Hooks(&manifest.Object{Object: v.object})
	return err == nil && len(types) > 0
}
