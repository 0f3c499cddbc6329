package api_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/api/apitest"
	"github.com/capstan-cd/capstan/hub/catalog"
	"github.com/capstan-cd/capstan/hub/catalog/transact"
	"github.com/capstan-cd/capstan/hub/store"
)

// A setHub is a hub with one cluster, whose application sets a test reconciles
// itself.
type setHub struct {
	*apitest.Hub

	tenant hub.TenantID
	admin  hub.Caller
}

func newSetHub(t *testing.T) *setHub {
	t.Helper()
	h := apitest.New(t)
	s := &setHub{Hub: h, tenant: h.Tenant("acme")}
	s.admin = hub.Caller{Tenant: s.tenant, Username: "ann", Roles: []string{hub.RoleTenantAdmin}}
	s.in(func(ctx context.Context, tx *store.Tenant) error {
		_, err := tx.CreateCluster(ctx, hub.Cluster{Meta: hub.Meta{Name: "prod"}, Server: "https://prod.test"})
		return err
	})
	return s
}

func (s *setHub) in(do func(ctx context.Context, tx *store.Tenant) error) {
	s.T.Helper()
	if err := s.DB.InTenant(s.T.Context(), s.tenant, do); err != nil {
		s.T.Fatal(err)
	}
}

// list is a set with a list generator of some names; more are lines of its spec.
func list(name, project string, elements []string, more string) string {
	items := make([]string, len(elements))
	for i, e := range elements {
		items[i] = "{name: " + e + "}"
	}
	return fmt.Sprintf(`apiVersion: argoproj.io/v1alpha1
kind: ApplicationSet
metadata: {name: %s, namespace: argocd}
spec:
  goTemplate: true
  generators: [{list: {elements: [%s]}}]
  template:
    metadata: {name: '{{.name}}'}
    spec:
      project: %s
      source: {repoURL: https://git.test/x.git, path: app, targetRevision: main}
      destination: {name: prod, namespace: '{{.name}}'}
%s`, name, strings.Join(items, ", "), project, more)
}

func (s *setHub) apply(text string) {
	s.T.Helper()
	out, err := s.Catalog.Apply(s.T.Context(), s.admin, []byte(text), false, false)
	if err != nil {
		s.T.Fatal(err)
	}
	for _, a := range out {
		if a.Err != nil {
			s.T.Fatal(a.Err)
		}
	}
}

// reconcile reconciles a set once and returns it.
func (s *setHub) reconcile(name string) hub.ApplicationSet {
	s.T.Helper()
	set := s.set(name)
	if _, err := s.Catalog.ReconcileApplicationSet(s.T.Context(), s.tenant, set.ID, false); err != nil {
		s.T.Fatal(err)
	}
	return s.set(name)
}

func (s *setHub) set(name string) hub.ApplicationSet {
	s.T.Helper()
	set, err := s.Catalog.ApplicationSet(s.T.Context(), s.admin, "argocd", name)
	if err != nil {
		s.T.Fatal(err)
	}
	return set
}

// apps are the names of all applications, those that are being deleted with "-".
func (s *setHub) apps() (out []string) {
	s.T.Helper()
	s.in(func(ctx context.Context, tx *store.Tenant) error {
		all, err := tx.Applications(ctx, hub.ApplicationFilter{All: true, Limit: 5000})
		out = nil
		for _, a := range all {
			name := a.Name
			if a.DeletingAt != nil {
				name = "-" + name
			}
			out = append(out, name)
		}
		return err
	})
	slices.Sort(out)
	return out
}

func (s *setHub) app(name string) hub.Application {
	s.T.Helper()
	v, err := s.Catalog.Application(s.T.Context(), s.admin, "argocd", name)
	if err != nil {
		s.T.Fatal(err)
	}
	return v.Application
}

func condition(set hub.ApplicationSet, kind string) hub.ApplicationSetCondition {
	for _, c := range set.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return hub.ApplicationSetCondition{}
}

func same(t *testing.T, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func names(n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf("app-%04d", i))
	}
	return out
}

