package kube

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/cache"
	clientapi "k8s.io/client-go/tools/clientcmd/api"
	watchtools "k8s.io/client-go/tools/watch"
)

// nodeName is the one fake node of a cluster.
const nodeName = "node-1"

// Resources that the waits of this package know.
var (
	deployments     = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	jobs            = schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}
	namespaces      = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	nodes           = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
	serviceAccounts = schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}
)

// clients are the admin's ways into a cluster.
type clients struct {
	http    *http.Client
	dynamic dynamic.Interface
	mapper  *restmapper.DeferredDiscoveryRESTMapper
}

func newClients(config *rest.Config, err error) (*clients, error) {
	if err != nil {
		return nil, err
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	d, err := dynamic.NewForConfigAndClient(config, client)
	if err != nil {
		return nil, err
	}
	disco, err := discovery.NewDiscoveryClientForConfigAndClient(config, client)
	if err != nil {
		return nil, err
	}
	return &clients{http: client, dynamic: d, mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(disco))}, nil
}

func (k *clients) close() { k.http.CloseIdleConnections() }

// readiness returns a check that the API server says it is ready.
func readiness(config *rest.Config, err error) (func(context.Context) error, error) {
	if err != nil {
		return nil, err
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+"/readyz", nil)
		if err != nil {
			return err
		}
		answer, err := client.Do(request)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(io.LimitReader(answer.Body, 4096))
		if err != nil {
			return err
		}
		if answer.StatusCode != http.StatusOK {
			return fmt.Errorf("readyz answers %d: %s", answer.StatusCode, text)
		}
		return nil
	}, nil
}

// hasDefaultNamespace checks that the API server has made the namespaces that
// every cluster has, which it does after it says that it is ready.
func (k *clients) hasDefaultNamespace(ctx context.Context) error {
	_, err := k.dynamic.Resource(namespaces).Get(ctx, metav1.NamespaceDefault, metav1.GetOptions{})
	return err
}

// hasDefaultAccount checks that the controllers have done their first work.
func (k *clients) hasDefaultAccount(ctx context.Context) error {
	_, err := k.dynamic.Resource(serviceAccounts).Namespace("default").Get(ctx, "default", metav1.GetOptions{})
	return err
}

// makeNode creates the node on which everything fits.
func (k *clients) makeNode(ctx context.Context) error {
	room := map[string]any{"cpu": "1000", "memory": "4Ti", "pods": "100000", "ephemeral-storage": "4Ti"}
	node := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Node",
		"metadata": map[string]any{"name": nodeName, "labels": map[string]any{"kubernetes.io/hostname": nodeName, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}},
		"status":   map[string]any{"allocatable": room, "capacity": room},
	}}
	_, err := k.dynamic.Resource(nodes).Create(ctx, node, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		// From an earlier start: the kubelet's port is another one now.
		patch := []byte(`{"status":{"conditions":null}}`)
		_, err = k.dynamic.Resource(nodes).Patch(ctx, nodeName, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	}
	return err
}

// nodeReady checks that the node runs under the kubelet of this start.
func (k *clients) nodeReady(ctx context.Context, port int) error {
	node, err := k.dynamic.Resource(nodes).Get(ctx, nodeName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if got, _, err := unstructured.NestedInt64(node.Object, "status", "daemonEndpoints", "kubeletEndpoint", "Port"); err != nil || got != int64(port) {
		return fmt.Errorf("the node's kubelet port is %d, not %d yet", got, port)
	}
	return condition(node, "Ready", "True")
}

func dial(ctx context.Context, port int) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", "127.0.0.1:"+strconv.Itoa(port))
	if err != nil {
		return err
	}
	return conn.Close()
}

// Dynamic is a client of any resource that may do everything.
func (c *Cluster) Dynamic() dynamic.Interface { return c.clients.dynamic }

