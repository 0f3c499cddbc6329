package settings

import (
	"slices"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/rbac"
)

// Further maps of Argo CD.
const (
	rolesMap             = rbac.Map
	notificationsMap     = "argocd-notifications-cm"
	notificationsSecret  = "argocd-notifications-secret"
	pluginsMap           = "argocd-cmp-cm"
	imageUpdaterMap      = "argocd-image-updater-config"
	imageUpdaterSSHMap   = "argocd-image-updater-ssh-config"
	imageUpdaterSecret   = "argocd-image-updater-secret"
	imageUpdaterRegistry = "registries.conf"
)

// otherMaps are the keys of the maps with names of users' own.
func otherMaps() []Known {
	return slices.Concat(
		table(notificationsMap, row{anyKey, "Services, templates and triggers of notifications.", "message: done\n", anyText, "", ""}),
		table(notificationsSecret, row{anyKey, "What services of notifications sign in with.", "a token", anyText, "", ""}),
		table(pluginsMap, row{anyKey, "Plugins that render manifests.", "x", anyText, "", ""}),
		table(
			imageUpdaterMap,
			row{imageUpdaterRegistry, "Registries of images.", "registries: []\n", mapping, "", ""},
			row{anyKey, "Settings of the image updater.", "x", anyText, "", ""},
		),
		table(imageUpdaterSSHMap, row{anyKey, "SSH of the image updater.", "Host *\n", anyText, "", ""}),
		table(imageUpdaterSecret, row{anyKey, "Credentials of the image updater.", "a token", anyText, "", ""}),
	)
}

// secretKeys are the keys of argocd-secret that have no reader of their own
// (CFG-20).
func secretKeys() []Known {
	const ownKey = "the hub signs with keys of its own"
	const ownCertificate = "the hub's own certificate is part of its configuration"
	const hashed = "accounts of the hub have passwords of their own, hashed by argon2id; set one by `capstan account update-password`"
	return table(
		hub.SecretMap,
		row{"admin.password", "The hash of admin's password.", "$2a$10$abcdefghijklmnopqrstuv", anyText, hashed, ""},
		row{"admin.passwordMtime", "When that password was set.", "2026-01-31T15:04:05Z", anyText, hashed, ""},
		row{"server.secretkey", "The key that sessions are signed with.", "random", anyText, ownKey, ""},
		row{"accounts.", "By the name of a local account: the hash of its password, when it was set, and its tokens.", "[]", accountSecret, hashed, "ci.tokens"},
		row{"tls.crt", "The certificate of the API server.", "x", anyText, ownCertificate, ""},
		row{"tls.key", "The key of that certificate.", "x", anyText, ownCertificate, ""},
		row{"dex.", "A value that $dex.NAME of another setting stands for.", "random", anyText, "", "github.clientSecret"},
		row{"oidc.", "A value that $oidc.NAME of another setting stands for.", "random", anyText, "", "okta.clientSecret"},
	)
}