func TestReconcileOfASet(t *testing.T) {
	t.Parallel()
	s := newSetHub(t)
	s.apply(list("shop", "default", []string{"a", "b"}, ""))
	t.Run("ASET-01 ASET-12 ASET-20 ASET-21 a set makes its applications and owns them", func(t *testing.T) {
		set := s.reconcile("shop")
		same(t, s.apps(), []string{"a", "b"})
		a := s.app("a")
		if a.Set == nil || a.Set.Name != "shop" || !slices.Contains(a.Finalizers, "resources-finalizer.argocd.argoproj.io") {
			t.Errorf("%+v %v", a.Set, a.Finalizers)
		}
		if set.Status.ResourcesCount != 2 || set.Status.Health != hub.Healthy || condition(set, hub.SetResourcesUpToDate).Status != "True" || condition(set, hub.SetErrorOccurred).Status != "False" {
			t.Errorf("%+v", set.Status)
		}
	})
	t.Run("ASET-12 what somebody changes of an application is changed back", func(t *testing.T) {
		a := s.app("a")
		a.Spec = []byte(strings.Replace(string(a.Spec), `"app"`, `"other"`, 1))
		a.Labels = map[string]string{"mine": "1"}
		if _, _, _, err := s.Catalog.PutApplication(t.Context(), s.admin, hub.Application{Meta: a.Meta, Spec: a.Spec}, catalog.PutOptions{Update: true}); err != nil {
			t.Fatal(err)
		}
		s.reconcile("shop")
		if a = s.app("a"); !strings.Contains(string(a.Spec), `"app"`) || len(a.Labels) > 0 {
			t.Errorf("%s %v", a.Spec, a.Labels)
		}
	})
	t.Run("ASET-12 the writes are in the audit log with the set as their actor", func(t *testing.T) {
		page, err := s.Catalog.Audit(t.Context(), s.admin, hub.AuditFilter{Actor: "applicationset shop", Limit: 50})
		if err != nil || len(page.Records) != 3 {
			t.Errorf("%d records, %v", len(page.Records), err)
		}
	})
	t.Run("ASET-18 the annotation that asks for a refresh is removed when that is done", func(t *testing.T) {
		asking := strings.Replace(list("shop", "default", []string{"a", "b"}, ""), "namespace: argocd}", `namespace: argocd, annotations: {argocd.argoproj.io/application-set-refresh: "true"}}`, 1)
		s.apply(asking)
		if set := s.set("shop"); set.Annotations[hub.RefreshSetAnnotation] != "true" {
			t.Errorf("%v", set.Annotations)
		}
		if set := s.reconcile("shop"); len(set.Annotations) > 0 {
			t.Errorf("%v", set.Annotations)
		}
	})
	t.Run("FT-G3 INV-3 an empty result deletes nothing without consent", func(t *testing.T) {
		s.apply(list("shop", "default", nil, ""))
		set := s.reconcile("shop")
		same(t, s.apps(), []string{"a", "b"})
		held := set.Status.Held
		if held == nil || !slices.Equal(held.Applications, []string{"argocd/a", "argocd/b"}) || condition(set, hub.SetDeletionHeld).Status != "True" {
			t.Fatalf("%+v", set.Status)
		}
		if _, err := s.Catalog.ConsentApplicationSet(t.Context(), s.admin, "argocd", "shop", "other"); err == nil {
			t.Error("consent to another list was accepted")
		}
		if _, err := s.Catalog.ConsentApplicationSet(t.Context(), s.admin, "argocd", "shop", held.Digest); err != nil {
			t.Fatal(err)
		}
		set = s.reconcile("shop")
		if set.Status.Held != nil {
			t.Errorf("%+v", set.Status.Held)
		}
		for _, name := range s.apps() {
			if !strings.HasPrefix(name, "-") {
				t.Errorf("%s is still there", name)
			}
		}
	})
}

