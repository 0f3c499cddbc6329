package api_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/identity"
)

// rights is the table of who may do what: for each operation of the document
// the roles that it works for. An operation without a row fails the test.
// "all" are the signed-in, "none" are those who are not.
func rights() map[string]string {
	const reads, writes, platform = "readonly tenant-admin", "tenant-admin", "platform-admin"
	return map[string]string{
		"healthz": "none", "livez": "none", "readyz": "none", "getOpenAPI": "none", "receiveWebhook": "none", "receiveWebhookArgo": "none",
		"setup": "none", "checkSetup": "none", "login": "none",

		"logout": "all", "getMe": "all", "changePassword": "all", "getVersion": "all", "listTokens": "all", "createToken": "all", "deleteToken": "all",
		"apply": "all", "streamChanges": "all", // the rights are those of each object

		"listTenants": platform, "createTenant": platform, "getTenant": platform, "createSetupLink": platform,
		"listUsers": reads, "createUser": writes, "updateUser": writes, "deleteUser": writes,
		"listProjects": reads, "getProject": reads, "getProjectWindows": reads, "createProject": writes, "updateProject": writes, "deleteProject": writes,
		"listRepositories": reads, "getRepository": reads, "refreshRepository": reads, "listRepositoryCredentials": reads,
		"putRepository": writes, "deleteRepository": writes, "deleteRepositoryCredential": writes,
		"listCertificates": reads, "addCertificates": writes, "deleteCertificates": writes,
		"listClusters": reads, "getCluster": reads, "enrollCluster": writes, "updateCluster": writes, "deleteCluster": writes,
		"acceptHub": writes, "keepCluster": writes, "revokeAgent": writes, "upgradeAgent": writes,
		"listApplications": reads, "getApplication": reads, "getApplicationTree": reads, "getLiveResource": reads, "diffApplication": reads,
		"getManifests": reads, "getHistory": reads, "getApplicationWindows": reads, "listOperations": reads, "refreshApplication": reads,
		"createApplication": writes, "updateApplication": writes, "patchApplication": writes, "updateApplicationSpec": writes, "deleteApplication": writes, "syncApplication": writes,
		"rollbackApplication": writes, "resumeApplication": writes, "terminateOperation": writes,
		"listResourceActions": reads, "runResourceAction": writes,
		"approveOperation": writes, "abandonApplication": writes, "deleteLiveResource": writes,
		"listAudit": writes, "verifyAudit": writes,
		"getSettings": writes, "patchSettings": writes,
		"getPolicyState": writes, "previewPolicy": writes, "canI": "all", "explainRights": "all",
	}
}

// bodies are valid requests, so that only rights decide.
func bodies() map[string]any {
	project := map[string]any{"apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject", "metadata": map[string]any{"name": "shop"}, "spec": map[string]any{}}
	return map[string]any{
		"setup": map[string]any{"token": "x", "username": "x", "password": password}, "checkSetup": map[string]any{"token": "x"},
		"login": map[string]any{"username": "nobody", "password": "x"}, "changePassword": map[string]any{"current": "wrong", "new": password},
		"createToken": map[string]any{"name": "ci", "expiresIn": "forever"}, "createTenant": map[string]any{"name": "fresh"},
		"createUser": map[string]any{"name": "newcomer", "password": password}, "updateUser": map[string]any{"disabled": false},
		"createProject": project, "updateProject": project, "putRepository": map[string]any{"url": "https://git.example.com/a/b"},
		"addCertificates": map[string]any{"knownHosts": hostKey},
		"patchSettings":   map[string]any{"values": map[string]any{"argocd-cm": map[string]any{"url": "https://cd.example.com"}}},
		"enrollCluster":   map[string]any{"name": "prod"}, "updateCluster": map[string]any{"server": "https://prod.example.com"}, "keepCluster": map[string]any{"fingerprint": "x"}, "upgradeAgent": map[string]any{"image": "registry.example.com/capstan-agent:v2"},
		"createApplication": application("made"), "updateApplication": application("web"),
		"patchApplication": map[string]any{"patch": "{}", "patchType": "merge"}, "updateApplicationSpec": application("web")["spec"],
		"syncApplication":     map[string]any{},
		"rollbackApplication": map[string]any{"id": 1}, "resumeApplication": map[string]any{}, "apply": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n",
		"runResourceAction": map[string]any{"version": "v1", "kind": "ConfigMap", "resourceName": "x", "action": "restart"},
		"receiveWebhook":    map[string]any{}, "receiveWebhookArgo": map[string]any{},
		"previewPolicy":    map[string]any{"values": map[string]any{"policy.default": "role:readonly"}},
		"explainRights":    map[string]any{"questions": []any{map[string]any{"resource": "applications", "action": "get", "object": "shop/web"}}},
		"approveOperation": map[string]any{}, "abandonApplication": map[string]any{},
		"deleteLiveResource": map[string]any{"version": "v1", "kind": "Pod", "name": "x"},
	}
}

