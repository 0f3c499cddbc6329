package apply

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// Delete deletes one live object of an application on a user's request
// (DEL-07). Self-heal recreates it if the application still lists it. The
// caller has checked that the object belongs to the application.
func (e *Engine) Delete(ctx context.Context, app string, gvk schema.GroupVersionKind, key manifest.Key, force bool, propagated string) error {
	if inHub(key) {
		return livesInHub(key)
	}
	gvr, namespaced, err := e.reach(ctx, gvk)
	if err != nil {
		return explain(err, key, "delete")
	}
	e.mu.RLock()
	a := e.apps[app]
	e.mu.RUnlock()
	if a == nil {
		return fault.New(fault.Missing, "the agent does not have this application")
	}
	a.mu.Lock()
	if a.state == nil {
		err = fault.New(fault.Offline, "the application's state is missing")
	} else {
		err = a.permits(key, namespaced)
	}
	a.mu.Unlock()
	if err == nil {
		err = e.Guard.deletes(key, namespaced)
	}
	if err == nil {
		err = e.Guard.edits(key, namespaced)
	}
	if err != nil {
		return err
	}
	at := endpoint{resource: gvr, namespace: key.Namespace, name: key.Name}
	live, err := a.kube().get(ctx, at)
	if err != nil {
		return explain(err, key, "read")
	}
	if live == nil {
		return fault.With(fault.New(fault.Missing, "it is not there any more"), key.Describe(), "")
	}
	var grace *int64
	if force {
		grace = new(int64)
	}
	how := propagation([]string{"PrunePropagationPolicy=" + propagated})
	return explain(a.kube().deleteWithin(ctx, at, string(live.GetUID()), how, grace), key, "delete")
}
