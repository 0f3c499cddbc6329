package api

import (
	"context"
	"encoding/json"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/catalog"
	"github.com/capstan-cd/capstan/hub/catalog/validation"
	"github.com/capstan-cd/capstan/shared/apimodel"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// toggleAutoSync is the action that Argo CD has for applications (ACT-09).
// Applications are objects of the hub, so the hub itself runs it.
const toggleAutoSync = "toggle-auto-sync"

// isApplication reports whether an object of an application's tree is an
// application of the hub.
func isApplication(o hub.ObjectRef) bool {
	return o.Group == manifest.HubGroup && o.Kind == validation.KindApplication
}

// actionsOf lists what an object of an application's tree offers.
func (s *Server) actionsOf(ctx context.Context, on catalog.View, o hub.ObjectRef) ([]hub.Action, error) {
	if !isApplication(o) {
		return s.Relay.Actions(ctx, *on.On, on.ID, o)
	}
	child, err := s.Catalog.Application(ctx, callerOf(ctx), o.Namespace, o.Name)
	if err != nil {
		return nil, err
	}
	_, enabled, err := toggled(child.Spec)
	if err != nil {
		return nil, err
	}
	name := "Disable Auto-Sync"
	if enabled {
		name = "Enable Auto-Sync"
	}
	return []hub.Action{{Name: toggleAutoSync, DisplayName: name}}, nil
}

// act runs an action that the catalog has permitted.
func (s *Server) act(ctx context.Context, on catalog.View, o hub.ObjectRef, a hub.ActionRequest) ([]hub.ActionChange, error) {
	if !isApplication(o) {
		return s.Relay.Act(ctx, *on.On, on.ID, o, a)
	}
	if a.Name != toggleAutoSync {
		return nil, fault.With(fault.New(fault.Invalid, "there is no action %q of %s %s", a.Name, o.Kind, o.Name), "", "the one action of applications is "+toggleAutoSync)
	}
	// It takes the right to update that application, too: who may act on a
	// parent may not change a child of another project.
	by := callerOf(ctx)
	by.Idempotency = hub.IdempotencyKey{} // it was settled when the action began
	_, err := s.changed(context.WithValue(ctx, callerKey{}, by), o.Namespace, o.Name, "", func(app apimodel.Application) (apimodel.Application, error) {
		var err error
		app.Spec, _, err = toggled(app.Spec)
		return app, err
	})
	if err != nil {
		return nil, err
	}
	return []hub.ActionChange{{ObjectRef: o}}, nil
}

// toggled is a spec with automation switched on where it was off, and off where
// it was on. It reports whether it is on then.
func toggled(spec json.RawMessage) (json.RawMessage, bool, error) {
	var whole map[string]json.RawMessage
	if err := json.Unmarshal(spec, &whole); err != nil {
		return nil, false, fault.Wrap(fault.Invalid, err, "the spec cannot be read")
	}
	policy, automated := map[string]json.RawMessage{}, map[string]json.RawMessage{}
	if err := member(whole["syncPolicy"], &policy); err != nil {
		return nil, false, err
	}
	was := len(policy["automated"]) > 0 && string(policy["automated"]) != "null"
	if err := member(policy["automated"], &automated); err != nil {
		return nil, false, err
	}
	on := !was || string(automated["enabled"]) == "false"
	automated["enabled"] = json.RawMessage("false")
	if on {
		automated["enabled"] = json.RawMessage("true")
	}
	var err error
	if policy["automated"], err = json.Marshal(automated); err != nil {
		return nil, false, err
	}
	if whole["syncPolicy"], err = json.Marshal(policy); err != nil {
		return nil, false, err
	}
	out, err := json.Marshal(whole)
	return out, on, err
}

// member reads a map of a spec; one that is not there leaves into as it is.
func member(text json.RawMessage, into *map[string]json.RawMessage) error {
	if len(text) == 0 || string(text) == "null" {
		return nil
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fault.Wrap(fault.Invalid, err, "spec.syncPolicy cannot be read")
	}
	return nil
}