// hostKey is a line of known_hosts.
const hostKey = "git.example.com ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl"

type method struct{ id, verb, path, resource, action string }

func methods(t *testing.T) []method {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromFile("openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var out []method
	for path, item := range doc.Paths.Map() {
		for verb, op := range item.Operations() {
			resource, _ := op.Extensions["x-capstan-resource"].(string)
			action, _ := op.Extensions["x-capstan-action"].(string)
			if resource == "" || action == "" {
				t.Errorf("%s %s says nothing of its rights", verb, path)
			}
			out = append(out, method{op.OperationID, verb, path, resource, action})
		}
	}
	slices.SortFunc(out, func(a, b method) int { return strings.Compare(a.id, b.id) })
	return out
}

// SEC-D1: every operation for every kind of caller. The things that paths
// name exist in the tenant acme, so that a stranger's 404 and an owner's
// differ by rights alone.
func TestRightsMatrix(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin := w.Admin("acme")
	reader := w.User("acme", "reader", hub.RoleReadOnly)
	nobody := w.User("acme", "nobody")
	platform := w.User("acme", "platform", hub.RolePlatformAdmin)
	stranger := w.Admin("other")
	seed := func() map[string]string {
		w.call(admin, "POST", "/api/v1/apply", "apiVersion: argoproj.io/v1alpha1\nkind: AppProject\nmetadata: {name: shop}\nspec: {}\n").ok(200)
		w.call(admin, "POST", "/api/v1/clusters/enroll", map[string]any{"name": "prod"}).ok(201)
		w.call(admin, "POST", "/api/v1/applications", application("web"))
		w.call(admin, "POST", "/api/v1/users", map[string]any{"name": "victim", "password": password, "roles": []string{"readonly"}})
		var repo struct{ ID string }
		w.call(admin, "POST", "/api/v1/repositories", map[string]any{"url": "https://git.example.com/team/own"}).ok(200).into(&repo)
		w.call(admin, "POST", "/api/v1/apply", manifest(t, "07-repositories.yaml")).ok(200)
		var templates struct{ Items []struct{ ID string } }
		w.call(admin, "GET", "/api/v1/repository-credentials", nil).ok(200).into(&templates)
		return map[string]string{"repositories": repo.ID, "repository-credentials": templates.Items[0].ID, "tokens": "0190b2c4-0000-7000-8000-000000000001"}
	}
	callers := []struct{ name, secret, role string }{
		{"nobody is signed in", "", ""}, {"garbage", "cpt_garbage", ""}, {"an unknown token", identity.NewSecret(identity.TokenSecret), ""},
		{"an expired session", w.expired(t, "acme", "reader"), ""},
		{"an account without roles", nobody, "no-role"}, {"readonly", reader, "readonly"}, {"tenant-admin", admin, "tenant-admin"},
		{"platform-admin", platform, "platform-admin"}, {"an admin of another tenant", stranger, "stranger"},
	}
	table := rights()
	var ids map[string]string
	stale := true             // something that the rows need may be gone
	var own, foreign []string // what went wrong, by whose things were asked for
	for _, m := range methods(t) {
		allowed, listed := table[m.id]
		if !listed {
			t.Errorf("operation %s has no row in the table of rights", m.id)
			continue
		}
		delete(table, m.id)
		if m.id == "streamChanges" {
			continue // it does not end; TestStream has it
		}
		for _, c := range callers {
			if m.id == "logout" && c.role != "" {
				continue // it would end the session that the other rows need
			}
			if c.role == "stranger" && (m.id == "canI" || m.resource != "tenants" && !strings.Contains(m.path, "{")) {
				continue // it concerns the stranger's own tenant
			}
			if stale {
				ids = seed()
			}
			path := concrete(m.path, ids)
			a := w.call(c.secret, m.verb, path, bodies()[m.id])
			stale = m.verb != "GET" && a.status < 300
			if problem := checkAnswer(allowed, c.role, m, a); problem != "" {
				problem = fmt.Sprintf("%s (%s %s) for %s: %s: %s", m.id, m.verb, path, c.name, problem, a.body)
				if c.role == "stranger" {
					foreign = append(foreign, problem)
				} else {
					own = append(own, problem)
				}
			}
		}
	}
	for id := range table {
		t.Errorf("the table of rights has a row for %s, which is no operation", id)
	}
	t.Run("SEC-D1 every operation allows whom its row names and refuses all others", func(t *testing.T) {
		for _, problem := range own {
			t.Error(problem)
		}
	})
	t.Run("SEC-D1 API-19 objects of another tenant are answered like missing ones", func(t *testing.T) {
		for _, problem := range foreign {
			t.Error(problem)
		}
	})
}

// checkAnswer says what is wrong with an answer, or nothing.
func checkAnswer(allowed, role string, m method, a answer) string {
	may := allowed == "none" || (allowed == "all" && role != "") || (role != "" && slices.Contains(strings.Fields(allowed), role))
	switch {
	case role == "stranger" && allowed != "none" && a.status != 404 && (m.resource != "tenants" || a.status != 403):
		return fmt.Sprintf("a thing of another tenant answers %d", a.status)
	case role == "stranger":
		return ""
	case a.status >= 500 && a.status != 503:
		return fmt.Sprintf("it broke with %d", a.status)
	case may && m.id == "login", may && strings.HasPrefix(m.id, "receiveWebhook"):
		return "" // their own proof is what fails
	case may && (a.status == 401 || a.status == 403) && m.id != "createToken":
		return fmt.Sprintf("it should be allowed, and answers %d", a.status)
	case may:
		return ""
	case role == "" && a.status != 401:
		return fmt.Sprintf("it answers %d, want 401", a.status)
	case role != "" && a.status != 403 && a.status != 404:
		return fmt.Sprintf("it should be refused, and answers %d", a.status)
	}
	return ""
}

func concrete(path string, ids map[string]string) string {
	for kind, id := range ids {
		if strings.HasPrefix(path, "/api/v1/"+kind+"/") {
			path = strings.ReplaceAll(path, "{id}", id)
		}
	}
	name := "web"
	switch {
	case strings.Contains(path, "/clusters/"):
		name = "prod"
	case strings.Contains(path, "/projects/"):
		name = "shop"
	case strings.Contains(path, "/tenants/"):
		name = "acme"
	}
	path = strings.NewReplacer("{resource}", "applications", "{action}", "get", "{subresource}", "shop", "{namespace}", "argocd", "{name}", name, "{username}", "victim").Replace(path)
	if path == "/api/v1/certificates" {
		path += "?serverName=git.example.com"
	}
	if strings.HasSuffix(path, "/resource") || strings.HasSuffix(path, "/resource/actions") {
		path += "?kind=Pod&version=v1&resourceName=x"
	}
	return path
}

// expired is the secret of a session that is over.
func (w *world) expired(t *testing.T, tenant, name string) string {
	t.Helper()
	ctx := context.Background()
	tt, err := w.DB.System().TenantByName(ctx, tenant)
	if err != nil {
		t.Fatal(err)
	}
	u, _, err := w.Catalog.AccountByName(ctx, tt.ID, name)
	if err != nil {
		t.Fatal(err)
	}
	secret := identity.NewSecret(identity.SessionSecret)
	past := time.Now().Add(-time.Hour)
	if err := w.DB.System().PutSession(ctx, hub.Session{Hash: identity.Hash(secret), Tenant: tt.ID, User: u.ID, CreatedAt: past, SeenAt: past, ExpiresAt: past.Add(time.Minute)}); err != nil {
		t.Fatal(err)
	}
	return secret
}
