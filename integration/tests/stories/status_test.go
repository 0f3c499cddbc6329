package stories_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/capstan-cd/capstan/integration/rigs/stack"
)

// An argoApp is what Argo CD's users read of an Application.
type argoApp struct {
	Metadata struct {
		Annotations map[string]string
		Finalizers  []string
	}
	Operation *struct {
		ID          string
		Sync        struct{ Prune bool }
		InitiatedBy struct{ Username string }
		Info        []struct{ Name, Value string }
	}
	Status struct {
		ControllerNamespace, ResourceHealthSource string
		Summary                                   struct {
			ExternalURLs, Images []string
			IsAppOfApps          bool
		}
		Resources []struct {
			Group, Version, Kind, Namespace, Name, Status       string
			Health                                              *struct{ Status string }
			Hook, RequiresPruning, RequiresDeletionConfirmation bool
			SyncWave                                            int
		}
		History []struct {
			Commit struct{ Author, Message string }
		}
	}
}

// printed is the application as the command line prints it.
func printed(t *testing.T, name string) (x argoApp) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(cli(t, "app", "get", name, "-o", "yaml")), &x); err != nil {
		t.Fatal(err)
	}
	return x
}

// eventually reads the application until it is as it should be.
func eventually(t *testing.T, name string, holds func(argoApp) error) argoApp {
	t.Helper()
	ctx := within(t, waitLimit)
	for {
		x := printed(t, name)
		err := holds(x)
		if err == nil {
			return x
		}
		select {
		case <-ctx.Done():
			t.Fatal(err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

const statusObjects = `apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: web
  annotations: {argocd.argoproj.io/sync-wave: "2", link.argocd.argoproj.io/docs: "Docs|https://docs.example.com"}
spec:
  tls: [{hosts: [shop.example.com]}]
  rules: [{host: shop.example.com, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: asks, annotations: {argocd.argoproj.io/sync-options: Prune=confirm}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: goodbye, annotations: {argocd.argoproj.io/hook: PostDelete}}
`

func TestStatusOfAnApplication(t *testing.T) {
	repo := repository(t, "told", map[string]string{"app/web.yaml": web, "app/more.yaml": statusObjects})
	byHand(t, "told", repo.URL(), "app", "team: told", "")
	t.Run("APP-14 APP-15 the field operation starts a sync of a new application, and is removed afterwards", func(t *testing.T) {
		text := strings.Replace(applied(t, "told"), "\nspec:\n", "\noperation: {initiatedBy: {username: eve}, info: [{name: ticket, value: T-1}], sync: {prune: true}, retry: {limit: 2}}\nspec:\n", 1)
		if _, err := s.API.Apply(within(t, waitLimit), text); err != nil {
			t.Fatal(err)
		}
		x := printed(t, "told")
		if x.Operation != nil && (x.Operation.InitiatedBy.Username == "eve" || !x.Operation.Sync.Prune || len(x.Operation.Info) != 1) {
			t.Errorf("operation is %+v", x.Operation)
		}
		condition(t, "told", func(x stack.App) error {
			if x.Status.Sync.Status != "Synced" {
				return fmt.Errorf("it is %s", x.Status.Sync.Status)
			}
			return nil
		})
		eventually(t, "told", func(x argoApp) error {
			if x.Operation != nil {
				return fmt.Errorf("the operation is still there: %+v", x.Operation)
			}
			return nil
		})
		st, _ := status(t, "told")["status"].(map[string]any)
		gotText, _ := json.Marshal(st["operationState"])
		if !strings.Contains(string(gotText), `"phase":"Succeeded"`) || !strings.Contains(string(gotText), "T-1") || strings.Contains(string(gotText), "eve") {
			t.Errorf("APP-15 operationState is %s", gotText)
		}
	})
	t.Run("APP-13 operationState has the request, its initiator, source and time, and the result of each object", func(t *testing.T) {
		st, _ := status(t, "told")["status"].(map[string]any)
		text, _ := json.Marshal(st["operationState"])
		var got struct {
			Phase, Message        string
			StartedAt, FinishedAt time.Time
			RetryCount            int
			Operation             struct {
				Sync        struct{ Prune bool }
				InitiatedBy struct{ Username string }
				Retry       struct{ Limit int }
			}
			SyncResult struct {
				Revision  string
				Source    struct{ RepoURL, Path, TargetRevision string }
				Resources []struct{ Kind, Name, Status string }
			}
		}
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatal(err)
		}
		r := got.SyncResult
		if got.Phase != "Succeeded" || got.Message == "" || got.StartedAt.IsZero() || got.FinishedAt.Before(got.StartedAt) || got.RetryCount != 0 ||
			!got.Operation.Sync.Prune || got.Operation.InitiatedBy.Username != "admin" || got.Operation.Retry.Limit != 2 {
			t.Errorf("operationState is %s", text)
		}
		if len(r.Revision) != 40 || r.Source.RepoURL != repo.URL() || r.Source.Path != "app" || r.Source.TargetRevision != "main" || len(r.Resources) < 3 || r.Resources[0].Status != "Synced" {
			t.Errorf("syncResult is %s", text)
		}
	})
	t.Run("APP-09 APP-20 APP-21 every top-level object is listed with its status", func(t *testing.T) {
		x := eventually(t, "told", func(x argoApp) error {
			for _, r := range x.Status.Resources {
				if r.Kind == "Deployment" && r.Health != nil && r.Health.Status == "Healthy" && len(x.Status.Summary.Images) > 0 {
					return nil
				}
			}
			return fmt.Errorf("resources are %+v", x.Status)
		})
		seen := map[string]bool{}
		for _, r := range x.Status.Resources {
			seen[r.Kind+" "+r.Name] = true
			if r.Status != "Synced" || r.Version == "" || r.Namespace != "told" {
				t.Errorf("%+v", r)
			}
			if (r.Kind == "Ingress") != (r.SyncWave == 2) || (r.Name == "asks") != r.RequiresDeletionConfirmation || r.RequiresPruning || r.Hook {
				t.Errorf("%+v", r)
			}
			if r.Kind == "Deployment" && (r.Health == nil || r.Health.Status != "Healthy") {
				t.Errorf("APP-21 health is read from the tree: %+v", r)
			}
		}
		if !seen["Deployment my-app"] || !seen["Ingress web"] || !seen["ConfigMap asks"] || len(seen) != 3 {
			t.Errorf("resources are %v", seen)
		}
		if x.Status.ControllerNamespace != "argocd" || x.Status.ResourceHealthSource != "appTree" {
			t.Errorf("APP-20 APP-21 %q, %q", x.Status.ControllerNamespace, x.Status.ResourceHealthSource)
		}
	})
	t.Run("APP-18 the summary has the addresses and the images of pods", func(t *testing.T) {
		sum := printed(t, "told").Status.Summary
		if !slices.Equal(sum.Images, []string{"my-app"}) || sum.IsAppOfApps || !slices.Contains(sum.ExternalURLs, "https://shop.example.com") || !slices.Contains(sum.ExternalURLs, "Docs|https://docs.example.com") {
			t.Errorf("summary %+v", sum)
		}
	})
	t.Run("APP-28 ignore-default-links hides what follows from the object", func(t *testing.T) {
		ingresses := schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "ingresses"}
		patch := []byte(`{"metadata":{"annotations":{"argocd.argoproj.io/ignore-default-links":"true"}}}`)
		if _, err := s.Clusters["in-cluster"].Dynamic().Resource(ingresses).Namespace("told").Patch(t.Context(), "web", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "told", func(x argoApp) error {
			if !slices.Equal(x.Status.Summary.ExternalURLs, []string{"Docs|https://docs.example.com"}) {
				return fmt.Errorf("addresses are %v", x.Status.Summary.ExternalURLs)
			}
			return nil
		})
	})
	t.Run("CMPR-10 API-09 the comparison is served: target, live and what differs", func(t *testing.T) {
		var diff struct {
			Items []struct {
				Kind, Status  string
				Desired, Live map[string]any
			}
		}
		if err := s.API.Do(t.Context(), "GET", "/api/v1/applications/argocd/told/diff?all=true", nil, &diff); err != nil {
			t.Fatal(err)
		}
		for _, d := range diff.Items {
			if d.Status != "Synced" || d.Desired["kind"] != d.Kind || d.Live["kind"] != d.Kind {
				t.Errorf("%s is %s, desired %v, live %v", d.Kind, d.Status, d.Desired["kind"], d.Live["kind"])
			}
		}
		if len(diff.Items) != 3 || !strings.Contains(nodes(t, "told"), "Pod") {
			t.Errorf("%d objects compared, tree %s", len(diff.Items), nodes(t, "told"))
		}
	})
	t.Run("CMPR-05 a spec is returned as it was written", func(t *testing.T) {
		spec, _ := status(t, "told")["spec"].(map[string]any)
		gotText := written(t, "told", func(x map[string]any) {
			spec, _ := x["spec"].(map[string]any)
			spec["ignoreDifferences"], spec["someDay"] = []any{}, map[string]any{"a": 1}
		})
		if !strings.Contains(gotText, "spec.someDay is stored without effect") {
			t.Errorf("it says %s", gotText)
		}
		now, _ := status(t, "told")["spec"].(map[string]any)
		if now["someDay"] == nil || now["ignoreDifferences"] == nil || now["destination"] == nil || len(now) != len(spec)+2 {
			t.Errorf("spec is %v", now)
		}
	})
	t.Run("ROLL-06 the history names the commit", func(t *testing.T) {
		eventually(t, "told", func(x argoApp) error { // a moment after the operation is over
			if h := x.Status.History; len(h) != 1 || h[0].Commit.Message == "" || h[0].Commit.Author == "" {
				return fmt.Errorf("history %+v", h)
			}
			return nil
		})
	})
	t.Run("APP-30 hooks of the deletion are shown as finalizers, and writing them back changes nothing", func(t *testing.T) {
		want := []string{"resources-finalizer.argocd.argoproj.io", "post-delete-finalizer.argocd.argoproj.io", "post-delete-finalizer.argocd.argoproj.io/cleanup"}
		if got := printed(t, "told").Metadata.Finalizers; !slices.Equal(got, want) {
			t.Errorf("finalizers %v", got)
		}
	})
	t.Run("APP-14 a second operation is refused while one is there, and so is the rest of the write", func(t *testing.T) {
		if _, err := repo.Commit(t.Context(), "hook", map[string]string{"app/slow.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: asks-too, annotations: {argocd.argoproj.io/sync-options: Prune=confirm}}\n", "app/more.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: other}\n"}); err != nil {
			t.Fatal(err)
		}
		text := strings.Replace(applied(t, "told"), "\nspec:\n", "\noperation: {sync: {prune: true}}\nspec:\n", 1)
		condition(t, "told", differs)
		if _, err := s.API.Apply(within(t, waitLimit), text); err != nil { // it waits for approval of a deletion
			t.Fatal(err)
		}
		eventually(t, "told", func(x argoApp) error {
			if x.Operation == nil || x.Operation.ID == "" {
				return fmt.Errorf("no operation is there")
			}
			return nil
		})
		out, err := s.API.Apply(within(t, waitLimit), strings.Replace(text, "team: told", "team: other", 1))
		if gotText := fmt.Sprint(out, err); !strings.Contains(gotText, "is in progress") {
			t.Errorf("it says %s", gotText)
		}
		if strings.Contains(applied(t, "told"), "team: other") {
			t.Error("half of the write was taken")
		}
		cli(t, "app", "terminate", "told")
	})
}

func TestRefreshAnnotation(t *testing.T) {
	repo := repository(t, "asked", map[string]string{"app/a.yaml": configMap("a", "one")})
	deploy(t, "asked", repo.URL(), "app", "")
	settled(t, "asked")
	for _, kind := range []string{"normal", "hard"} {
		t.Run("APP-22 the annotation refresh is consumed by the look: "+kind, func(t *testing.T) {
			text := strings.Replace(applied(t, "asked"), "\n  finalizers:", "\n  annotations: {argocd.argoproj.io/refresh: "+kind+", argocd.argoproj.io/refresh-timestamp: \"2026-01-01T00:00:00.1Z\", keep: me}\n  finalizers:", 1)
			if _, err := s.API.Apply(within(t, waitLimit), text); err != nil {
				t.Fatal(err)
			}
			eventually(t, "asked", func(x argoApp) error {
				if len(x.Metadata.Annotations) != 1 || x.Metadata.Annotations["keep"] != "me" {
					return fmt.Errorf("annotations are %v", x.Metadata.Annotations)
				}
				return nil
			})
			if _, err := s.API.Apply(within(t, waitLimit), strings.Replace(text, "argocd.argoproj.io/refresh: "+kind+", argocd.argoproj.io/refresh-timestamp: \"2026-01-01T00:00:00.1Z\", keep: me", "", 1)); err != nil {
				t.Fatal(err)
			}
		})
	}
	t.Run("APP-24 skip-reconcile stops all changes of the application, and its removal resumes them", func(t *testing.T) {
		plain := applied(t, "asked")
		skipping := strings.Replace(plain, "\n  finalizers:", "\n  annotations: {argocd.argoproj.io/skip-reconcile: \"true\"}\n  finalizers:", 1)
		if _, err := s.API.Apply(within(t, waitLimit), skipping); err != nil {
			t.Fatal(err)
		}
		condition(t, "asked", func(x stack.App) error {
			if !strings.Contains(x.Status.Capstan.Hold, "skip-reconcile") {
				return fmt.Errorf("hold is %q", x.Status.Capstan.Hold)
			}
			return nil
		})
		before := settled(t, "asked").Status.Sync.Revision
		if _, err := repo.Commit(t.Context(), "two", map[string]string{"app/a.yaml": configMap("a", "two")}); err != nil {
			t.Fatal(err)
		}
		out, err := s.API.CLI(within(t, waitLimit), "", "app", "sync", "asked")
		if err == nil || !strings.Contains(out+err.Error(), "skip-reconcile") {
			t.Errorf("sync: %v\n%s", err, out)
		}
		if now := printedRevision(t, "asked"); now != before {
			t.Errorf("it moved to %s", now)
		}
		if _, err := s.API.Apply(within(t, waitLimit), plain); err != nil {
			t.Fatal(err)
		}
		live(t, "asked", "a", value("two"))
	})
	t.Run("APP-26 APP-25 APP-23 annotations without effect are reported", func(t *testing.T) {
		gotText := written(t, "asked", func(x map[string]any) {
			meta, _ := x["metadata"].(map[string]any)
			meta["annotations"] = map[string]any{
				"notice.argocd.argoproj.io/severity": "fatal", "argocd.argoproj.io/managed-by-url": "javascript:1", "argocd.argoproj.io/hydrate": "normal",
			}
		})
		for _, want := range []string{"severity", "managed-by-url", "hydrate"} {
			if !strings.Contains(gotText, want) {
				t.Errorf("it does not speak of %s: %s", want, gotText)
			}
		}
	})
}

// written reads an application, changes it, writes it back, and gives the
// warnings that it got.
func written(t *testing.T, name string, change func(map[string]any)) string {
	t.Helper()
	x := status(t, name)
	change(x)
	var out struct{ Warnings []string }
	if err := s.API.Do(t.Context(), "PUT", "/api/v1/applications/argocd/"+name, x, &out); err != nil {
		t.Fatal(err)
	}
	return strings.Join(out.Warnings, "\n")
}

func printedRevision(t *testing.T, name string) string {
	t.Helper()
	x, err := s.API.Get(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return x.Status.Sync.Revision
}