func TestReconcileRefuses(t *testing.T) {
	t.Parallel()
	s := newSetHub(t)
	s.apply("apiVersion: argoproj.io/v1alpha1\nkind: AppProject\nmetadata: {name: team, namespace: argocd}\nspec: {sourceRepos: ['*'], destinations: [{name: '*', namespace: '*'}]}\n")
	s.apply(list("shop", "team", []string{"a", "b"}, ""))
	s.reconcile("shop")
	t.Run("ASET-11 INV-3 a set whose generator fails changes nothing", func(t *testing.T) {
		broken := strings.Replace(list("shop", "team", []string{"a"}, ""), "{list: {elements: [{name: a}]}}", "{plugin: {configMapRef: {name: x}}}", 1)
		s.apply(broken)
		set := s.reconcile("shop")
		same(t, s.apps(), []string{"a", "b"})
		if c := condition(set, hub.SetErrorOccurred); c.Status != "True" || set.Status.Health != hub.Degraded {
			t.Errorf("%+v", set.Status)
		}
		s.apply(list("shop", "team", []string{"a", "b"}, ""))
		if set = s.reconcile("shop"); set.Status.Health != hub.Healthy {
			t.Errorf("%+v", set.Status)
		}
	})
	t.Run("ASET-10 an application without a cluster is skipped, others proceed", func(t *testing.T) {
		text := strings.Replace(list("lost", "team", []string{"c", "d"}, ""), "name: prod,", "name: '{{if eq .name \"c\"}}prod{{else}}gone{{end}}',", 1)
		s.apply(text)
		set := s.reconcile("lost")
		same(t, s.apps(), []string{"a", "b", "c"})
		if c := condition(set, hub.SetErrorOccurred); c.Status != "True" || !strings.Contains(c.Message, "application d") {
			t.Errorf("%+v", c)
		}
	})
	t.Run("SEC-D11 an application of another set or project is not taken over", func(t *testing.T) {
		s.apply(list("thief", "default", []string{"a", "own"}, ""))
		set := s.reconcile("thief")
		if a := s.app("a"); a.Set.Name != "shop" || a.Project != "team" {
			t.Errorf("%+v", a)
		}
		if c := condition(set, hub.SetErrorOccurred); !strings.Contains(c.Message, "belongs to application set shop") || s.app("own").Set.Name != "thief" {
			t.Errorf("%+v", c)
		}
	})
	t.Run("SEC-B13 a set stops at its quota, and deletes nothing because of it", func(t *testing.T) {
		s.in(func(ctx context.Context, tx *store.Tenant) error {
			return tx.PutQuotas(ctx, hub.Quotas{hub.QuotaPerSet: 3}, nil)
		})
		s.apply(list("shop", "team", []string{"b", "e", "f", "g"}, ""))
		set := s.reconcile("shop")
		if c := condition(set, hub.SetErrorOccurred); c.Status != "True" || !strings.Contains(c.Message, "more than the 3 applications") {
			t.Errorf("%+v", set.Status.Conditions)
		}
		if s.app("a").DeletingAt != nil {
			t.Error("an application was deleted")
		}
	})
	t.Run("ASET-22 SEC-D11 a set needs the rights to make applications in its project", func(t *testing.T) {
		for policy, ok := range map[string]bool{
			"p, bob, applicationsets, *, team/*, allow":                                          false,
			"p, bob, applicationsets, *, team/*, allow\np, bob, applications, *, team/*, allow":  true,
			"p, bob, applicationsets, *, team/*, allow\np, bob, applications, *, other/*, allow": false,
		} {
			s.in(func(ctx context.Context, tx *store.Tenant) error { return tx.SetPolicy(ctx, policy) })
			bob := hub.Caller{Tenant: s.tenant, Username: "bob"}
			for text, allowed := range map[string]bool{list("bobs", "team", nil, ""): ok, list("bobs", "'{{.project}}'", nil, ""): false, list("bobs", "default", nil, ""): false} {
				out, err := s.Catalog.Apply(t.Context(), bob, []byte(text), false, true)
				if err != nil || (out[0].Err == nil) != allowed {
					t.Errorf("%s: %v %v, want allowed %v", policy, err, out[0].Err, allowed)
				}
			}
		}
	})
}

