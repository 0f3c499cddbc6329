package apply

import (
	"context"
	"encoding/json"
	"regexp"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// editManager is behind the field manager's name for what people edit.
const editManager = "-edit"

// A PatchRequest is a user's change of one live object.
type PatchRequest struct {
	Application string
	Kind        schema.GroupVersionKind
	Key         manifest.Key
	Type        string // merge, strategic or json
	Patch       []byte
	DryRun      bool
}

// Patch changes one live object of an application, if its project and the
// cluster's owner permit it. A dry run comes first, so what admission refuses
// changes nothing. It returns the object after the patch, and the fields that it
// marked as secret before.
func (e *Engine) Patch(ctx context.Context, r PatchRequest) (o *manifest.Object, marked [][]string, err error) {
	if inHub(r.Key) {
		return nil, nil, livesInHub(r.Key)
	}
	kind, err := patchType(r)
	if err != nil {
		return nil, nil, fault.With(err, r.Key.Describe(), "")
	}
	gvr, namespaced, err := e.reach(ctx, r.Kind)
	if err != nil {
		return nil, nil, explain(err, r.Key, "patch")
	}
	a := e.known(r.Application)
	if a == nil {
		return nil, nil, fault.New(fault.Missing, "the agent does not have this application")
	}
	hidden, err := a.mayPatch(r.Key, namespaced)
	if err != nil {
		return nil, nil, err
	}
	at := endpoint{resource: gvr, namespace: r.Key.Namespace, name: r.Key.Name}
	live, err := a.kube().get(ctx, at)
	if err != nil {
		return nil, nil, explain(err, r.Key, "read")
	}
	if live != nil {
		marked = manifest.MarkedFields(live)
	}
	if hidden = hidden || len(marked) > 0; hidden {
		if err := revealsNothing(kind, r.Patch); err != nil {
			return nil, nil, fault.With(err, r.Key.Describe(), "")
		}
	}
	write := patch{
		endpoint: at, kind: kind, body: r.Patch, manager: e.Manager + editManager, dryRun: true,
	}
	out, err := a.kube().patch(ctx, write, nil)
	if err == nil && !r.DryRun {
		write.dryRun = false
		out, err = a.kube().patch(ctx, write, nil)
	}
	if err != nil {
		return nil, nil, explainAs(err, r.Key, "patch", hidden)
	}
	return &manifest.Object{Object: withoutFields(out.Object)}, marked, nil
}

// mayPatch is an error unless an object may be changed. hidden means that it has
// values that nobody may see.
func (a *app) mayPatch(key manifest.Key, namespaced bool) (hidden bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.state == nil {
		return false, fault.New(fault.Offline, "the application's state is missing")
	}
	x := a.objects[key]
	hidden = key.Kind == "Secret" || x != nil && x.record != nil && x.record.Secret != nil
	if err := a.permits(key, namespaced); err != nil {
		return hidden, err
	}
	return hidden, a.e.Guard.edits(key, namespaced)
}

// patchType is how the API server is to read a patch.
func patchType(r PatchRequest) (types.PatchType, error) {
	if !json.Valid(r.Patch) {
		return "", fault.New(fault.Invalid, "the patch is no JSON")
	}
	switch r.Type {
	case "", "merge":
		return types.MergePatchType, nil
	case "strategic":
		return types.StrategicMergePatchType, nil
	case "json":
		return types.JSONPatchType, nil
	}
	return "", fault.With(fault.New(fault.Invalid, "patch type %q is unknown", r.Type), "", "use merge, strategic or json")
}

var maskedValue = regexp.MustCompile(`"hmac:[0-9a-f]{16}"`)

// revealsNothing refuses patches by which hidden values could be read, and those
// that would replace values by their masks.
func revealsNothing(kind types.PatchType, body []byte) error {
	if maskedValue.Match(body) {
		return fault.With(fault.New(fault.Invalid, "the patch has values that are masked"), "", "leave out what you do not change")
	}
	if kind != types.JSONPatchType {
		return nil
	}
	var steps []map[string]json.RawMessage // exact names: those of a struct would ignore case
	if err := json.Unmarshal(body, &steps); err != nil {
		return fault.New(fault.Invalid, "the patch is no list of operations")
	}
	for _, s := range steps {
		switch op := string(s["op"]); op {
		case `"add"`, `"replace"`, `"remove"`:
		default:
			return fault.With(fault.New(fault.Denied, "operation %s could show values that are hidden", op), "", "use add, replace and remove")
		}
	}
	return nil
}
