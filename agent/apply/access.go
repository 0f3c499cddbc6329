package apply

import (
	"context"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// mostReviews limits the requests of one check.
const mostReviews = 1000

// An AccessReport is what the service account of an application lacks.
type AccessReport struct {
	User               string // empty: the project names none
	Enabled, Enforced  bool
	Objects            int
	Missing            []MissingRight
	Incomplete         bool // there were more than mostReviews rights to check
	asked              int
	checked, forbidden map[MissingRight]bool
}

// A MissingRight is a right that a service account lacks.
type MissingRight struct {
	Verb, Group, Resource, Namespace, Name string // an empty name is any
}

// Fix says how to grant the right to a user.
func (m MissingRight) Fix(user string) string {
	return lackedRight{user: user, verb: m.Verb, resource: m.Resource, group: m.Group, namespace: m.Namespace}.fix()
}

// CheckAccess asks the API server whether the application's service account has
// the rights to read, create, change and delete its objects (IMP-04). Objects of
// one kind and namespace are one question per verb, unless the account has the
// right for some names only. It works before impersonation is enabled, and
// changes nothing.
func (e *Engine) CheckAccess(ctx context.Context, id string) (AccessReport, error) {
	e.mu.RLock()
	a := e.apps[id]
	e.mu.RUnlock()
	if a == nil {
		return AccessReport{}, fault.New(fault.Missing, "the agent does not have this application")
	}
	s := e.tenantSettings()
	r := &AccessReport{Enabled: s.Impersonate, Enforced: s.Impersonate && !s.ImpersonateOptional, checked: map[MissingRight]bool{}, forbidden: map[MissingRight]bool{}}
	if to := a.account.Load(); to != nil {
		r.User = to.user
	}
	targets, err := a.accessTargets(ctx)
	r.Objects = len(targets)
	if err != nil || r.User == "" {
		return *r, err
	}
	k := e.kube.as(r.User)
	for _, t := range targets {
		for _, verb := range []string{"get", "create", "patch", "delete"} {
			if t.keep && verb == "delete" {
				continue
			}
			if err := r.need(ctx, k, t, verb); err != nil {
				return *r, err
			}
		}
		if len(r.Missing) > 0 && r.Missing[0].Verb == "impersonate" {
			break // no other question has an answer
		}
	}
	return *r, nil
}

// An accessTarget is an object that an application writes.
type accessTarget struct {
	endpoint

	keep bool // it is never deleted
}

// accessTargets are the objects of the newest state, and its namespace if the
// application creates it.
func (a *app) accessTargets(ctx context.Context) ([]accessTarget, error) {
	type wanted struct {
		key manifest.Key
		gvk schema.GroupVersionKind
	}
	var all []wanted
	var out []accessTarget
	a.mu.Lock()
	if a.state == nil {
		a.mu.Unlock()
		return nil, fault.New(fault.Offline, "the application's state is missing")
	}
	if hasOption(a.state.GetPolicy().GetSyncOptions(), "CreateNamespace", "true") && a.state.GetNamespace() != "" {
		out = append(out, accessTarget{namespacePlace(a.state.GetNamespace()), true})
	}
	for _, key := range a.keys() {
		if x := a.objects[key]; !inHub(key) && (x.target != nil || x.record != nil) {
			all = append(all, wanted{key, x.gvk})
		}
	}
	a.mu.Unlock()
	for _, w := range all {
		gvr, namespaced, err := a.e.Mapper.Find(ctx, w.gvk)
		if fault.KindOf(err) == fault.Missing {
			continue // its kind is not served yet
		}
		if err != nil {
			return nil, explain(err, w.key, "find")
		}
		at := endpoint{resource: gvr, namespace: w.key.Namespace, name: w.key.Name}
		if !namespaced {
			at.namespace = ""
		}
		out = append(out, accessTarget{at, false})
	}
	return out, nil
}

// need adds a right to the report if it is missing: for any name, or for this
// object. Nobody can be given create for some names.
func (r *AccessReport) need(ctx context.Context, k *kube, t accessTarget, verb string) error {
	right := MissingRight{Verb: verb, Group: t.resource.Group, Resource: t.resource.Resource, Namespace: t.namespace}
	if !r.checked[right] {
		allowed, err := r.review(ctx, k, right)
		if err != nil {
			return err
		}
		r.checked[right], r.forbidden[right] = true, !allowed
		if !allowed && verb == "create" {
			r.Missing = append(r.Missing, right)
		}
	}
	if !r.forbidden[right] || verb == "create" || slices.Contains(r.Missing, right) || len(r.Missing) > 0 && r.Missing[0].Verb == "impersonate" {
		return nil
	}
	named := right
	named.Name = t.name
	allowed, err := r.review(ctx, k, named)
	if err == nil && !allowed {
		r.Missing = append(r.Missing, named)
	}
	return err
}

// review asks whether the user of a client has a right.
func (r *AccessReport) review(ctx context.Context, k *kube, right MissingRight) (bool, error) {
	if r.asked++; r.asked > mostReviews {
		r.Incomplete = true
		return true, nil
	}
	attributes := map[string]any{"verb": right.Verb, "group": right.Group, "resource": right.Resource, "namespace": right.Namespace, "name": right.Name}
	ask := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": map[string]any{"resourceAttributes": attributes},
	}}
	reviews := schema.GroupVersionResource{Group: "authorization.k8s.io", Version: "v1", Resource: "selfsubjectaccessreviews"}
	var reply *unstructured.Unstructured
	err := k.retry(ctx, reviews, nil, func(ctx context.Context) (err error) {
		reply, err = k.at(endpoint{resource: reviews}).Create(ctx, ask, metav1.CreateOptions{})
		return err
	})
	if lack, ok := lackedBy(err); ok && lack.impersonates() {
		namespace, name, _ := serviceAccount(strings.TrimSpace(r.User))
		r.Missing = []MissingRight{{Verb: "impersonate", Resource: "serviceaccounts", Namespace: namespace, Name: name}}
		return false, nil
	}
	if apierrors.IsForbidden(err) {
		return false, fault.Wrap(fault.Denied, err, "the API server does not answer %s about its rights: %s", r.User, err.Error())
	}
	if err != nil {
		return false, explain(err, manifest.Key{Kind: "SelfSubjectAccessReview"}, "check the rights of "+r.User+" with")
	}
	allowed, _, _ := unstructured.NestedBool(reply.Object, "status", "allowed")
	return allowed, nil
}