// Resource is the client for one kind and namespace, which is ignored where
// the kind has none.
func (c *Cluster) Resource(ctx context.Context, kind schema.GroupVersionKind, namespace string) (dynamic.ResourceInterface, error) {
	mapping, err := c.clients.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) { // perhaps its definition has just been made
		c.clients.mapper.Reset()
		mapping, err = c.clients.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	}
	if err != nil {
		return nil, fmt.Errorf("find the resource of kind %s: %w", kind, err)
	}
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		return c.clients.dynamic.Resource(mapping.Resource), nil
	}
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	return c.clients.dynamic.Resource(mapping.Resource).Namespace(namespace), nil
}

// Apply applies the objects of a YAML stream in their order, as Admin. When it
// returns, rights among them count and kinds among them are served.
func (c *Cluster) Apply(ctx context.Context, manifests string) error {
	rights := false
	err := c.each(ctx, manifests, func(r dynamic.ResourceInterface, o *unstructured.Unstructured) error {
		_, err := r.Apply(ctx, o.GetName(), o, metav1.ApplyOptions{FieldManager: Admin, Force: true})
		rights = rights || o.GroupVersionKind().Group == rightsGroup
		if err == nil && o.GetKind() == "CustomResourceDefinition" {
			return c.KindInForce(ctx, o.GetName())
		}
		return err
	})
	if err == nil && rights {
		return c.RightsInForce(ctx)
	}
	return err
}

// Delete deletes the objects of a YAML stream and what they own. Objects that
// are gone already are fine.
func (c *Cluster) Delete(ctx context.Context, manifests string) error {
	background := metav1.DeletePropagationBackground
	return c.each(ctx, manifests, func(r dynamic.ResourceInterface, o *unstructured.Unstructured) error {
		err := r.Delete(ctx, o.GetName(), metav1.DeleteOptions{PropagationPolicy: &background})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}

func (c *Cluster) each(ctx context.Context, manifests string, do func(dynamic.ResourceInterface, *unstructured.Unstructured) error) error {
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(manifests), 4096)
	for {
		o := &unstructured.Unstructured{}
		err := decoder.Decode(&o.Object)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read manifests: %w", err)
		}
		if len(o.Object) == 0 {
			continue
		}
		r, err := c.Resource(ctx, o.GroupVersionKind(), o.GetNamespace())
		if err != nil {
			return err
		}
		if err := do(r, o); err != nil {
			return fmt.Errorf("%s %q: %w", o.GetKind(), o.GetName(), err)
		}
	}
}

// AccountKubeconfig writes a kubeconfig file for a service account, with a
// token that the API server issues, and returns its name.
func (c *Cluster) AccountKubeconfig(ctx context.Context, namespace, name string) (string, error) {
	return c.AccountKubeconfigTo(ctx, namespace, name, "")
}

// AccountKubeconfigTo is AccountKubeconfig that names another server than the cluster's own, if one is
// given.
func (c *Cluster) AccountKubeconfigTo(ctx context.Context, namespace, name, server string) (string, error) {
	token, err := c.AccountToken(ctx, namespace, name)
	if err != nil {
		return "", err
	}
	file := "account-" + namespace + "-" + name
	if server == "" {
		return c.kubeconfigTo(c.URL(), file, &clientapi.AuthInfo{Token: token})
	}
	return c.kubeconfigTo(server, file+"-"+rand.Text(), &clientapi.AuthInfo{Token: token})
}

// AccountToken asks the API server for a day's token of a service account.
func (c *Cluster) AccountToken(ctx context.Context, namespace, name string) (string, error) {
	request := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
		"metadata": map[string]any{"name": name},
		"spec":     map[string]any{"expirationSeconds": int64((24 * time.Hour).Seconds())},
	}}
	answer, err := c.clients.dynamic.Resource(serviceAccounts).Namespace(namespace).Create(ctx, request, metav1.CreateOptions{}, "token")
	if err != nil {
		return "", fmt.Errorf("ask for a token of service account %s/%s: %w", namespace, name, err)
	}
	token, _, err := unstructured.NestedString(answer.Object, "status", "token")
	if err != nil {
		return "", fmt.Errorf("read the token of service account %s/%s: %w", namespace, name, err)
	}
	return token, nil
}

