package plugins_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/capstan-cd/capstan/integration/rigs/gitserver"
	"github.com/capstan-cd/capstan/integration/rigs/poll"
	"github.com/capstan-cd/capstan/integration/rigs/stack"
)

var (
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	secrets    = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
)

// within bounds a step.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func repository(t *testing.T, name string, files map[string]string) *gitserver.Repository {
	t.Helper()
	r, err := s.Repository(within(t, waitLimit), name, gitserver.RepositoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Commit(within(t, waitLimit), "begin", files); err != nil {
		t.Fatal(err)
	}
	return r
}

// create makes an automated application by the command line.
func create(t *testing.T, name, repo, path string, flags ...string) {
	t.Helper()
	args := append([]string{
		"app", "create", name, "--repo", repo, "--path", path, "--revision", "main", "--dest-name", "in-cluster", "--dest-namespace", name,
		"--sync-policy", "automated", "--self-heal", "--sync-option", "CreateNamespace=true",
	}, flags...)
	if out, err := s.API.CLI(within(t, waitLimit), "", args...); err != nil {
		t.Fatal(out, err)
	}
}

func wait(t *testing.T, name string, check func(stack.App) error) stack.App {
	t.Helper()
	x, err := s.API.Wait(within(t, waitLimit), name, check)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// says waits for a condition with all of the words.
func says(t *testing.T, name string, words ...string) string {
	t.Helper()
	message := ""
	wait(t, name, func(x stack.App) error {
		for _, c := range x.Status.Conditions {
			found := true
			for _, w := range words {
				found = found && strings.Contains(c.Message, w)
			}
			if found {
				message = c.Type + ": " + c.Message
				return nil
			}
		}
		return fmt.Errorf("no condition says %q: %+v", words, x.Status.Conditions)
	})
	return message
}

// live waits until an object of the cluster has data.
func live(t *testing.T, namespace, name string, want map[string]string) {
	t.Helper()
	_, err := s.Clusters["in-cluster"].WaitFor(within(t, waitLimit), configMaps, namespace, name, func(o *unstructured.Unstructured) error {
		data, _, _ := unstructured.NestedStringMap(o.Object, "data")
		for k, v := range want {
			if data[k] != v {
				return fmt.Errorf("data %v, want %v", data, want)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestPlugins(t *testing.T) {
	repo := repository(t, "plugged", map[string]string{"app/message": "one", "plain/a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n", "other/x": "1"})
	t.Run("CMP-01 CMP-06 CMP-09 an application of a plugin is synced to a cluster", func(t *testing.T) {
		create(t, "plugged", repo.URL(), "app", "--config-management-plugin", "shell-v1", "--plugin-env", "TIER=front")
		wait(t, "plugged", stack.Settled)
		live(t, "plugged", "made", map[string]string{"message": "one", "tier": "front", "app": "plugged"})
		var x struct {
			Status struct {
				SourceType string `json:"sourceType"`
			} `json:"status"`
		}
		if err := s.API.Do(within(t, waitLimit), http.MethodGet, "/api/v1/applications/argocd/plugged", nil, &x); err != nil || x.Status.SourceType != "Plugin" {
			t.Errorf("APP-19 the type is %q, %v", x.Status.SourceType, err)
		}
	})
	t.Run("CMP-05 a commit runs it again", func(t *testing.T) {
		if _, err := repo.Commit(within(t, waitLimit), "two", map[string]string{"app/message": "two"}); err != nil {
			t.Fatal(err)
		}
		live(t, "plugged", "made", map[string]string{"message": "two"})
	})
	t.Run("CMP-09 CMP-10 variables and parameters are changed", func(t *testing.T) {
		for _, args := range [][]string{
			{"app", "set", "plugged", "--plugin-env", "TIER=back"},
			{"app", "patch", "plugged", "--type", "merge", "--patch", `{"spec": {"source": {"plugin": {"parameters": [{"name": "replicas", "string": "3"}]}}}}`},
		} {
			if out, err := s.API.CLI(within(t, waitLimit), "", args...); err != nil {
				t.Fatal(out, err)
			}
		}
		live(t, "plugged", "made", map[string]string{"tier": "back", "replicas": "3"})
	})
	t.Run("CMP-07 a plugin discovers its source", func(t *testing.T) {
		create(t, "discovered", repo.URL(), "app")
		wait(t, "discovered", stack.Settled)
		live(t, "discovered", "made", map[string]string{"message": "two", "tier": ""})
	})
	t.Run("CMP-15 a Secret that a plugin makes reaches the cluster", func(t *testing.T) {
		create(t, "injecting", repo.URL(), "plain", "--config-management-plugin", "secret")
		wait(t, "injecting", stack.Settled)
		o, err := s.Clusters["in-cluster"].Dynamic().Resource(secrets).Namespace("injecting").Get(within(t, waitLimit), "injected", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(o)
		if err != nil || len(canaries.Find("the cluster", text)) == 0 {
			t.Errorf("%v: it does not hold the value: %s", err, o.GetName())
		}
	})
	t.Run("CMP-08 CMP-15 a plugin that fails is a condition with its standard error, masked", func(t *testing.T) {
		create(t, "failing", repo.URL(), "plain", "--config-management-plugin", "fail")
		message := says(t, "failing", "plugin fail: its generate command failed (exit status 3)", "the token ******** is refused")
		if !strings.HasPrefix(message, "ComparisonError") {
			t.Errorf("%s", message)
		}
	})
	t.Run("CMP-13 SEC-A11 one that hangs is stopped, and stops no other application", func(t *testing.T) {
		create(t, "hanging", repo.URL(), "plain", "--config-management-plugin", "hang")
		create(t, "beside", repo.URL(), "plain")
		wait(t, "beside", stack.Settled)
		says(t, "hanging", "plugin hang", "took more than 3s")
	})
	t.Run("CMP-06 one that is not declared is a condition", func(t *testing.T) {
		create(t, "unknown", repo.URL(), "plain", "--config-management-plugin", "cdk8s-v1.0")
		says(t, "unknown", `there is no plugin "cdk8s-v1.0"`)
	})
	t.Run("CMP-14 settings of the organisation limit what plugins get", func(t *testing.T) {
		if _, err := s.API.Apply(within(t, waitLimit), "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: argocd-cmd-params-cm, namespace: argocd}\ndata: {reposerver.plugin.tar.exclusions: '**/message'}\n"); err != nil {
			t.Fatal(err)
		}
		says(t, "plugged", "plugin shell-v1: its init command failed", "message")
		if _, err := s.API.Apply(within(t, waitLimit), "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: argocd-cmd-params-cm, namespace: argocd}\ndata: {reposerver.plugin.tar.exclusions: null}\n"); err != nil {
			t.Fatal(err)
		}
		wait(t, "plugged", stack.Settled)
	})
	t.Run("CMP-15 SEC-C1 SEC-C8 the operator's value is nowhere else", noCanary)
}

// noCanary searches everything that the hub answers, logs and stores.
func noCanary(t *testing.T) {
	for _, name := range []string{"injecting", "failing"} {
		base := "/api/v1/applications/argocd/" + name
		for _, path := range []string{base, base + "/tree", base + "/diff", base + "/manifests", base + "/history", base + "/operations", "/api/v1/audit?limit=500", base + "/resource?kind=Secret&version=v1&resourceNamespace=injecting&resourceName=injected"} {
			var raw json.RawMessage
			if err := s.API.Do(within(t, waitLimit), http.MethodGet, path, nil, &raw); err != nil && name == "injecting" {
				t.Errorf("%s: %v", path, err)
			}
			for _, x := range canaries.Find(path, raw) {
				t.Error(x)
			}
		}
	}
	for _, path := range []string{s.Hub.LogFile(), s.Agents["in-cluster"].LogFile(), s.Postgres.LogFile(), s.Agents["in-cluster"].StateDir()} {
		list, err := canaries.FindInFolder(path, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range list {
			t.Error(x)
		}
	}
	conn, err := pgx.Connect(within(t, waitLimit), s.Postgres.Superuser("capstan"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	query := func(sql string) []string {
		found, err := conn.Query(within(t, waitLimit), sql)
		if err != nil {
			t.Fatal(err)
		}
		all, err := pgx.CollectRows(found, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	for _, table := range query("SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')") {
		for _, row := range query("SELECT t::text FROM " + table + " t") {
			for _, x := range canaries.Find("table "+table, []byte(row)) {
				t.Error(x)
			}
		}
	}
}

// A hub that is killed leaves no program of a plugin behind, and continues
// with its applications when it is started again.
func TestPluginsOfAKilledHub(t *testing.T) {
	repo := repository(t, "orphans", map[string]string{"plain/a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"})
	sleeping := func() (pids []int) {
		all, err := filepath.Glob("/proc/[0-9]*/cmdline")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range all {
			if line, err := os.ReadFile(name); err == nil && strings.Contains(string(line), orphanMark) {
				if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name))); err == nil {
					pids = append(pids, pid)
				}
			}
		}
		return pids
	}
	until := func(check func(pids []int) bool) {
		t.Helper()
		if err := poll.Until(within(t, waitLimit), func(context.Context) error {
			if pids := sleeping(); !check(pids) {
				return fmt.Errorf("processes %v", pids)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("CMP-13 SEC-A11 FT-H1 kill -9 of the hub ends what its plugins have started", func(t *testing.T) {
		create(t, "orphans", repo.URL(), "plain", "--config-management-plugin", "orphan")
		until(func(pids []int) bool { return len(pids) >= 2 })
		if err := s.Hub.Kill(); err != nil {
			t.Fatal(err)
		}
		until(func(pids []int) bool { return len(pids) == 0 })
	})
	t.Run("INV-1 the hub goes on with its applications afterwards", func(t *testing.T) {
		if err := s.Hub.Start(within(t, waitLimit)); err != nil {
			t.Fatal(err)
		}
		says(t, "orphans", "plugin orphan", "took more than 3s")
		create(t, "afterwards", repo.URL(), "plain")
		wait(t, "afterwards", stack.Settled)
	})
}

func TestTools(t *testing.T) {
	repo := repository(t, "tools", map[string]string{
		"j/a.jsonnet":          `{apiVersion: "v1", kind: "ConfigMap", metadata: {name: "made"}, data: {app: std.extVar("app"), lib: import "l.libsonnet"}}`,
		"lib/l.libsonnet":      `"one"`,
		"k/kustomization.yaml": "resources: [a.yaml]\nnamePrefix: p-\n", "k/a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {v: '1'}\n",
	})
	t.Run("DIR-09 Jsonnet of a repository is synced to a cluster, and a library that changes", func(t *testing.T) {
		create(t, "jsonnet", repo.URL(), "j", "--jsonnet-ext-var-str", "app=$ARGOCD_APP_NAME", "--jsonnet-libs", "lib")
		wait(t, "jsonnet", stack.Settled)
		live(t, "jsonnet", "made", map[string]string{"app": "jsonnet", "lib": "one"})
		if _, err := repo.Commit(within(t, waitLimit), "two", map[string]string{"lib/l.libsonnet": `"two"`}); err != nil {
			t.Fatal(err)
		}
		live(t, "jsonnet", "made", map[string]string{"lib": "two"})
	})
	t.Run("SRC-15 a tool that is switched off leaves a plain directory", func(t *testing.T) {
		create(t, "switched", repo.URL(), "k")
		wait(t, "switched", stack.Settled)
		live(t, "switched", "p-a", map[string]string{"v": "1"})
		for _, value := range []string{`"false"`, "null"} {
			if _, err := s.API.Apply(within(t, waitLimit), "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: argocd-cm, namespace: argocd}\ndata: {kustomize.enable: "+value+"}\n"); err != nil {
				t.Fatal(err)
			}
			if value == "null" {
				wait(t, "switched", func(x stack.App) error {
					if x.Status.Sync.Status != "OutOfSync" { // a is not pruned
						return fmt.Errorf("it is %s", x.Status.Sync.Status)
					}
					return nil
				})
				continue
			}
			live(t, "switched", "a", map[string]string{"v": "1"})
		}
	})
}

// What forms are filled in from.
func TestDetails(t *testing.T) {
	repo := repository(t, "details", map[string]string{
		"app/message": "hello", "chart/Chart.yaml": "apiVersion: v2\nname: shop\nversion: 1.0.0\n", "chart/values.yaml": "replicas: 3\n",
	})
	create(t, "details", repo.URL(), "app")
	wait(t, "details", stack.Settled)
	var l struct {
		Items []struct {
			ID  string `json:"id"`
			URL string `json:"url"`
		} `json:"items"`
	}
	if err := s.API.Do(within(t, waitLimit), http.MethodGet, "/api/v1/repositories", nil, &l); err != nil {
		t.Fatal(err)
	}
	base := ""
	for _, r := range l.Items {
		if strings.HasSuffix(strings.TrimSuffix(r.URL, ".git"), "/details") {
			base = "/api/v1/repositories/" + r.ID
		}
	}
	get := func(t *testing.T, path string) string {
		t.Helper()
		var raw json.RawMessage
		if err := s.API.Do(within(t, waitLimit), http.MethodGet, path, nil, &raw); err != nil {
			t.Fatal(path, err)
		}
		return string(raw)
	}
	for name, c := range map[string]struct {
		path string
		want []string
	}{
		"REPO-01 API-15 applications in a repository":             {base + "/apps", []string{`{"path":"app","type":"Plugin"}`, `{"path":"chart","type":"Helm"}`}},
		"REPO-01 API-15 details of a chart":                       {base + "/appdetails?path=chart&revision=main", []string{`"type":"Helm"`, `{"name":"replicas","value":"3"}`}},
		"REPO-01 API-15 CMP-11 details of a source of a plugin":   {base + "/appdetails?path=app", []string{`"type":"Plugin"`, `"name":"shell-v1"`, `"name":"replicas"`, `"string":"hello"`}},
		"REPO-01 API-16 CMP-04 plugins that applications may use": {"/api/v1/settings/plugins", []string{`"name":"hang"`, `"name":"shell-v1"`, `"title":"Replicas"`}},
	} {
		t.Run(name, func(t *testing.T) {
			got := get(t, c.path)
			for _, want := range c.want {
				if !strings.Contains(got, want) {
					t.Errorf("no %s in %s", want, got)
				}
			}
			for _, x := range canaries.Find(c.path, []byte(got)) {
				t.Error(x)
			}
		})
	}
	t.Run("API-16 the command line lists plugins", func(t *testing.T) {
		out, err := s.API.CLI(within(t, waitLimit), "", "plugin", "list", "-o", "name")
		if err != nil || strings.Join(strings.Fields(out), " ") != "fail hang orphan secret shell-v1" {
			t.Errorf("%q, %v", out, err)
		}
	})
}
