package diff

import (
	"slices"

	"github.com/capstan-cd/capstan/shared/manifest"
)

// Former reports whether a manager is a tool that applied whole manifests, so
// that its fields are transferred to the next applier.
func Former(manager string) bool {
	switch manager {
	case "argocd-controller", "kubectl-client-side-apply", "kubectl", "helm":
		return true
	}
	return false
}

// Adopt returns the managedFields of a live object in which everything of
// former managers is transferred to manager, as if it had applied it. From then
// on a field that is removed from the manifests is removed from the object.
// taken names the former managers that owned fields; if there are none, nothing
// changes. Entries of subresources and of other versions of the kind stay as
// they are.
func Adopt(live *manifest.Object, manager string, former func(string) bool) (entries []any, taken []string) {
	ours := map[string]any{}
	var rest []any
	at := ""
	for _, e := range managedEntries(live) {
		name, _ := e["manager"].(string)
		sub, _ := e["subresource"].(string)
		fields, _ := e["fieldsV1"].(map[string]any)
		mine := name == manager && e["operation"] == "Apply"
		if sub != "" || e["apiVersion"] != live.GetAPIVersion() || !(mine || former(name)) {
			rest = append(rest, e)
			continue
		}
		if !mine && !slices.Contains(taken, name) {
			taken = append(taken, name)
		}
		if when, _ := e["time"].(string); when > at {
			at = when
		}
		ours = union(ours, fields, true)
	}
	if len(taken) == 0 {
		return nil, nil
	}
	delete(ours, "f:status")
	slices.Sort(taken)
	entry := map[string]any{
		"manager": manager, "operation": "Apply", "apiVersion": live.GetAPIVersion(), "fieldsType": "FieldsV1", "fieldsV1": ours,
	}
	if at != "" {
		entry["time"] = at
	}
	return append(rest, entry), taken
}

// union joins two sets of fields. A leaf means that the field itself is owned,
// which next to other members is written as ".".
func union(a, b map[string]any, top bool) map[string]any {
	out := make(map[string]any, len(a)+len(b))
	for k, v := range a {
		out[k] = v
	}
	for k, v := range b {
		mine, both := out[k].(map[string]any)
		theirs, ok := v.(map[string]any)
		if !both || !ok {
			out[k] = v
			continue
		}
		out[k] = union(mine, theirs, false)
	}
	if !top && (len(a) == 0) != (len(b) == 0) {
		out["."] = map[string]any{}
	}
	return out
}
