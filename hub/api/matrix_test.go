package api_test

// The matrix of rights: every operation of openapi.yaml for every kind of
// caller, on things of the caller's own tenant and of another one.
//
// What an operation needs is in the document: x-capstan-resource and
// x-capstan-action. Which role has that right is in roles, below. An operation
// of a new resource, or one that needs no right, fails until a line says who may
// call it. To add an operation:
//
//   - It needs a right of roles: nothing, or a line in bodies if no body that is
//     made from the schema is a valid request.
//   - It needs no right (resource public or self): a line in rights, "none" or
//     "all". Other lines of rights are allowed if they say what roles says.
//   - Its resource is a new one: a line in resources, and in roles for whom but
//     the admins may use it.
//   - Its path names a new kind of thing: make one in seed. Its name or id is
//     taken from the list at the path before the parameter, or from a line in
//     concrete.
//   - A new kind of secret that signs in: a caller in callers.

import (
	"strings"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/access"
	known "github.com/capstan-cd/capstan/hub/settings"
)

// roles is who may do what in the own tenant: actions by resource, "*" for
// every one. The role of the project is that of seed, on things of its project.
func roles() map[string]map[string]string {
	return map[string]map[string]string{
		"no-role":        {},
		"readonly":       {"applications": "get", "applicationsets": "get", "projects": "get", "clusters": "get", "repositories": "get", "write-repositories": "get", "certificates": "get", "gpgkeys": "get", "accounts": "get", "logs": "get"},
		"role-of-shop":   {"applications": "get sync rollback", "projects": "get"},
		"tenant-admin":   {"*": "*"},
		"platform-admin": {"tenants": "*"},
	}
}

// resources are those that policies give rights on. An operation of another one
// fails until it is named here.
func resources() []string {
	return []string{
		access.Applications, access.ApplicationSets, access.Projects, access.Clusters, access.Repositories, access.WriteRepositories, access.Certificates, access.GPGKeys, access.Accounts, access.Audit, access.Settings,
		access.Tenants, access.Logs, access.Exec, access.PortForward,
	}
}

// rights names for single operations who may call them: "none" needs no
// sign-in, "all" needs nothing else, and otherwise the roles by name.
func rights() map[string]string {
	return map[string]string{
		"healthz": "none", "livez": "none", "readyz": "none", "getOpenAPI": "none", "getOpenAPIJSON": "none", "getReference": "none", "getReferenceStyle": "none", "receiveWebhook": "none", "receiveWebhookArgo": "none",
		"setup": "none", "checkSetup": "none", "login": "none",
		"listSignInProviders": "none", "getBadge": "none", "exchangeSignInCode": "none",
		"beginSignIn": "none", "finishSignIn": "none", "finishSignInByConnector": "none", "finishSignInByForm": "none",

		"logout": "all", "getMe": "all", "changePassword": "all", "chooseLanguage": "all", "getVersion": "all", "getClientSettings": "all", "listPlugins": "all", "listTokens": "all", "createToken": "all", "deleteToken": "all",
		"apply": "all", "streamChanges": "all", // the rights are those of each object
		"canI": "all", "explainRights": "all", "listPauses": "all", "findDeviceLogin": "all", "decideDeviceLogin": "all",
		"listNotificationServices": "all", "listNotificationTriggers": "all", "listNotificationTemplates": "all", // names alone
		"listBulks": "all", "getBulk": "all", "cancelBulk": "all", // of who has asked
	}
}

