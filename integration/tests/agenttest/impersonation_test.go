package agenttest_test

import (
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/capstan-cd/capstan/hub"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
)

// grant gives a service account of the applications' namespace rights there.
func (w *world) grant(account, rules string) {
	w.t.Helper()
	w.apply("apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: " + account + ", namespace: NS}\n---\n" +
		"apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: " + account + ", namespace: NS}\nrules: " + rules + "\n---\n" +
		"apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: " + account + ", namespace: NS}\n" +
		"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: " + account + "}\nsubjects: [{kind: ServiceAccount, name: " + account + ", namespace: NS}]\n")
}

const (
	onConfigMaps = `[{apiGroups: [""], resources: [configmaps], verbs: [get, create, patch, delete]}]`
	applySecrets = `[{apiGroups: [""], resources: [configmaps], verbs: [get, create, patch, delete]}, {apiGroups: [""], resources: [secrets], verbs: [get, create, patch]}]`
	allOfThese   = `[{apiGroups: ["", apps, batch], resources: [configmaps, secrets, deployments, jobs], verbs: [get, create, patch, delete, update]}]`
	secretOfTest = "---\napiVersion: v1\nkind: Secret\nmetadata: {name: sealed, namespace: NS}\nstringData: {a: b}\n"
)

// users records as whom requests about objects of the applications' namespace
// are sent: "verb resource/name user".
type users struct {
	mu   sync.Mutex
	list []string
}

func (w *world) recordUsers(t *testing.T) *users {
	t.Helper()
	u := &users{}
	w.faults.set(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		if rest, ok := strings.CutPrefix(r.URL.Path[strings.LastIndex(r.URL.Path, "/namespaces/")+1:], "namespaces/"+w.namespace+"/"); ok && r.URL.Query().Get("watch") == "" {
			u.mu.Lock()
			u.list = append(u.list, r.Method+" "+rest+" "+r.Header.Get("Impersonate-User"))
			u.mu.Unlock()
		}
		return next.RoundTrip(r)
	})
	t.Cleanup(func() { w.faults.set(nil) })
	return u
}

func (u *users) all() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.list)
}

// only checks that there were requests, all of them as one user.
func (u *users) only(t *testing.T, user string) {
	t.Helper()
	all := u.all()
	if len(all) == 0 {
		t.Error("no request was sent")
	}
	for _, r := range all {
		if !strings.HasSuffix(r, " "+user) {
			t.Errorf("not as %s: %s", user, r)
		}
	}
}

func (w *world) ops(t *testing.T) linkv1.OpsClient {
	t.Helper()
	conn, ok := w.server.Conn(w.cluster)
	if !ok {
		t.Fatal("no connection to the agent")
	}
	return linkv1.NewOpsClient(conn)
}

