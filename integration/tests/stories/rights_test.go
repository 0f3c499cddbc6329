package stories_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/capstan-cd/capstan/integration/rigs/kube"
	"github.com/capstan-cd/capstan/integration/rigs/poll"
	"github.com/capstan-cd/capstan/integration/rigs/stack"
)

// What an agent that holds only the verbs of its chart could not make: a role
// with a verb that it does not have, and a binding to a role that has all.
const (
	strongRole    = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: %s}\nrules: [{apiGroups: [''], resources: [users], verbs: [impersonate]}]\n"
	strongBinding = "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: %s, namespace: %s}\nroleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}\nsubjects: [{kind: ServiceAccount, name: none, namespace: default}]\n"
)

// A right is one line of a role: a class of requests and a verb.
type right struct{ class, verb string }

// TestRightsAreExact compares what the chart grants with what the agent asked
// for, by the API server's audit log.
func TestRightsAreExact(t *testing.T) {
	exercise(t)
	agent := s.Agents["in-cluster"].User()
	var requests []kube.Request
	err := poll.Until(within(t, waitLimit), func(context.Context) (err error) {
		if requests, err = s.Clusters["in-cluster"].Requests(0); err != nil {
			return err
		}
		if !slices.ContainsFunc(requests, func(r kube.Request) bool { return r.User == agent && r.Resource == "leases" && r.Verb == "update" }) {
			return errors.New("the agent has not renewed its lease yet")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	used := map[right]bool{}
	for _, r := range requests {
		if r.User != agent {
			continue
		}
		if r.Code == http.StatusForbidden {
			t.Errorf("the agent has no right for %s %s", r.Verb, r.Path)
			continue
		}
		used[classify(r)] = true
	}
	// The audit log leaves health checks out. The hub knows the answer of
	// this one, which the agent asks for with each session.
	used[right{"path /readyz", "get"}] = true

	granted := map[right]bool{}
	for file, class := range map[string]string{"own": "own ", "cluster": "cluster ", "deploy": "", "roles": ""} {
		for _, g := range grants(t, file, class) {
			granted[g] = true
		}
	}
	// These are no requests: the API server asks for them when it is to write
	// a role. Without them it refuses what the agent has just delivered.
	for _, verb := range []string{"escalate", "bind"} {
		for _, kind := range []string{"roles", "clusterroles"} {
			used[right{"rbac.authorization.k8s.io " + kind, verb}] = true
		}
	}
	withoutThem(t)

	t.Run("11.9 the agent's rights have no verb that no story uses", func(t *testing.T) {
		for g := range granted {
			if !used[g] {
				t.Errorf("%q may be asked to %s, and never is", g.class, g.verb)
			}
		}
	})
	t.Run("11.9 no story needs one more", func(t *testing.T) {
		for u := range used {
			// In mode cluster what is delivered covers the agent's own as well.
			if !granted[u] && !granted[right{"* *", u.verb}] {
				t.Errorf("the agent asks to %s %q, which its chart does not grant", u.verb, u.class)
			}
		}
	})
	t.Run("11.9 the agent's own objects need no right of those that it delivers with", func(t *testing.T) {
		for u := range used {
			if (strings.HasPrefix(u.class, "own ") || strings.HasPrefix(u.class, "cluster ")) && !granted[u] {
				t.Errorf("the agent asks to %s %q, which an agent in another mode could not", u.verb, u.class)
			}
		}
	})
}

// exercise has the agent do everything that it can be asked for.
func exercise(t *testing.T) {
	t.Helper()
	replaced := strings.Replace(configMap("replaced", "one"), "name: replaced", "name: replaced\n  annotations: {argocd.argoproj.io/sync-options: Replace=true}", 1)
	repo := repository(t, "rights", map[string]string{
		"app/a.yaml": configMap("a", "one"), "app/gone.yaml": configMap("gone", "one"), "app/replaced.yaml": replaced,
		"app/hook.yaml":    "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: before\n  annotations: {argocd.argoproj.io/hook: PreSync, argocd.argoproj.io/hook-delete-policy: HookSucceeded}\nspec:\n  template:\n    spec: {restartPolicy: Never, containers: [{name: a, image: example.com/a}]}\n",
		"app/later.yaml":   "apiVersion: v1\nkind: Secret\nmetadata:\n  name: later\n  annotations: {argocd.argoproj.io/sync-wave: '1'}\nstringData: {a: b}\n",
		"app/role.yaml":    fmt.Sprintf(strongRole, "rights"),
		"app/binding.yaml": fmt.Sprintf(strongBinding, "rights", "rights"),
	})
	deploy(t, "rights", repo.URL(), "app", "")
	settled(t, "rights")
	ctx := within(t, 2*waitLimit)
	if _, err := repo.Commit(ctx, "two", map[string]string{
		"app/a.yaml": configMap("a", "two"), "app/replaced.yaml": strings.Replace(replaced, "one", "two", 1), "app/gone.yaml": "",
	}); err != nil {
		t.Fatal(err)
	}
	cluster := s.Clusters["in-cluster"]
	if _, err := cluster.WaitFor(ctx, configMaps, "rights", "replaced", value("two")); err != nil {
		t.Fatal(err)
	}
	if err := cluster.WaitGone(ctx, configMaps, "rights", "gone"); err != nil {
		t.Fatal(err)
	}
	condition(t, "rights", stack.Settled)
	if err := s.API.Do(ctx, http.MethodGet, "/api/v1/applications/argocd/rights/resource?version=v1&kind=Secret&resourceNamespace=rights&resourceName=later", nil, nil); err != nil {
		t.Fatal(err)
	}
}

// classify puts a request into a class: the agent's own objects, the cluster
// itself, a path, or what it delivers.
func classify(r kube.Request) right {
	what := r.Group + " " + r.Resource
	switch {
	case r.Resource == "":
		path, _, _ := strings.Cut(r.Path, "?")
		return right{"path " + path, r.Verb}
	case r.Namespace == kube.AgentNamespace && slices.Contains([]string{" secrets", "coordination.k8s.io leases"}, what):
		return right{"own " + what, r.Verb}
	case r.Resource == "namespaces" && r.Name == metav1.NamespaceSystem:
		return right{"cluster " + what, r.Verb}
	}
	return right{"* *", r.Verb}
}

// grants reads rules of the agent's chart.
func grants(t *testing.T, file, class string) []right {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "charts", "capstan-agent", "files", file+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var rules []struct {
		APIGroups       []string `json:"apiGroups"`
		Resources       []string `json:"resources"`
		ResourceNames   []string `json:"resourceNames"`
		NonResourceURLs []string `json:"nonResourceURLs"`
		Verbs           []string `json:"verbs"`
	}
	if err := yaml.UnmarshalStrict(text, &rules); err != nil {
		t.Fatal(err)
	}
	var out []right
	for _, rule := range rules {
		for _, verb := range rule.Verbs {
			for _, path := range rule.NonResourceURLs {
				out = append(out, right{"path " + path, verb})
			}
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					out = append(out, right{class + group + " " + resource, verb})
				}
			}
		}
	}
	return out
}

// withoutThem shows that the API server refuses strong roles to an account
// that holds the agent's rights apart from escalate and bind.
func withoutThem(t *testing.T) {
	t.Helper()
	cluster := s.Clusters["in-cluster"]
	rules, err := os.ReadFile(filepath.Join("..", "..", "..", "charts", "capstan-agent", "files", "deploy.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	ctx := within(t, waitLimit)
	if err := cluster.Apply(ctx, "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: weak, namespace: default}\n---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: weak}\nrules:\n"+string(rules)+
		"---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {name: weak}\nroleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: weak}\nsubjects: [{kind: ServiceAccount, name: weak, namespace: default}]\n"); err != nil {
		t.Fatal(err)
	}
	token, err := cluster.AccountToken(ctx, "default", "weak")
	if err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(&rest.Config{Host: cluster.URL(), BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: cluster.CA()}})
	if err != nil {
		t.Fatal(err)
	}
	for resource, text := range map[string]string{
		"clusterroles": fmt.Sprintf(strongRole, "weak-strong"), "rolebindings": fmt.Sprintf(strongBinding, "weak-strong", "default"),
	} {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
			t.Fatal(err)
		}
		gvr := schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: resource}
		if _, err := client.Resource(gvr).Namespace(o.GetNamespace()).Create(ctx, o, metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("%s: without escalate and bind the answer is %v", resource, err)
		}
	}
}
