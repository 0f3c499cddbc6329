package hub

import "time"

// A Setting is one key of a tenant's settings. They are stored under the names
// of Argo CD's ConfigMaps and Secrets.
type Setting struct {
	Map       string    // of the ConfigMap or Secret: argocd-cm, argocd-secret …
	Key       string    // such as resource.exclusions
	Value     string    // empty for a secret: it is sealed and never given back
	Secret    bool      // the value came in a Secret
	UpdatedAt time.Time // when it was last changed
	UpdatedBy string    // by whom
}

// A SettingChange sets one key, or removes it.
type SettingChange struct {
	Map   string
	Key   string
	Value *string // nil: the key goes
}

// The names of the maps that settings are read from.
const (
	SettingsMap = "argocd-cm"
	ParamsMap   = "argocd-cmd-params-cm"
	SecretMap   = "argocd-secret"
	// CertificatesMap has, by host name, the authorities that must have signed
	// the certificates of its servers (CRED-08).
	CertificatesMap = "argocd-tls-certs-cm"
)

// Keys of SecretMap with the secrets of push events for this tenant (HOOKW-03).
// The directory stores their values by tenant as well, encrypted (migrations
// 50, 96 and 97): another name needs a migration.
const (
	WebhookGitHub          = "webhook.github.secret"
	WebhookGitLab          = "webhook.gitlab.secret"
	WebhookBitbucket       = "webhook.bitbucket.uuid"
	WebhookBitbucketServer = "webhook.bitbucketserver.secret"
	WebhookGogs            = "webhook.gogs.secret"
	WebhookAzureUser       = "webhook.azuredevops.username"
	WebhookAzurePassword   = "webhook.azuredevops.password"
	// What senders send as Authorization: Harbor, other registries, and those
	// that use Capstan's own form, which may sign with it instead.
	WebhookHarbor   = "webhook.harbor.secret"
	WebhookRegistry = "webhook.registry.secret"
	WebhookGeneric  = "webhook.generic.secret"
	// WebhookRepository, with the id of a repository behind it, is the secret
	// of the events of that repository alone, whoever sends them.
	WebhookRepository = "webhook.repository."
)

// SettingsRow is what rows with settings carry in place of an application.
// Their newest one counts among the states of a cluster under this id, which
// no application can have.
const SettingsRow ApplicationID = "00000000-0000-0000-0000-000000000000"