// WaitFor watches one object until check has no complaint, and returns it as
// it then is. It fails with the last complaint when ctx ends. Check is not
// asked about an object that is not there.
func (c *Cluster) WaitFor(ctx context.Context, r schema.GroupVersionResource, namespace, name string, check func(*unstructured.Unstructured) error) (*unstructured.Unstructured, error) {
	last := errors.New("there is no such object")
	event, err := c.observe(ctx, r, namespace, name, nil, func(e watch.Event) (bool, error) {
		o, ok := e.Object.(*unstructured.Unstructured)
		if !ok || e.Type == watch.Deleted {
			last = errors.New("it was deleted")
			return false, nil
		}
		last = check(o)
		return last == nil, nil
	})
	if err != nil {
		return nil, fmt.Errorf("wait for %s %s/%s: %w; last: %w", r.Resource, namespace, name, err, last)
	}
	return event.Object.(*unstructured.Unstructured), nil
}

// WaitGone watches one object until it is not there.
func (c *Cluster) WaitGone(ctx context.Context, r schema.GroupVersionResource, namespace, name string) error {
	absent := func(store cache.Store) (bool, error) { return len(store.List()) == 0, nil }
	_, err := c.observe(ctx, r, namespace, name, absent, func(e watch.Event) (bool, error) { return e.Type == watch.Deleted, nil })
	if err != nil {
		return fmt.Errorf("wait until %s %s/%s is gone: %w", r.Resource, namespace, name, err)
	}
	return nil
}

func (c *Cluster) observe(ctx context.Context, r schema.GroupVersionResource, namespace, name string, already watchtools.PreconditionFunc, done watchtools.ConditionFunc) (*watch.Event, error) {
	client := c.clients.dynamic.Resource(r).Namespace(namespace)
	only := fields.OneTermEqualSelector("metadata.name", name).String()
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = only
			return client.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = only
			return client.Watch(ctx, o)
		},
	}
	return watchtools.UntilWithSync(ctx, source, &unstructured.Unstructured{}, already, done)
}

// WaitAvailable waits until a Deployment has everything that it asks for.
func (c *Cluster) WaitAvailable(ctx context.Context, namespace, name string) error {
	_, err := c.WaitFor(ctx, deployments, namespace, name, func(o *unstructured.Unstructured) error {
		observed, _, _ := unstructured.NestedInt64(o.Object, "status", "observedGeneration")
		if observed < o.GetGeneration() {
			return errors.New("its controller has not seen it yet")
		}
		return condition(o, "Available", "True")
	})
	return err
}

// WaitJob waits until a Job has a condition: "Complete" or "Failed".
func (c *Cluster) WaitJob(ctx context.Context, namespace, name, want string) error {
	_, err := c.WaitFor(ctx, jobs, namespace, name, func(o *unstructured.Unstructured) error { return condition(o, want, "True") })
	return err
}

// condition checks one entry of an object's status.conditions.
func condition(o *unstructured.Unstructured, kind, want string) error {
	list, _, err := unstructured.NestedSlice(o.Object, "status", "conditions")
	if err != nil {
		return err
	}
	for _, entry := range list {
		if m, ok := entry.(map[string]any); ok && m["type"] == kind && m["status"] == want {
			return nil
		}
	}
	text, err := json.Marshal(list)
	if err != nil {
		return err
	}
	return fmt.Errorf("its condition %s is not %s: %s", kind, want, text)
}

// SetData sets a value of a ConfigMap as another program would.
func (c *Cluster) SetData(ctx context.Context, namespace, name, key, value string) error {
	patch, err := json.Marshal(map[string]any{"data": map[string]string{key: value}})
	if err != nil {
		return err
	}
	configMaps := c.clients.dynamic.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace(namespace)
	_, err = configMaps.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "somebody"})
	return err
}
