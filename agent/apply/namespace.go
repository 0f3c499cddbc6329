package apply

import (
	"context"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/failpoint"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// ensureNamespace creates a missing namespace (SYNC-26), and applies its
// managed labels and annotations (SYNC-27). It uses a field manager of its own.
// The namespace is not tracked, and is never deleted with the application. No
// request is sent for a namespace that is known to be unchanged.
func (a *app) ensureNamespace(ctx context.Context, name string, labels, annotations map[string]string) (written, error) {
	key, at := namespaceKey(name), namespacePlace(name)
	bare := len(labels)+len(annotations) == 0
	a.mu.Lock()
	limits, project := a.state.GetPolicy().GetLimits(), a.state.GetProject()
	m := &nsMeta{app: a.state.GetName(), namespace: name, labels: labels, annotations: annotations}
	a.ensured = m
	a.mu.Unlock()
	if err := a.e.mayEnter(name, limits, project); err != nil {
		return written{}, err
	}
	if bare && a.e.namespaceThere(name) {
		return written{message: unchanged}, nil
	}
	live, err := a.kube().get(ctx, at)
	if err != nil && !apierrors.IsForbidden(err) {
		return written{}, explain(err, key, "read")
	}
	out, got := written{message: unchanged}, live
	rivals := a.e.rivals(a, name, live)
	if live == nil || !bare && !a.e.carries(m, live, rivals) {
		if got, err = a.writeNamespace(ctx, m, live, rivals); err != nil {
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
	a.e.namespaceSeen(name, true)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.nsMeta != nil && a.nsMeta.namespace == name {
		a.nsObserved(ctx, got)
	}
	if _, taken := m.lacks(got, rivals); len(taken) > 0 {
		out.message += ", " + strings.Join(taken, "; ")
	}
	return out, nil
}

// mayEnter checks a namespace against the cluster's owner and the project.
func (e *Engine) mayEnter(name string, limits *linkv1.Limits, project string) error {
	if err := e.Guard.enters(namespaceKey(name), name); err != nil {
		return err
	}
	if err := managedHere(limits, manifest.Key{Kind: "Namespace", Namespace: name, Name: name}, true); err != nil {
		return err
	}
	if len(limits.GetNamespaces()) > 0 && !matchesNamespace(limits.GetNamespaces(), name) {
		return denied(project, namespaceKey(name), "objects in namespace "+name)
	}
	return nil
}

// carries reports whether a namespace has what an application manages, and
// nothing that it managed only before.
func (e *Engine) carries(m *nsMeta, live *manifest.Object, rivals []*nsMeta) bool {
	manager := e.Manager + namespaceManager
	for _, labels := range [...]bool{true, false} {
		there, section := live.GetAnnotations(), "f:annotations"
		if labels {
			there, section = live.GetLabels(), "f:labels"
		}
		wish := m.desiredOf(live, labels, rivals, manager)
		has := writtenKeys(live, manager, section)
		if len(has) != len(wish) {
			return false
		}
		for key, value := range wish {
			if there[key] != value || !slices.Contains(has, key) {
				return false
			}
		}
	}
	return true
}

// writeNamespace applies what this application manages, and preserves what
// others manage.
func (a *app) writeNamespace(ctx context.Context, m *nsMeta, live *manifest.Object, rivals []*nsMeta) (*manifest.Object, error) {
	manager := a.e.Manager + namespaceManager
	labels, annotations := m.desiredOf(live, true, rivals, manager), m.desiredOf(live, false, rivals, manager)
	text, err := manifest.Canonical(namespaceObject(m.namespace, labels, annotations))
	if err != nil {
		return nil, err
	}
	return a.kube().patch(ctx, patch{endpoint: namespacePlace(m.namespace), kind: types.ApplyPatchType, body: text, manager: manager}, nil)
}

func namespacePlace(name string) endpoint {
	return endpoint{resource: schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, name: name}
}

// namespaceThere reports whether a namespace existed at the last check.
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

// namespaceGone recreates the destination's namespace if an object was refused
// because it was deleted, and the application may create it.
func (a *app) namespaceGone(ctx context.Context, s *sending, err error) bool {
	if s.dryRun || !isGone(err) || !hasOption(s.options, "CreateNamespace", "true") {
		return false
	}
	a.mu.Lock()
	name, m := a.state.GetNamespace(), a.ensured
	gone := name != "" && name == s.key.Namespace && strings.Contains(err.Error(), "namespaces \""+name+"\"")
	if a.nsMeta != nil { // the newest state takes precedence over what was written last
		m = a.nsMeta
	}
	if m == nil || m.namespace != name {
		m = &nsMeta{}
	}
	a.mu.Unlock()
	if !gone {
		return false
	}
	a.e.namespaceSeen(name, false)
	_, err = a.ensureNamespace(ctx, name, m.labels, m.annotations)
	return err == nil
}
