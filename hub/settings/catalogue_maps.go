package settings

import (
	"slices"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/rbac"
)

// Further maps of Argo CD.
const (
	rolesMap             = rbac.Map
	notificationsMap     = hub.NotificationsMap
	notificationsSecret  = hub.NotificationsSecret
	pluginsMap           = "argocd-cmp-cm"
	imageUpdaterMap      = "argocd-image-updater-config"
	imageUpdaterSSHMap   = "argocd-image-updater-ssh-config"
	imageUpdaterSecret   = "argocd-image-updater-secret"
	imageUpdaterRegistry = "registries.conf"
)

// otherMaps are the keys of the maps with names of users' own.
func otherMaps() []Known {
	return slices.Concat(
		notificationKeys(),
		table(pluginsMap, row{anyKey, "Plugins that render manifests.", "x", anyText, "the operator of the hub declares plugins in render.plugins.folder", ""}),
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
	const hashed = "a new password ends all sessions of its account by itself"
	return table(
		hub.SecretMap,
		row{"admin.passwordMtime", "When that password was set.", "2026-01-31T15:04:05Z", anyText, hashed, ""},
		row{"server.secretkey", "The key that sessions are signed with.", "random", anyText, ownKey, ""},
		row{"tls.crt", "The certificate of the API server.", "x", anyText, ownCertificate, ""},
		row{"tls.key", "The key of that certificate.", "x", anyText, ownCertificate, ""},
	)
}