func TestDeletionOfASet(t *testing.T) {
	t.Parallel()
	t.Run("ASET-12 without its applications they have no owner", func(t *testing.T) {
		s := newSetHub(t)
		s.apply(list("shop", "default", []string{"a"}, ""))
		s.reconcile("shop")
		if left, err := s.Catalog.DeleteApplicationSet(t.Context(), s.admin, "argocd", "shop", hub.DeleteSetAlone); left != nil || err != nil {
			t.Fatalf("%v %v", left, err)
		}
		if a := s.app("a"); a.Set != nil || a.DeletingAt != nil {
			t.Errorf("%+v", a)
		}
	})
	t.Run("ASET-14 a set that may not delete leaves its applications", func(t *testing.T) {
		s := newSetHub(t)
		s.apply(list("shop", "default", []string{"a"}, "  syncPolicy: {applicationsSync: create-only}\n"))
		s.reconcile("shop")
		left, err := s.Catalog.DeleteApplicationSet(t.Context(), s.admin, "argocd", "shop", hub.DeleteWithApplications)
		if left == nil || err != nil {
			t.Fatalf("%v %v", left, err)
		}
		if _, err := s.Catalog.ReconcileApplicationSet(t.Context(), s.tenant, left.ID, false); err != nil {
			t.Fatal(err)
		}
		if a := s.app("a"); a.Set != nil || a.DeletingAt != nil {
			t.Errorf("%+v", a)
		}
	})
	t.Run("ASET-12 ASET-13 it deletes its applications, and then itself", func(t *testing.T) {
		s := newSetHub(t)
		s.apply(list("shop", "default", []string{"a", "b"}, "  syncPolicy: {preserveResourcesOnDeletion: true}\n"))
		set := s.reconcile("shop")
		if a := s.app("a"); len(a.Finalizers) > 0 {
			t.Errorf("%v", a.Finalizers)
		}
		if _, err := s.Catalog.DeleteApplicationSet(t.Context(), s.admin, "argocd", "shop", hub.DeleteWithApplications); err != nil {
			t.Fatal(err)
		}
		for range 2 { // the applications, which go at once; and the set
			if _, err := s.Catalog.ReconcileApplicationSet(t.Context(), s.tenant, set.ID, false); err != nil {
				t.Fatal(err)
			}
		}
		sets, _, err := s.Catalog.ApplicationSets(t.Context(), s.admin, catalog.SetFilter{})
		if err != nil || len(sets) > 0 || len(s.apps()) > 0 {
			t.Errorf("%v %v %v", sets, s.apps(), err)
		}
	})
}

func TestPreviewOfASet(t *testing.T) {
	t.Parallel()
	s := newSetHub(t)
	s.apply(list("shop", "default", []string{"a", "b", "c"}, ""))
	s.reconcile("shop")
	set := s.set("shop")
	next := strings.ReplaceAll(string(set.Spec), `"name":"c"`, `"name":"d"`)
	t.Run("ASET-19 UX-PRO-4 a preview equals what happens, and writes nothing", func(t *testing.T) {
		s.apply(list("drawn", "default", nil, "")) // another one, which changes nothing of it
		preview, err := s.Catalog.GenerateApplications(t.Context(), s.admin, hub.ApplicationSet{Meta: hub.Meta{Namespace: "argocd", Name: "shop"}, Spec: []byte(next)})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range preview {
			got = append(got, p.Action+" "+p.Name)
		}
		same(t, got, []string{"unchanged a", "unchanged b", "delete c", "create d"})
		same(t, s.apps(), []string{"a", "b", "c"})
		if _, outcome, _, err := s.Catalog.PutApplicationSet(t.Context(), s.admin, hub.ApplicationSet{Meta: hub.Meta{Namespace: "argocd", Name: "shop"}, Spec: []byte(next)}, catalog.PutOptions{Update: true}); err != nil || outcome != transact.Configured {
			t.Fatal(outcome, err)
		}
		s.reconcile("shop")
		same(t, s.apps(), []string{"a", "b", "d"})
	})
}

