package kube_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/capstan-cd/capstan/integration/rigs/kube"
	"github.com/capstan-cd/capstan/integration/rigs/poll"
)

var (
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	pods       = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
)

// waitLimit is the most that a test waits for something that must happen.
const waitLimit = 3 * time.Minute

const workloads = `
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "example.test/web:1"}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: broken, namespace: shop}
spec:
  selector: {matchLabels: {app: broken}}
  template:
    metadata: {labels: {app: broken}, annotations: {harness.capstan.dev/outcome: crash}}
    spec: {containers: [{name: web, image: "example.test/web:1"}]}
---
apiVersion: batch/v1
kind: Job
metadata: {name: good, namespace: shop}
spec:
  template:
    spec: {restartPolicy: Never, containers: [{name: job, image: "example.test/job:1"}]}
---
apiVersion: batch/v1
kind: Job
metadata: {name: bad, namespace: shop}
spec:
  backoffLimit: 0
  template:
    metadata: {annotations: {harness.capstan.dev/outcome: fail, harness.capstan.dev/delay: 100ms}}
    spec: {restartPolicy: Never, containers: [{name: job, image: "example.test/job:1"}]}
`

func TestClustersSideBySide(t *testing.T) {
	t.Parallel()
	first := kube.New(t, "first", kube.Options{})
	second := kube.New(t, "second", kube.Options{})
	ctx := t.Context()

	t.Run("each has objects of its own", func(t *testing.T) {
		if err := first.Apply(ctx, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: only-here}\ndata: {a: b}\n"); err != nil {
			t.Fatal(err)
		}
		if _, err := second.Dynamic().Resource(configMaps).Namespace("default").Get(ctx, "only-here", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("the other cluster answers %v, want not found", err)
		}
	})

	t.Run("a definition that was applied is served, in its versions, until it is gone", func(t *testing.T) {
		widget := "apiVersion: example.test/v1\nkind: Widget\nmetadata: {name: w}\n"
		if err := first.Apply(ctx, widgetDefinition+"---\n"+widget); err != nil {
			t.Fatal(err)
		}
		widgets := schema.GroupVersionResource{Group: "example.test", Version: "v1", Resource: "widgets"}
		list := func(version string) error {
			_, err := first.Dynamic().Resource(widgets.GroupResource().WithVersion(version)).List(ctx, metav1.ListOptions{})
			return err
		}
		if err := first.Apply(ctx, widgetDefinition+"  - {name: v2, served: true, storage: false, schema: {openAPIV3Schema: {type: object}}}\n"); err != nil {
			t.Fatal(err)
		}
		if err := list("v2"); err != nil {
			t.Error(err)
		}
		if err := first.Apply(ctx, widgetDefinition+"  - {name: v2, served: false, storage: false, schema: {openAPIV3Schema: {type: object}}}\n"); err != nil {
			t.Fatal(err)
		}
		if err := list("v2"); !apierrors.IsNotFound(err) {
			t.Errorf("a version that is not served: %v", err)
		}
		if err := first.Delete(ctx, widgetDefinition); err != nil {
			t.Fatal(err)
		}
		if err := first.KindInForce(ctx, "widgets.example.test"); err != nil {
			t.Fatal(err)
		}
		if err := list("v1"); !apierrors.IsNotFound(err) {
			t.Errorf("a kind whose definition is gone: %v", err)
		}
	})

	t.Run("the audit log counts requests by user", func(t *testing.T) {
		file, err := first.KubeconfigFor("counted", "system:masters")
		if err != nil {
			t.Fatal(err)
		}
		mark, err := first.Mark()
		if err != nil {
			t.Fatal(err)
		}
		client := dynamicFor(t, file)
		for range 3 {
			if _, err := client.Resource(configMaps).Namespace("default").Get(ctx, "only-here", metav1.GetOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		w, err := client.Resource(configMaps).Watch(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		w.Stop()
		want := kube.Count{Watches: 1, Others: 3}
		waitCtx, cancel := context.WithTimeout(ctx, waitLimit)
		defer cancel()
		var got kube.Count
		err = poll.Until(waitCtx, func(context.Context) error {
			requests, err := first.Requests(mark)
			if err != nil {
				return err
			}
			if got = kube.CountByUser(requests)["counted"]; got != want {
				return io.ErrUnexpectedEOF
			}
			return nil
		})
		if err != nil {
			t.Errorf("counted %+v, want %+v", got, want)
		}
	})

	t.Run("a user may do nothing until RBAC says so", func(t *testing.T) {
		file, err := first.KubeconfigFor("nobody", "guests")
		if err != nil {
			t.Fatal(err)
		}
		client := dynamicFor(t, file).Resource(configMaps).Namespace("default")
		if _, err := client.List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
			t.Fatalf("list: %v, want forbidden", err)
		}
		if err := first.Apply(ctx, guestsMayRead); err != nil {
			t.Fatal(err)
		}
		if _, err := client.List(ctx, metav1.ListOptions{}); err != nil {
			t.Error(err)
		}
	})

	t.Run("a service account has a kubeconfig file", func(t *testing.T) {
		if err := first.Apply(ctx, "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: agent}\n"); err != nil {
			t.Fatal(err)
		}
		file, err := first.AccountKubeconfig(ctx, "default", "agent")
		if err != nil {
			t.Fatal(err)
		}
		_, err = dynamicFor(t, file).Resource(configMaps).Namespace("default").List(ctx, metav1.ListOptions{})
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "system:serviceaccount:default:agent") {
			t.Errorf("list: %v, want one that forbids it to the account", err)
		}
	})

	t.Run("the API server can go away and come back with everything", func(t *testing.T) {
		if err := second.Apply(ctx, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: kept}\n"); err != nil {
			t.Fatal(err)
		}
		if err := second.HaltAPI(); err != nil {
			t.Fatal(err)
		}
		kept := second.Dynamic().Resource(configMaps).Namespace("default")
		if _, err := kept.Get(ctx, "kept", metav1.GetOptions{}); err == nil {
			t.Fatal("a stopped API server answered")
		}
		if err := second.ResumeAPI(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := kept.Get(ctx, "kept", metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
	})

	t.Run("bad manifests are refused with the object's name", func(t *testing.T) {
		err := first.Apply(ctx, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: Not_A_Name}\n")
		if err == nil || !strings.Contains(err.Error(), "Not_A_Name") {
			t.Errorf("error %v, want one that names the object", err)
		}
	})
}

func TestClusterWithNodes(t *testing.T) {
	t.Parallel()
	c := kube.New(t, "nodes", kube.Options{Nodes: true})
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	if err := c.Apply(ctx, workloads); err != nil {
		t.Fatal(err)
	}

	t.Run("a Deployment becomes available", func(t *testing.T) {
		if err := c.WaitAvailable(ctx, "shop", "web"); err != nil {
			t.Error(err)
		}
	})
	t.Run("a Job completes", func(t *testing.T) {
		if err := c.WaitJob(ctx, "shop", "good", "Complete"); err != nil {
			t.Error(err)
		}
	})
	t.Run("a Job fails when it is asked to", func(t *testing.T) {
		if err := c.WaitJob(ctx, "shop", "bad", "Failed"); err != nil {
			t.Error(err)
		}
	})
	t.Run("a pod crashes when it is asked to, and logs can be read", func(t *testing.T) {
		var name string
		err := poll.Until(ctx, func(ctx context.Context) error {
			list, err := c.Dynamic().Resource(pods).Namespace("shop").List(ctx, metav1.ListOptions{LabelSelector: "app=broken"})
			if err == nil && len(list.Items) != 1 {
				err = fmt.Errorf("%d pods, want one", len(list.Items))
			}
			if err == nil {
				name = list.Items[0].GetName()
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.WaitFor(ctx, pods, "shop", name, func(o *unstructured.Unstructured) error {
			text, err := o.MarshalJSON()
			if err == nil && !strings.Contains(string(text), "CrashLoopBackOff") {
				err = io.ErrUnexpectedEOF
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
		if text := podLog(t, c, "shop", name, "web"); !strings.Contains(text, "listening") {
			t.Errorf("its log is %q", text)
		}
	})
	t.Run("what an object owned goes with it, and a namespace ends", func(t *testing.T) {
		if err := c.Delete(ctx, "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n"); err != nil {
			t.Fatal(err)
		}
		if err := c.WaitGone(ctx, namespaces, "", "shop"); err != nil {
			t.Error(err)
		}
	})
}

func TestClusterKeepsAChosenFolder(t *testing.T) {
	t.Parallel()
	dir, ctx := t.TempDir(), t.Context()
	first, err := kube.Start(ctx, "kept", kube.Options{Dir: dir, Nodes: true, Durable: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Apply(ctx, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: kept}\n"); err != nil {
		t.Fatal(err)
	}
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	second := kube.New(t, "kept", kube.Options{Dir: dir, Nodes: true})
	if _, err := second.Dynamic().Resource(configMaps).Namespace("default").Get(ctx, "kept", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}

func dynamicFor(t *testing.T, kubeconfig string) dynamic.Interface {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func podLog(t *testing.T, c *kube.Cluster, namespace, name, container string) string {
	t.Helper()
	config, err := c.RESTConfig()
	if err != nil {
		t.Fatal(err)
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.URL()+"/api/v1/namespaces/"+namespace+"/pods/"+name+"/log?container="+container, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

const widgetDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.test}
spec:
  group: example.test
  scope: Namespaced
  names: {kind: Widget, plural: widgets, singular: widget}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`

const guestsMayRead = `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: read}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: read}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: read}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: guests}]
`
