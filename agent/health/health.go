// Package health computes the health of a live object, with rules in Go for
// Kubernetes' own kinds; agent/rule has those for all other kinds. It sends no
// requests and changes no object. A field that is missing or of the wrong type
// counts as unset. The engine calls it for every event. Equal objects always
// have equal health.
package health

import (
	"github.com/capstan-cd/capstan/shared/manifest"
)

// The states, best to worst (HLT-01).
const (
	Healthy     = "Healthy"
	Suspended   = "Suspended"
	Progressing = "Progressing"
	Missing     = "Missing"
	Degraded    = "Degraded"
	Unknown     = "Unknown"
)

// HookFinalizer prevents the removal of a hook before its result was read. The
// health of an object in deletion with only this finalizer is computed as if it
// were not being deleted.
const HookFinalizer = "capstan.dev/hook-finalizer"

const argoHookFinalizer = "argocd.argoproj.io/hook-finalizer"

// A Status is the health of an object, with the reason in one sentence.
type Status struct {
	State   string
	Message string
}

// Of returns the health of one live object. ok is false for kinds without a
// rule (HLT-05), whose health is empty and ignored, unless they are being
// deleted.
func Of(o *manifest.Object) (s Status, ok bool) {
	if s, ok = Leaving(o); ok {
		return s, true
	}
	rule := ruleFor(manifest.KeyOf(o))
	if rule == nil {
		return Status{}, false
	}
	return rule(view{o.Object}), true
}

// Leaving is HLT-06: an object that is being deleted is Progressing, regardless
// of its kind and rule.
func Leaving(o *manifest.Object) (s Status, ok bool) {
	v := view{o.Object}
	if v.text("metadata", "deletionTimestamp") == "" || v.heldByHook() {
		return Status{}, false
	}
	return Status{Progressing, "being deleted" + v.finalizers()}, true
}

// Worst returns the worse of two states. An empty one is ignored, an unknown
// word counts as Unknown.
func Worst(a, b string) string {
	if rank(b) > rank(a) {
		return b
	}
	return a
}

// Known reports whether a word is one of the states.
func Known(state string) bool {
	return state == Unknown || rank(state) >= rank(Healthy) && rank(state) < rank(Unknown)
}

func rank(state string) int {
	switch state {
	case "":
		return -1
	case Healthy:
		return 0
	case Suspended:
		return 1
	case Progressing:
		return 2
	case Missing:
		return 3
	case Degraded:
		return 4
	}
	return 5
}

func ruleFor(k manifest.Key) func(view) Status {
	switch k.Group {
	case "":
		return coreRule(k.Kind)
	case "apps":
		return appsRule(k.Kind)
	case "batch":
		if k.Kind == "Job" {
			return job
		}
	case "networking.k8s.io":
		if k.Kind == "Ingress" {
			return ingress
		}
	case "extensions":
		if k.Kind == "Ingress" {
			return ingress
		}
		return appsRule(k.Kind)
	case "autoscaling":
		if k.Kind == "HorizontalPodAutoscaler" {
			return autoscaler
		}
	case "apiregistration.k8s.io":
		if k.Kind == "APIService" {
			return apiService
		}
	case "apiextensions.k8s.io":
		if k.Kind == "CustomResourceDefinition" {
			return definition
		}
	case "argoproj.io":
		if k.Kind == "Workflow" {
			return workflow
		}
	}
	return nil
}

func coreRule(kind string) func(view) Status {
	switch kind {
	case "Pod":
		return pod
	case "Service":
		return service
	case "PersistentVolumeClaim":
		return volumeClaim
	case "Namespace":
		return namespace
	}
	return nil
}

func appsRule(kind string) func(view) Status {
	switch kind {
	case "Deployment":
		return deployment
	case "DaemonSet":
		return daemonSet
	case "ReplicaSet":
		return replicaSet
	case "StatefulSet":
		return statefulSet
	}
	return nil
}