func TestImpersonation(t *testing.T) {
	w := newWorld(t)
	account := "system:serviceaccount:" + w.namespace + ":deployer"
	w.grant("deployer", onConfigMaps)
	w.set(&linkv1.Settings{Impersonate: true})
	a := w.application()
	a.policy.ServiceAccount = account
	t.Run("IMP-01 IMP-03 ENG-20 DIFF-05 objects are read, tried and applied as the account, with its rights alone", func(t *testing.T) {
		asked := w.recordUsers(t)
		a.deploy(configMap("one", "red"))
		a.synced()
		asked.only(t, account)
	})
	t.Run("IMP-03 IMP-04 a right that the account lacks is named with account, verb, kind, namespace and fix", func(t *testing.T) {
		op := w.ended(a.begin(configMap("one", "red")+secretOfTest, nil), "Failed")
		got := messageOf(op, "sealed")
		for _, part := range []string{account, "cannot patch", `"secrets"`, w.namespace} {
			if !strings.Contains(got, part) {
				t.Errorf("the message does not say %s: %s", part, got)
			}
		}
		report, err := w.ops(t).CheckAccess(t.Context(), &linkv1.CheckAccessRequest{AppId: a.id})
		if err != nil || len(report.GetMissing()) == 0 {
			t.Fatal(report, err)
		}
		if fix := report.GetMissing()[0].GetFix(); !strings.Contains(fix, "service account deployer of namespace "+w.namespace) || !strings.Contains(fix, "secrets in namespace "+w.namespace) {
			t.Errorf("fix %q", fix)
		}
	})
	t.Run("IMP-03 with the right it is applied, and without the right to delete it is not pruned", func(t *testing.T) {
		w.grant("deployer", applySecrets)
		w.eventually("the right holds", func() bool {
			report, err := w.ops(t).CheckAccess(t.Context(), &linkv1.CheckAccessRequest{AppId: a.id})
			return err == nil && len(report.GetMissing()) == 1 && report.GetMissing()[0].GetVerb() == "delete"
		})
		a.deploy(configMap("one", "red") + secretOfTest)
		w.get(secrets, "sealed")
		op := w.ended(a.begin(configMap("one", "red"), nil), "Failed")
		if got := messageOf(op, "sealed"); !strings.Contains(got, "cannot delete") {
			t.Errorf("message %q", got)
		}
		w.get(secrets, "sealed")
		w.grant("deployer", allOfThese)
		w.eventually("the right holds", func() bool {
			report, err := w.ops(t).CheckAccess(t.Context(), &linkv1.CheckAccessRequest{AppId: a.id})
			return err == nil && len(report.GetMissing()) == 0 && report.GetObjects() > 0
		})
		a.syncAgain()
		w.waitDeleted(secrets, "sealed")
	})
	t.Run("IMP-03 self-heal, reads, deletions and hooks are the account's", func(t *testing.T) {
		asked := w.recordUsers(t)
		w.edit(configMaps, "one", "kubectl-edit", `{"data":{"color":"black"}}`)
		w.live(configMaps, "one", data("color", "red"))
		ops := w.ops(t)
		if _, err := ops.Get(t.Context(), &linkv1.GetRequest{AppId: a.id, Version: "v1", Kind: "ConfigMap", Namespace: w.namespace, Name: "one"}); err != nil {
			t.Fatal(err)
		}
		if _, err := ops.Delete(t.Context(), &linkv1.DeleteRequest{AppId: a.id, Version: "v1", Kind: "ConfigMap", Namespace: w.namespace, Name: "one"}); err != nil {
			t.Fatal(err)
		}
		b := w.application()
		b.policy.ServiceAccount = account
		b.deploy("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: hook, namespace: NS, annotations: {argocd.argoproj.io/hook: PreSync, argocd.argoproj.io/hook-delete-policy: HookSucceeded}}\n" + configMap("after", "red"))
		asked.only(t, account)
		if all := strings.Join(asked.all(), "\n"); !strings.Contains(all, "configmaps/hook") || !strings.Contains(all, "DELETE configmaps/one") {
			t.Errorf("requests:\n%s", all)
		}
	})
	t.Run("IMP-03 actions are run as the account", func(t *testing.T) {
		b := w.application()
		b.policy = &linkv1.Policy{ServiceAccount: account}
		b.deploy(workloads[:strings.LastIndex(workloads, "---")])
		b.synced()
		asked := w.recordUsers(t)
		if _, err := b.runAction(t, b.object("apps", "v1", "Deployment", "web"), "restart", nil); err != nil {
			t.Fatal(err)
		}
		asked.only(t, account)
	})
	t.Run("IMP-03 an application is deleted as the account", func(t *testing.T) {
		b := w.application()
		b.policy.ServiceAccount = account
		b.deploy(configMap("leaving", "red"))
		asked := w.recordUsers(t)
		id, rows := b.delete()
		w.append(rows...)
		w.ended(id, "Succeeded")
		w.waitDeleted(configMaps, "leaving")
		asked.only(t, account)
	})
	t.Run("INV-8 IMP-03 an application that does not change costs no request", func(t *testing.T) {
		a.syncAgain()
		a.synced()
		asked := w.recordUsers(t)
		b := w.application()
		b.policy.ServiceAccount = account
		b.deploy(configMap("marker", "red"))
		b.synced()
		for _, r := range asked.all() {
			if strings.Contains(r, "configmaps/one") {
				t.Errorf("request %s", r)
			}
		}
	})
}