// bodies are valid requests, so that only rights decide.
func bodies() map[string]any {
	project := map[string]any{"apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject", "metadata": map[string]any{"name": "shop"}, "spec": map[string]any{}}
	return map[string]any{
		"setup": map[string]any{"token": "x", "username": "x", "password": password}, "checkSetup": map[string]any{"token": "x"},
		"login": map[string]any{"username": "nobody", "password": "x"}, "exchangeSignInCode": map[string]any{"code": "x", "verifier": strings.Repeat("x", 43)}, "changePassword": map[string]any{"current": "wrong", "new": password}, "chooseLanguage": map[string]any{"language": "ja"},
		"findDeviceLogin": map[string]any{"userCode": "too short"}, "decideDeviceLogin": map[string]any{"userCode": "too short", "approve": true},
		"createToken": map[string]any{"name": "ci", "expiresIn": "forever"}, "createTenant": map[string]any{"name": "fresh"},
		"updateTenant": map[string]any{"displayName": "Acme"}, "suspendTenant": map[string]any{}, "setTenantQuotas": map[string]any{"quotas": map[string]any{"applications": 1000}}, "putAuditRetention": map[string]any{"days": 90},
		"createUser": map[string]any{"name": "newcomer", "password": password}, "updateUser": map[string]any{"disabled": false},
		"createAccountToken": map[string]any{"expiresIn": "1h"}, "createSCIMToken": map[string]any{"name": "okta"}, "createRoleToken": map[string]any{},
		"createProject": project, "updateProject": project, "putRepository": map[string]any{"url": "https://git.example.com/a/b"}, "validateRepository": map[string]any{"url": "https://git.example.com/a/b"},
		"addCertificates": map[string]any{"knownHosts": hostKey}, "addPublicKeys": map[string]any{"keyData": sampleKey()},
		"startSignInTest": map[string]any{"provider": "dex-none"},
		"patchSettings":   map[string]any{"values": map[string]any{"argocd-cm": map[string]any{"url": "https://cd.example.com"}}},
		"enrollCluster":   map[string]any{"name": "prod"}, "updateCluster": map[string]any{"server": "https://prod.example.com"}, "keepCluster": map[string]any{"fingerprint": "x"}, "upgradeAgent": map[string]any{"image": "registry.example.com/capstan-agent:v2"},
		"createApplication": application("made"), "previewApplication": application("made"), "updateApplication": application("web"),
		"createApplicationSet": applicationSet("made"), "updateApplicationSet": applicationSet("fleet"), "generateApplicationSet": applicationSet("fleet"),
		"approveApplicationSet": map[string]any{"digest": "x"},
		"patchApplication":      map[string]any{"patch": "{}", "patchType": "merge"}, "updateApplicationSpec": application("web")["spec"],
		"syncApplication":     map[string]any{},
		"startBulk":           map[string]any{"action": "sync", "names": []string{"argocd/web"}},
		"rollbackApplication": map[string]any{"id": 1}, "resumeApplication": map[string]any{}, "apply": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n",
		"runResourceAction": map[string]any{"version": "v1", "kind": "ConfigMap", "resourceName": "x", "action": "restart"},
		"receiveWebhook":    map[string]any{}, "receiveWebhookArgo": map[string]any{},
		"previewPolicy":    map[string]any{"values": map[string]any{"policy.default": "role:readonly"}},
		"askWhoCan":        map[string]any{"resource": "applications", "action": "get", "object": "shop/web"},
		"beginPause":       map[string]any{"cluster": "prod", "reason": "incident", "for": "1h"},
		"explainRights":    map[string]any{"questions": []any{map[string]any{"resource": "applications", "action": "get", "object": "shop/web"}}},
		"approveOperation": map[string]any{}, "abandonApplication": map[string]any{},
		"deleteLiveResource":      map[string]any{"version": "v1", "kind": "Pod", "name": "x"},
		"patchLiveResource":       map[string]any{"version": "v1", "kind": "Pod", "name": "x", "patch": "{}"},
		"tryNotificationTrigger":  map[string]any{"application": "argocd/web"},
		"tryNotificationTemplate": map[string]any{"application": "argocd/web", "service": "slack"},
	}
}

// hostKey is a line of known_hosts.
const hostKey = "git.example.com ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl"

// sampleKey is a public key, and sampleKeyID its id.
func sampleKey() string {
	setting, _ := known.Find(hub.GPGKeysMap, sampleKeyID)
	return setting.Sample
}

const sampleKeyID = "D83EABE7E2474348"

// concrete is the address of a thing that seed makes, for the parameters whose
// value is not to be taken from a list.
func concrete(path string, ids map[string]string) string {
	for kind, id := range ids {
		if strings.HasPrefix(path, "/api/v1/"+kind+"/") {
			path = strings.ReplaceAll(path, "{id}", id)
		}
	}
	switch {
	case strings.Contains(path, "/applications/"):
		path = strings.ReplaceAll(path, "{name}", "web")
	case strings.Contains(path, "/applicationsets/"):
		path = strings.ReplaceAll(path, "{name}", "fleet")
	case strings.Contains(path, "/clusters/"):
		path = strings.ReplaceAll(path, "{name}", "prod")
	case strings.Contains(path, "/projects/"):
		path = strings.ReplaceAll(path, "{name}", "shop")
	case strings.Contains(path, "/notifications/triggers/"):
		path = strings.ReplaceAll(path, "{name}", "on-created")
	case strings.Contains(path, "/notifications/templates/"):
		path = strings.ReplaceAll(path, "{name}", "app-created")
	case strings.Contains(path, "/tenants/"):
		path = strings.ReplaceAll(path, "{name}", "acme")
	}
	return strings.NewReplacer("{resource}", "applications", "{action}", "get", "{subresource}", "shop", "{namespace}", "argocd", "{username}", "victim", "{role}", "dev", "{keyID}", sampleKeyID, "{number}", "1").Replace(path)
}

// absent are operations on something inside of the named thing, which no test
// without an agent has; they answer 404 to those who may.
const absent = " startSignInTest getSignInTest openTerminal openApplicationTerminal forwardApplicationPort getPodLogs getApplicationLogs getApplicationEvents patchLiveResource getManifests getLiveResource listResourceActions getResourceLinks runResourceAction deleteLiveResource rollbackApplication terminateOperation approveOperation deleteCertificates "
