package kube

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/capstan-cd/capstan/integration/rigs/poll"
)

// An API server acts by copies of rights and of definitions that follow what
// it has stored a moment later: on a busy machine long enough for a client to
// be refused what it has just been given, or to be told that a kind is not
// served. What waits for that is here.

// inForceTime is how long the API server may take; no test fails for its
// length.
const inForceTime = 2 * time.Minute

const rightsGroup = "rbac.authorization.k8s.io"

var (
	definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	reviews     = schema.GroupVersionResource{Group: "authorization.k8s.io", Version: "v1", Resource: "subjectaccessreviews"}
)

// RightsInForce waits until the API server decides by every role and binding
// that is stored now. It makes new ones and waits until those count: what is
// older of the same kinds counts by then.
func (c *Cluster) RightsInForce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, inForceTime)
	defer cancel()
	name := "harness-" + strings.ToLower(rand.Text())
	probe := fmt.Sprintf(`---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: %[1]s}
rules: [{apiGroups: [harness.capstan.dev], resources: [everywhere], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %[1]s}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: %[1]s}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: %[1]s, namespace: default}
rules: [{apiGroups: [harness.capstan.dev], resources: [here], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: %[1]s, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: %[1]s}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: %[1]s}]
`, name)
	err := c.each(ctx, probe, func(r dynamic.ResourceInterface, o *unstructured.Unstructured) error {
		_, err := r.Create(ctx, o, metav1.CreateOptions{FieldManager: Admin})
		return err
	})
	if err == nil {
		err = poll.Until(ctx, func(ctx context.Context) error { return c.mayGet(ctx, name, "everywhere", "here") })
	}
	return errors.Join(err, c.Delete(context.WithoutCancel(ctx), probe))
}

// mayGet checks that a user may get resources of the probe in namespace default.
func (c *Cluster) mayGet(ctx context.Context, user string, resources ...string) error {
	for _, resource := range resources {
		review := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
			"spec": map[string]any{"user": user, "resourceAttributes": map[string]any{
				"verb": "get", "group": "harness.capstan.dev", "resource": resource, "namespace": metav1.NamespaceDefault,
			}},
		}}
		answer, err := c.clients.dynamic.Resource(reviews).Create(ctx, review, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		if allowed, _, _ := unstructured.NestedBool(answer.Object, "status", "allowed"); !allowed {
			return fmt.Errorf("the API server does not know the rights of %s yet", user)
		}
	}
	return nil
}

// KindInForce waits until the API server serves the kind of a
// CustomResourceDefinition in the versions that it names, says so to clients
// that ask what is served, and serves it in no other version. One whose names
// are not accepted is not waited for. With one that was deleted it waits until
// nothing of it is served any more.
func (c *Cluster) KindInForce(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, inForceTime)
	defer cancel()
	return poll.Until(ctx, func(ctx context.Context) error {
		o, err := c.clients.dynamic.Resource(definitions).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			plural, group, _ := strings.Cut(name, ".")
			return c.servedAs(ctx, group, plural, nil)
		}
		if err != nil {
			return err
		}
		if o.GetDeletionTimestamp() != nil {
			return fmt.Errorf("%s is being deleted", name)
		}
		if condition(o, "NamesAccepted", "False") == nil {
			return nil
		}
		if err := condition(o, "Established", "True"); err != nil {
			return err
		}
		return c.serves(ctx, o)
	})
}

// serves checks that the API server serves the versions of a definition that
// are to be served, and no other ones.
func (c *Cluster) serves(ctx context.Context, definition *unstructured.Unstructured) error {
	group, _, _ := unstructured.NestedString(definition.Object, "spec", "group")
	plural, _, _ := unstructured.NestedString(definition.Object, "spec", "names", "plural")
	all, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
	var want []string
	for _, v := range all {
		m, _ := v.(map[string]any)
		version, _ := m["name"].(string)
		_, err := c.clients.dynamic.Resource(schema.GroupVersionResource{Group: group, Version: version, Resource: plural}).List(ctx, metav1.ListOptions{Limit: 1})
		served := m["served"] == true
		if served == apierrors.IsNotFound(err) {
			return fmt.Errorf("version %s of %s: served is to be %v, and the API server answers: %v", version, definition.GetName(), served, err)
		}
		if served {
			want = append(want, version)
		}
	}
	return c.servedAs(ctx, group, plural, want)
}

// servedAs checks in which versions the API server says that it serves a
// resource, in the answer from which clients learn of all kinds at once.
func (c *Cluster) servedAs(ctx context.Context, group, plural string, want []string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL()+"/apis", nil)
	if err != nil {
		return err
	}
	request.Header.Set("Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
	answer, err := c.clients.http.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	var all discovered
	if err := json.Unmarshal(text, &all); err != nil {
		return fmt.Errorf("read which kinds are served: %w", err)
	}
	got := all.versions(group, plural)
	slices.Sort(got)
	if want = slices.Sorted(slices.Values(want)); !slices.Equal(got, want) {
		return fmt.Errorf("%s.%s is said to be served as %v, and not as %v yet", plural, group, got, want)
	}
	return nil
}

// discovered is what is read of the API server's list of all kinds.
type discovered struct {
	Items []struct {
		Metadata struct{ Name string }
		Versions []struct {
			Version   string
			Resources []struct{ Resource string }
		}
	}
}

// versions are those in which a resource is served.
func (d discovered) versions(group, plural string) (got []string) {
	for _, g := range d.Items {
		if g.Metadata.Name != group {
			continue
		}
		for _, v := range g.Versions {
			for _, r := range v.Resources {
				if r.Resource == plural {
					got = append(got, v.Version)
				}
			}
		}
	}
	return got
}