func TestImpersonationWithoutAccount(t *testing.T) {
	w := newWorld(t)
	w.grant("deployer", onConfigMaps)
	a := w.application()
	t.Run("IMP-01 while it is off, the project's account is not used", func(t *testing.T) {
		a.policy.ServiceAccount = "system:serviceaccount:" + w.namespace + ":nobody"
		asked := w.recordUsers(t)
		a.deploy(configMap("one", "red"))
		a.synced()
		asked.only(t, "")
	})
	t.Run("IMP-04 what an account would lack is reported before it is enabled", func(t *testing.T) {
		report, err := w.ops(t).CheckAccess(t.Context(), &linkv1.CheckAccessRequest{AppId: a.id})
		if err != nil || report.GetEnabled() || report.GetServiceAccount() != a.policy.GetServiceAccount() {
			t.Fatal(report, err)
		}
		var verbs []string
		for _, m := range report.GetMissing() {
			verbs = append(verbs, m.GetVerb()+" "+m.GetResource()+" "+m.GetNamespace())
		}
		if want := []string{"get configmaps " + w.namespace, "create configmaps " + w.namespace, "patch configmaps " + w.namespace, "delete configmaps " + w.namespace}; !slices.Equal(verbs, want) {
			t.Errorf("missing %q, want %q", verbs, want)
		}
	})
	t.Run("IMP-04 a right for one name is enough for an object of that name", func(t *testing.T) {
		w.grant("narrow", `[{apiGroups: [""], resources: [configmaps], verbs: [create]}, {apiGroups: [""], resources: [configmaps], resourceNames: [one], verbs: [get, patch, delete]}]`)
		a.policy.ServiceAccount = "system:serviceaccount:" + w.namespace + ":narrow"
		a.deploy(configMap("one", "red"))
		w.eventually("nothing is missing", func() bool {
			report, err := w.ops(t).CheckAccess(t.Context(), &linkv1.CheckAccessRequest{AppId: a.id})
			return err == nil && len(report.GetMissing()) == 0
		})
	})
	t.Run("IMP-01(refused) without a matching account an operation fails, and nothing is sent", func(t *testing.T) {
		w.set(&linkv1.Settings{Impersonate: true})
		a.policy.ServiceAccount = ""
		asked := w.recordUsers(t)
		op := w.ended(a.begin(configMap("one", "blue"), nil), "Failed")
		if !strings.Contains(op.GetMessage(), "project default names no service account") || !strings.Contains(op.GetMessage(), "destinationServiceAccounts") {
			t.Errorf("message %q", op.GetMessage())
		}
		for _, r := range asked.all() {
			if strings.Contains(r, "configmaps/one") {
				t.Errorf("request %s", r)
			}
		}
	})
	t.Run("IMP-01 if that is not enforced, the agent acts as itself", func(t *testing.T) {
		w.set(&linkv1.Settings{Impersonate: true, ImpersonateOptional: true})
		asked := w.recordUsers(t)
		a.deploy(configMap("one", "green"))
		a.synced()
		asked.only(t, "")
	})
}

// TestImpersonationRights runs an agent with the rights of its chart alone.
func TestImpersonationRights(t *testing.T) {
	w := newWorldWith(t, func(w *world) { w.mode = "cluster" })
	w.grant("deployer", onConfigMaps)
	w.set(&linkv1.Settings{Impersonate: true})
	a := w.application()
	a.policy.ServiceAccount = "system:serviceaccount:" + w.namespace + ":deployer"
	t.Run("IMP-04(refused) an agent without the right to impersonate says which value of its chart grants it", func(t *testing.T) {
		op := w.ended(a.begin(configMap("one", "red"), nil), "Failed")
		if got := messageOf(op, "one"); !strings.Contains(got, "cannot impersonate") {
			t.Errorf("message %q", got)
		}
		report, err := w.ops(t).CheckAccess(t.Context(), &linkv1.CheckAccessRequest{AppId: a.id})
		if err != nil || len(report.GetMissing()) != 1 || !strings.Contains(report.GetMissing()[0].GetFix(), "impersonation.enabled") {
			t.Errorf("%v, %v", report, err)
		}
	})
	t.Run("IMP-04 with the rights that the chart adds it acts as the account", func(t *testing.T) {
		rules, err := os.ReadFile("../../../charts/capstan-agent/files/impersonate.yaml")
		if err != nil {
			t.Fatal(err)
		}
		name := string(hub.NewID[hub.ApplicationID]())
		w.apply("apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: " + name + "}\nrules:\n" + string(rules) + "---\n" +
			"apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {name: " + name + "}\nroleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: " + name + "}\n" +
			"subjects: [{kind: ServiceAccount, name: capstan-agent, namespace: " + w.home + "}]\n")
		w.eventually("the right holds", func() bool {
			report, err := w.ops(t).CheckAccess(t.Context(), &linkv1.CheckAccessRequest{AppId: a.id})
			return err == nil && len(report.GetMissing()) == 0
		})
		asked := w.recordUsers(t)
		a.syncAgain()
		w.get(configMaps, "one")
		asked.only(t, a.policy.GetServiceAccount())
	})
}
