package render

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// CheckObject validates one object of a worker. Its reference must match its
// body, because limits of projects are checked by references. It must also be
// valid for the store.
func CheckObject(ref hub.ObjectRef, body []byte) error {
	found, version, err := identity(body, ref.Hook != "")
	if err != nil {
		return err
	}
	claimed := ref.Key()
	if claimed != found || version != ref.Version || ref.Name == "" || ref.Kind == "" || version == "" {
		return fmt.Errorf("the renderer sent %s under the name %s", quote(found.String()), quote(claimed.String()))
	}
	if err := checkIdentity(claimed, version); err != nil {
		return fmt.Errorf("the renderer sent a name that it should have refused: %w", hidden(err))
	}
	if !knownHooks(ref.Hook) {
		return fmt.Errorf("the renderer sent the hook %s", quote(ref.Hook))
	}
	return nil
}

// hidden removes the class of an error: what a worker should have refused is
// not the source's fault.
func hidden(err error) error {
	if e, ok := fault.As(err); ok {
		return fmt.Errorf("%s", e.Cause)
	}
	return err
}

// identity reads what an object is called, exactly as an agent will read it:
// names of fields count with their case, and of a field that is given twice
// the last one.
func identity(body []byte, hook bool) (manifest.Key, string, error) {
	bad := func(err error) (manifest.Key, string, error) {
		return manifest.Key{}, "", fmt.Errorf("the renderer sent an object that is not JSON: %w", err)
	}
	var top map[string]json.RawMessage
	if err := json.Unmarshal(body, &top); err != nil {
		return bad(err)
	}
	var meta map[string]json.RawMessage
	if raw, ok := top["metadata"]; ok {
		if err := json.Unmarshal(raw, &meta); err != nil {
			return bad(err)
		}
	}
	var text [5]string
	for i, raw := range [...]json.RawMessage{top["apiVersion"], top["kind"], meta["name"], meta["generateName"], meta["namespace"]} {
		if raw == nil {
			continue
		}
		if err := json.Unmarshal(raw, &text[i]); err != nil {
			return bad(err)
		}
	}
	group, version, ok := strings.Cut(text[0], "/")
	if !ok {
		group, version = "", text[0]
	}
	if text[2] == "" {
		text[2] = generatedName(text[3], hook)
	}
	return manifest.Key{Group: group, Kind: text[1], Namespace: text[4], Name: text[2]}, version, nil
}

func knownHooks(list string) bool {
	if list == "" {
		return true
	}
	known := []string{
		manifest.HookPreSync, manifest.HookSync, manifest.HookPostSync, manifest.HookSyncFail,
		manifest.HookPreDelete, manifest.HookPostDelete, manifest.HookSkip,
	}
	for h := range strings.SplitSeq(list, ",") {
		if !slices.Contains(known, h) {
			return false
		}
	}
	return len(list) < 200
}
