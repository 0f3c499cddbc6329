package doctor

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/capstan-cd/capstan/shared/fault"
)

// right is one right that an agent needs.
type right struct {
	group, resource, verb, namespace, name string
}

func (c right) String() string {
	s := c.verb + " " + c.resource
	if c.group != "" {
		s += "." + c.group
	}
	if c.namespace != "" {
		s += " in namespace " + c.namespace
	}
	return s
}

// rights checks three groups: rights without which the agent does not run,
// rights that it needs to deploy (which may be restricted on purpose), and
// rights that its mode does not need.
func (c Cluster) rights(ctx context.Context, r *Report) {
	own := []right{{"", "secrets", "create", c.Namespace, ""}, {"coordination.k8s.io", "leases", "create", c.Namespace, ""}}
	for _, verb := range []string{"get", "update"} {
		own = append(own, right{"", "secrets", verb, c.Namespace, c.Secret}, right{"coordination.k8s.io", "leases", verb, c.Namespace, c.Lease})
	}
	lacks, err := c.lacks(ctx, own)
	switch {
	case err != nil:
		r.Fail("own rights", fault.New(fault.Offline, "the API server does not say what the agent may do: %s", why(err)))
		return
	case len(lacks) > 0:
		r.Fail("own rights", fault.With(fault.New(fault.Denied, "the agent may not %s", lacks[0]), "",
			fmt.Sprintf("give its ServiceAccount get, create and update on Secret %s and Lease %s of namespace %s", c.Secret, c.Lease, c.Namespace)))
	default:
		c.home(ctx, r)
	}
	c.delivery(ctx, r)
	if c.Deployment != "" {
		c.upgrades(ctx, r)
	}
}

// home checks whether the agent's namespace exists: the API server grants
// rights also in missing namespaces. It dry-runs the creation of the Lease,
// because the agent may not have the right to read the namespace.
func (c Cluster) home(ctx context.Context, r *Report) {
	gvr := schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}
	_, err := c.Dynamic.Resource(gvr).Namespace(c.Namespace).Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": map[string]any{"name": c.Lease},
	}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	switch {
	case err == nil, apierrors.IsAlreadyExists(err):
		r.OK("own rights", "Secret and Lease in namespace %s", c.Namespace)
	case apierrors.IsNotFound(err):
		r.Fail("own rights", fault.With(fault.New(fault.Missing, "it does not exist, and the agent needs it for its Secret and its Lease"), "namespace "+c.Namespace,
			"create it, or name another one with --namespace"))
	case apierrors.HasStatusCause(err, "NamespaceTerminating"):
		r.Fail("own rights", fault.With(fault.New(fault.Conflict, "it is being deleted, and the agent needs it for its Secret and its Lease"), "namespace "+c.Namespace,
			"wait until it is gone and create it again"))
	default:
		r.Warn("own rights", "Secret and Lease in namespace %s; whether the Lease may be created is unknown: %s", c.Namespace, why(err))
	}
}

// upgrades checks the rights that upgrades need. The agent runs without them.
func (c Cluster) upgrades(ctx context.Context, r *Report) {
	lacks, err := c.lacks(ctx, []right{
		{"apps", "deployments", "get", c.Namespace, c.Deployment},
		{"batch", "jobs", "get", c.Namespace, ""},
		{"batch", "jobs", "create", c.Namespace, ""},
	})
	switch {
	case err != nil:
		r.Fail("upgrades", fault.New(fault.Offline, "the API server does not say what the agent may do: %s", why(err)))
	case len(lacks) > 0:
		r.Warn("upgrades", "the hub may not upgrade this agent: it may not %s; the chart gives the right with upgrades.enabled and rbac.create", lacks[0])
	default:
		r.OK("upgrades", "the hub may upgrade this agent")
	}
}

// delivery compares the agent's rights with those of its mode.
func (c Cluster) delivery(ctx context.Context, r *Report) {
	reads, writes := []string{"get", "list", "watch"}, []string{"create", "update", "patch", "delete"}
	where, places := "all namespaces", []string{""}
	if len(c.Namespaces) > 0 {
		where, places = "namespaces "+strings.Join(c.Namespaces, ", "), c.Namespaces
	}
	var want, excess []right
	for _, place := range places {
		for _, verb := range reads {
			want = append(want, right{"*", "*", verb, place, ""})
		}
		for _, verb := range writes {
			if c.Observe {
				excess = append(excess, right{"*", "*", verb, place, ""})
			} else {
				want = append(want, right{"*", "*", verb, place, ""})
			}
		}
	}
	if len(c.Namespaces) > 0 {
		for _, verb := range writes {
			excess = append(excess, right{"*", "*", verb, "", ""})
		}
	}
	lacks, err := c.lacks(ctx, want)
	held := excess
	if err == nil {
		var without []right
		without, err = c.lacks(ctx, excess)
		held = minus(excess, without)
	}
	switch {
	case err != nil:
		r.Fail("rights", fault.New(fault.Offline, "the API server does not say what the agent may do: %s", why(err)))
	case len(held) > 0:
		r.Warn("rights", "the agent may %s for all kinds, which its mode does not need; remove the right", inWords(held[0]))
	case len(lacks) > 0:
		r.Warn("rights", "the agent may not %s for all kinds; what its rights do not cover is not delivered", inWords(lacks[0]))
	default:
		r.OK("rights", "all kinds in %s", where)
	}
}

func inWords(r right) string {
	if r.namespace == "" {
		return r.verb + " in all namespaces"
	}
	return r.verb + " in namespace " + r.namespace
}

// minus returns the elements of all that some does not contain, in order.
func minus(all, some []right) (out []right) {
	for _, r := range all {
		if len(some) > 0 && some[0] == r {
			some = some[1:]
			continue
		}
		out = append(out, r)
	}
	return out
}

// lacks returns the rights that the agent does not have.
func (c Cluster) lacks(ctx context.Context, want []right) (out []right, err error) {
	gvr := schema.GroupVersionResource{Group: "authorization.k8s.io", Version: "v1", Resource: "selfsubjectaccessreviews"}
	for _, w := range want {
		attributes := map[string]any{"group": w.group, "resource": w.resource, "verb": w.verb}
		if w.namespace != "" {
			attributes["namespace"] = w.namespace
		}
		if w.name != "" {
			attributes["name"] = w.name
		}
		res, err := c.Dynamic.Resource(gvr).Create(ctx, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
			"spec": map[string]any{"resourceAttributes": attributes},
		}}, metav1.CreateOptions{})
		if err != nil {
			return nil, err
		}
		if allowed, _, _ := unstructured.NestedBool(res.Object, "status", "allowed"); !allowed {
			out = append(out, w)
		}
	}
	return out, nil
}