func TestSettingsOfSets(t *testing.T) {
	t.Parallel()
	s := newSetHub(t)
	set := func(values string) {
		t.Helper()
		s.apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: argocd-cmd-params-cm, namespace: argocd}\ndata: {" + values + "}\n")
	}
	t.Run("ASET-19 dryrun: a set changes nothing, and says what it would change", func(t *testing.T) {
		set("applicationsetcontroller.dryrun: 'true'")
		s.apply(list("shop", "default", []string{"a", "b"}, ""))
		c := condition(s.reconcile("shop"), hub.SetResourcesUpToDate)
		same(t, s.apps(), nil)
		if c.Status != "False" || !strings.Contains(c.Message, "2 applications would be created") {
			t.Errorf("%+v", c)
		}
		set("applicationsetcontroller.dryrun: 'false'")
		s.reconcile("shop")
		same(t, s.apps(), []string{"a", "b"})
	})
	t.Run("ASET-14 the policy of the tenant wins over that of a set, unless sets may say otherwise", func(t *testing.T) {
		set("applicationsetcontroller.policy: create-only")
		s.apply(list("shop", "default", []string{"b", "c"}, "  syncPolicy: {applicationsSync: sync}\n"))
		s.reconcile("shop")
		same(t, s.apps(), []string{"a", "b", "c"})
		set("applicationsetcontroller.policy: create-only, applicationsetcontroller.enable.policy.override: 'true'")
		s.reconcile("shop")
		same(t, s.apps(), []string{"b", "c"})
	})
	t.Run("FT-G3 the limit of deletions without consent is the tenant's, and that of a set wins", func(t *testing.T) {
		set("applicationsetcontroller.policy: sync, applicationsetcontroller.deletion.limit: '0'")
		s.apply(list("shop", "default", []string{"b"}, ""))
		if held := s.reconcile("shop").Status.Held; held == nil || held.Limit != 0 {
			t.Errorf("%+v", held)
		}
		s.apply(strings.Replace(list("shop", "default", []string{"b"}, ""), "namespace: argocd}", "namespace: argocd, annotations: {capstan.dev/deletion-limit: 100%}}", 1))
		s.reconcile("shop")
		same(t, s.apps(), []string{"b"})
	})
	t.Run("ASET-15 labels and annotations that the tenant preserves stay", func(t *testing.T) {
		set("applicationsetcontroller.global.preserved.labels: owner, applicationsetcontroller.global.preserved.annotations: example.com/owner")
		b := s.app("b")
		b.Labels, b.Annotations = map[string]string{"owner": "x", "other": "y"}, map[string]string{"example.com/owner": "x", "other": "y"}
		if _, _, _, err := s.Catalog.PutApplication(t.Context(), s.admin, hub.Application{Meta: b.Meta, Spec: b.Spec}, catalog.PutOptions{Update: true}); err != nil {
			t.Fatal(err)
		}
		s.reconcile("shop")
		if b = s.app("b"); len(b.Labels) != 1 || b.Labels["owner"] != "x" || len(b.Annotations) != 1 || b.Annotations["example.com/owner"] != "x" {
			t.Errorf("%v %v", b.Labels, b.Annotations)
		}
	})
	t.Run("ANY-04 a set is in a namespace that the tenant has enabled, and so are its applications", func(t *testing.T) {
		elsewhere := strings.Replace(list("away", "default", []string{"z"}, ""), "namespace: argocd", "namespace: team-a", 1)
		out, err := s.Catalog.Apply(t.Context(), s.admin, []byte(elsewhere), false, false)
		if err != nil || out[0].Err == nil || !strings.Contains(out[0].Err.Error(), "may have no application sets") {
			t.Fatalf("%v %v", out, err)
		}
		set("applicationsetcontroller.namespaces: team-*, application.namespaces: team-*")
		s.apply("apiVersion: argoproj.io/v1alpha1\nkind: AppProject\nmetadata: {name: default, namespace: argocd}\nspec: {sourceRepos: ['*'], destinations: [{server: '*', namespace: '*'}], sourceNamespaces: [team-a]}\n")
		s.apply(elsewhere)
		away, err := s.Catalog.ApplicationSet(t.Context(), s.admin, "team-a", "away")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Catalog.ReconcileApplicationSet(t.Context(), s.tenant, away.ID, false); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Catalog.Application(t.Context(), s.admin, "team-a", "z"); err != nil {
			t.Error(err)
		}
	})
	t.Run("ANY-05 generators ask no Git host where the tenant does not allow it", func(t *testing.T) {
		const pulls = "{pullRequest: {github: {owner: acme, repo: x, api: 'https://git.example.com'}}}"
		for values, want := range map[string]string{
			"applicationsetcontroller.enable.scm.providers: 'false'":                                                                             "is false: generators may not ask Git hosts",
			"applicationsetcontroller.enable.scm.providers: 'true', applicationsetcontroller.allowed.scm.providers: 'https://other.example.com'": "may not ask git.example.com",
		} {
			set(values)
			s.apply(strings.Replace(list("pulls", "default", nil, ""), "{list: {elements: []}}", pulls, 1))
			if c := condition(s.reconcile("pulls"), hub.SetErrorOccurred); c.Status != "True" || !strings.Contains(c.Message, want) {
				t.Errorf("%s: %+v", values, c)
			}
		}
	})
}
