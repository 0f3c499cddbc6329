package action

import (
	"reflect"
	"strings"

	"github.com/capstan-cd/capstan/shared/fault"
)

// changes reads what an action returned: the object's new content, or a list of
// {operation, resource}.
func changes(result any, source map[string]any) ([]Change, error) {
	switch r := result.(type) {
	case map[string]any:
		if len(r) == 0 {
			return nil, nil
		}
		c, err := checked(Change{Object: r}, source)
		if err != nil {
			return nil, err
		}
		return []Change{c}, nil
	case []any:
		return listed(r, source)
	}
	return nil, fault.New(fault.Invalid, "the action returned neither an object nor a list of changes")
}

func listed(list []any, source map[string]any) ([]Change, error) {
	if len(list) > maxChanges {
		return nil, fault.New(fault.Exceeded, "the action returned %d changes, and at most %d are made", len(list), maxChanges)
	}
	out := make([]Change, 0, len(list))
	for i, e := range list {
		fields, _ := e.(map[string]any)
		object, ok := fields["resource"].(map[string]any)
		if !ok {
			return nil, fault.New(fault.Invalid, "change %d that the action returned has no resource", i+1)
		}
		c := Change{Object: object}
		switch operation := text(fields["operation"]); operation {
		case "create":
			c.Create = true
		case "patch":
		default:
			return nil, fault.New(fault.Invalid, "change %d that the action returned has the operation %q; it must be create or patch", i+1, operation)
		}
		c, err := checked(c, source)
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}

// checked refuses a change of any object but the one that the action was run
// for, and a new object that is not valid.
func checked(c Change, source map[string]any) (Change, error) {
	is, own := identify(c.Object), identify(source)
	if !c.Create {
		if is != own {
			return Change{}, fault.With(fault.New(fault.Invalid, "the action returned a change of %s; it may change only the object it is run for, and create others",
				is), own.String(), "")
		}
		return c, nil
	}
	meta, _ := c.Object["metadata"].(map[string]any)
	if is.version == "" || is.kind == "" || is.name == "" && text(meta["generateName"]) == "" {
		return Change{}, fault.With(fault.New(fault.Invalid, "the action returned an object to create without apiVersion, kind or name"), own.String(), "")
	}
	if is.namespace == "" && own.namespace != "" {
		meta["namespace"] = own.namespace
	}
	for _, field := range given() {
		delete(meta, field)
	}
	return c, nil
}

// given are the fields of metadata that the API server sets.
func given() []string {
	return []string{"uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "selfLink", "deletionTimestamp"}
}

// An identity distinguishes objects.
type identity struct{ group, version, kind, namespace, name, uid string }

func identify(o map[string]any) identity {
	meta, _ := o["metadata"].(map[string]any)
	group, version, found := strings.Cut(text(o["apiVersion"]), "/")
	if !found {
		group, version = "", group
	}
	return identity{group, version, text(o["kind"]), text(meta["namespace"]), text(meta["name"]), text(meta["uid"])}
}

// String names the object for people.
func (i identity) String() string {
	if i.namespace == "" {
		return i.kind + " " + i.name
	}
	return i.kind + " " + i.namespace + "/" + i.name
}

// Patch returns the JSON merge patches that change live to the action's result:
// of the object itself, and of its status. A nil patch changes nothing.
func Patch(live, want map[string]any) (body, status map[string]any) {
	body = merge(live, want)
	for _, field := range given() {
		if meta, ok := body["metadata"].(map[string]any); ok {
			delete(meta, field)
			if len(meta) == 0 {
				delete(body, "metadata")
			}
		}
	}
	if s, ok := body["status"]; ok {
		status = map[string]any{"status": s}
		delete(body, "status")
	}
	if len(body) == 0 {
		body = nil
	}
	return body, status
}

// merge is the merge patch from one map to another. A null counts as a missing
// field.
func merge(from, to map[string]any) map[string]any {
	out := map[string]any{}
	for k, was := range from {
		if is, ok := to[k]; (!ok || is == nil) && was != nil {
			out[k] = nil
		}
	}
	for k, is := range to {
		was := from[k]
		if is == nil || reflect.DeepEqual(was, is) {
			continue
		}
		a, one := was.(map[string]any)
		b, two := is.(map[string]any)
		if !one || !two {
			out[k] = is
			continue
		}
		if sub := merge(a, b); len(sub) > 0 {
			out[k] = sub
		}
	}
	return out
}
