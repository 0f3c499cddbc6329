package apply

import (
	"context"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capstan-cd/capstan/shared/failpoint"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// ensureNamespace makes a namespace that is not there (SYNC-26), and keeps
// its managed labels and annotations (SYNC-27). It is done by a manager of
// its own, is not tracked, and is never deleted with the application. A
// process does it once for each namespace and set of metadata; applications
// that only need the namespace to be there share the answer.
func (a *app) ensureNamespace(ctx context.Context, name string, labels, annotations map[string]string) (written, error) {
	key := manifest.Key{Kind: "Namespace", Name: name}
	at := place{resource: schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, name: name}
	text, err := manifest.Canonical(namespaceObject(name, labels, annotations))
	if err != nil {
		return written{}, err
	}
	a.mu.Lock()
	_, done := a.namespaces[string(text)]
	limits, project := a.state.GetPolicy().GetLimits(), a.state.GetProject()
	a.mu.Unlock()
	if err := a.e.Guard.enters(key, name); err != nil {
		return written{}, err
	}
	if done {
		return written{message: unchanged}, nil
	}
	bare := len(labels)+len(annotations) == 0
	if len(limits.GetNamespaces()) > 0 && !matchesNamespace(limits.GetNamespaces(), name) {
		return written{}, denied(project, key, "objects in namespace "+name)
	}
	if bare && a.e.namespaceThere(name) {
		return written{message: unchanged}, nil
	}
	live, err := a.e.kube.get(ctx, at)
	if err != nil && !apierrors.IsForbidden(err) {
		return written{}, explain(err, key, "read")
	}
	out := written{message: unchanged}
	if live == nil || !bare {
		got, err := a.e.kube.patch(ctx, patch{place: at, kind: types.ApplyPatchType, body: text, manager: a.e.Manager + namespaceManager}, nil)
		if err != nil {
			return written{}, explain(err, key, "create")
		}
		switch {
		case live == nil:
			out = written{changed: true, message: "created"}
		case got.GetResourceVersion() != live.GetResourceVersion():
			out = written{changed: true, message: "configured"}
		}
	}
	failpoint.Here(failpoint.AgentNamespace)
	a.mu.Lock()
	a.namespaces[string(text)] = struct{}{}
	a.mu.Unlock()
	a.e.namespaceSeen(name, true)
	return out, nil
}

// namespaceThere says whether a namespace was there when this process last
// had to know.
func (e *Engine) namespaceThere(name string) bool {
	e.mu.RLock()
	defer e.mu.RUnlock()
	_, ok := e.namespaces[name]
	return ok
}

func (e *Engine) namespaceSeen(name string, there bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if there {
		e.namespaces[name] = struct{}{}
	} else {
		delete(e.namespaces, name)
	}
}

func namespaceObject(name string, labels, annotations map[string]string) *manifest.Object {
	meta := map[string]any{"name": name}
	if len(labels) > 0 {
		meta["labels"] = labels
	}
	if len(annotations) > 0 {
		meta["annotations"] = annotations
	}
	return &manifest.Object{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": meta}}
}

// namespaceGone makes the destination's namespace again if an object was
// refused because somebody deleted it, and the application may make it.
func (a *app) namespaceGone(ctx context.Context, s *sending, err error) bool {
	if s.dryRun || !gone(err) || !hasOption(s.options, "CreateNamespace", "true") {
		return false
	}
	a.mu.Lock()
	name := a.state.GetNamespace()
	gone := name != "" && name == s.key.Namespace && strings.Contains(err.Error(), "namespaces \""+name+"\"")
	if gone {
		clear(a.namespaces)
	}
	a.mu.Unlock()
	if !gone {
		return false
	}
	a.e.namespaceSeen(name, false)
	_, err = a.ensureNamespace(ctx, name, nil, nil)
	return err == nil
}
