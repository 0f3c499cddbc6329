// Package settings defines what a tenant can set, under the names of Argo CD's
// ConfigMaps: it checks values and converts those for agents to their wire
// form. It stores nothing and reads nothing. The catalog calls it on every
// change; equal settings always have equal bytes. Keys without effect are
// stored, and reported as such.
package settings

import (
	"fmt"
	"slices"
	"strings"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

// A Known is a key, or a family of keys, that this release knows.
type Known struct {
	Map    string
	Key    string // ends in a dot: the kind of object, or a version, follows; "*": any key of the map
	About  string // one sentence for people
	Sample string // a value that is fine
	// Example is what may follow the key of a family; empty: a kind.
	Example string
	// Used means that it has an effect; otherwise it is checked and stored.
	Used bool
	// Instead says what happens instead of a key that changes nothing on
	// purpose; empty: there is nothing to say.
	Instead string

	read func(s *set, key string, text text) error
}

// Catalogue lists the keys that are known, in the order in which people look
// for them.
func Catalogue() []Known {
	moot := func(key, about, sample, instead string, read func(*set, string, text) error) Known {
		known := cm(key, about+" It changes nothing: "+instead+".", sample, false, read)
		known.Instead = instead
		return known
	}
	return append([]Known{
		cm("resource.exclusions", "Kinds that are not watched, shown, compared or applied. Replaces the built-in list.", sampleFilter, true, (*set).readExclusions),
		cm("resource.inclusions", "Kinds that are managed; all others are left alone.", sampleFilter, true, (*set).readInclusions),
		cm("resource.respectRBAC", "Whether agents leave out kinds that they may not list: after a refused list with normal, after a review of their rights with strict.", "strict", true, (*set).readRespect),
		cm("resource.customizations", "What applies to kinds, as one map by group/Kind.", sampleMap, true, (*set).readAll),
		cm(prefix+"health.", "A Lua script that computes the health of a kind.", sampleHealth, true, (*set).readHealth),
		cm(prefix+"useOpenLibs.", "Whether the health script of a kind may use Lua's standard libraries.", "true", true, (*set).readOpenLibs),
		cm(prefix+"actions.", "Lua scripts that people may run on objects of a kind.", sampleActions, true, (*set).readActions),
		cm(prefix+"ignoreDifferences.", "Fields of a kind in which live state may differ; the kind all is every kind.", sampleIgnore, true, (*set).readIgnore),
		moot(prefix+"ignoreResourceUpdates.", "Fields of a kind whose changes cause no comparison.", sampleIgnore, noUpdates, (*set).readIgnoreUpdates),
		moot(prefix+"knownTypeFields.", "Fields of a custom kind that hold a type of Kubernetes.", sampleTypes,
			"values are compared as the API server stores them, in whatever form they were written", (*set).readTypes),
		moot("resource.compareoptions", "How live and desired state are compared.", sampleCompare,
			"status and the rules of aggregated roles are never compared, because an apply does not set them", (*set).readCompare),
		moot("resource.ignoreResourceUpdatesEnabled", "Whether ignoreResourceUpdates counts.", "true", noUpdates, (*set).readIgnoreEnabled),
		cm("resource.customLabels", "Labels that are shown with objects, separated by commas.", "team, tier", true, (*set).readLabels),
		cm(MaskedAnnotationsKey, "Annotations of Secrets whose values are masked, separated by commas.", "example.com/token", true, (*set).readMask),
		cm("application.resourceTrackingMethod", "Marks of Argo CD that objects get for tools that read them: annotation, annotation+label or label; empty: none. Whose an object is says Capstan's own mark alone.", "annotation", true, (*set).readTracking),
		cm("application.instanceLabelKey", "The label that identifies an object of Argo CD at adoption, and that tracking by label writes.", "app.kubernetes.io/instance", true, (*set).readLabelKey),
		cm("installationID", "Distinguishes installations that share a cluster.", "prod", true, (*set).readInstallation),
		cm(RollbackKey, "Whether a rollback needs the right rollback; otherwise the right sync is sufficient.", "true", true, (*set).readSwitch),
		cm(RevisionSyncKey, "Whether a sync of another revision than the application's needs the right override.", "true", true, (*set).readSwitch),
		cm(hub.ValueSchemesKey, "Schemes of the addresses that value files of Helm may have, separated by commas; http and https are read, and no other.", "https", true, (*set).readSchemes),
		cm(hub.KustomizeOptionsKey, "Options of `kustomize build` for sources that name no version of Kustomize.", "--load-restrictor LoadRestrictionsNone", true, (*set).readKustomize),
		cm(hub.KustomizeOptionsKey+".", "Options of `kustomize build` for sources that name the version behind the dot.", "--load-restrictor LoadRestrictionsNone", true, (*set).readKustomize),
		cm(hub.KustomizeVersionsKey, "Versions of Kustomize, or patterns of them, that are built with the one that is here.", "v5.4.1, v4.*", true, (*set).readKustomizeVersions),
		moot(hub.KustomizePathKey, "The binary of a version of Kustomize.", "/custom-tools/kustomize_5_4_1", noBinary, (*set).readAny),
		moot("kustomize.version.", "The binary of a version of Kustomize, in an older form.", "/custom-tools/kustomize_5_4_1", noBinary, (*set).readAny),
		cm(hub.InClusterKey, "Whether applications may have Argo CD's own cluster, in-cluster, as their destination.", "false", true, (*set).readSwitch),
		cm(hub.PausesKey, "Pauses of automation of the tenant or of clusters, as the console and the API write them.", samplePauses, true, (*set).readPauses),
		cm(hub.GlobalProjectsKey, "Projects that others, by their labels, inherit from.", sampleGlobals, true, (*set).readGlobalProjects),
		{
			Map: hub.ParamsMap, Key: replaceAllowed, About: "Whether users may sync with Replace or Force; options of objects in Git still apply.",
			Sample: "false", Used: true, read: (*set).readReplace,
		},
		{
			Map: hub.ParamsMap, Key: hub.ApplicationNamespacesKey, About: "Namespaces, besides argocd, in which applications may be: globs and /regular expressions/, separated by commas.",
			Sample: "team-*, /^prod-.*$/", Used: true, read: (*set).readNamespaces,
		},
		{
			Map: hub.ParamsMap, Key: hub.HiddenDirectoriesKey, About: "Whether manifests are read from directories whose names begin with a dot, too.",
			Sample: "true", Used: true, read: (*set).readSwitch,
		},
		{
			Map: hub.CertificatesMap, Key: anyKey, About: "By the name of a Git server's host: the authorities, in PEM, that its certificate must come from.",
			Sample: sampleCertificate, Used: true, read: (*set).readCertificates,
		},
		{
			Map: hub.GPGKeysMap, Key: anyKey, About: "By the id of a public key of OpenPGP: the key, which projects may demand signatures of commits with.",
			Sample: sampleKey, Used: true, read: (*set).readPublicKey,
		},
	}, slices.Concat(webhooks(), timers(), jitters(), sessions(), impersonation(), applicationSets(), signIns(), policies(), accounts(), federation(), configKeys(), parameterKeys(), secretKeys(), otherMaps(), clients(), deepLinks())...)
}

// cm is a key of argocd-cm.
func cm(key, about, sample string, used bool, read func(*set, string, text) error) Known {
	return Known{Map: hub.SettingsMap, Key: key, About: about, Sample: sample, Used: used, read: read}
}

// webhooks are what events of Git hosts and registries prove their sender by,
// one kind of sender each.
func webhooks() []Known {
	secret := func(key, about, sample string) Known {
		return Known{Map: hub.SecretMap, Key: key, About: about, Sample: sample, Used: true, read: (*set).readSecret}
	}
	const random = "a long random text"
	return []Known{
		secret(hub.WebhookGitHub, "What GitHub, and hosts that sign as it does, sign the push events of this tenant's repositories with.", random),
		secret(hub.WebhookGitLab, "The secret token that GitLab sends with the events of this tenant's repositories.", random),
		secret(hub.WebhookBitbucket, "The UUID of the webhook that Bitbucket Cloud sends with the events of this tenant's repositories.", "a0a1b2c3-d4e5-4f60-8718-293a4b5c6d7e"),
		secret(hub.WebhookBitbucketServer, "What Bitbucket Server and Data Center sign the events of this tenant's repositories with.", random),
		secret(hub.WebhookGogs, "What Gogs, and hosts that sign as it does, sign the events of this tenant's repositories with.", random),
		secret(hub.WebhookAzureUser, "The user name that Azure DevOps sends with the events of this tenant's repositories; it needs the password as well.", "capstan"),
		secret(hub.WebhookAzurePassword, "The password that Azure DevOps sends with the events of this tenant's repositories.", random),
		secret(hub.WebhookHarbor, "What Harbor sends as Authorization with the events of this tenant's repositories.", random),
		secret(hub.WebhookRegistry, "What other registries send as Authorization with the events of this tenant's repositories: a Bearer token, or a password.", random),
		{
			Map: hub.SecretMap, Key: hub.WebhookRepository, About: "With the id of a repository behind it: the secret of the events of that repository, whoever sends them. Others do not count for it then.",
			Sample: random, Used: true, Example: "018f3c6e-0000-7000-8000-000000000002", read: (*set).readRepositorySecret,
		},
		secret(hub.WebhookGeneric, "What senders of events in Capstan's own form sign with, or send as a Bearer token.", random),
	}
}

// RollbackKey is the switch for a right of its own for rollbacks (ROLL-04).
const RollbackKey = "server.rbac.rollback.enforce.enable"

// RollbackApart reports whether a rollback needs the right rollback. Values are
// those of argocd-cm.
func RollbackApart(values map[string]string) bool {
	on, err := text{values[RollbackKey], 0}.truth()
	return err == nil && on
}

// MaskedAnnotationsKey is the setting that names annotations of Secrets whose
// values are masked (DIFF-14).
const MaskedAnnotationsKey = "resource.sensitive.mask.annotations"

// MaskedAnnotations are those annotations. Values are those of argocd-cm.
func MaskedAnnotations(values map[string]string) []string {
	return text{values[MaskedAnnotationsKey], 0}.commas()
}

// RevisionSyncKey is the setting that makes a sync of another revision need the
// right override (SYNC-06).
const RevisionSyncKey = "application.sync.requireOverridePrivilegeForRevisionSync"

// RevisionSyncOverrides reports whether a sync of another revision needs the
// right override. Values are those of argocd-cm.
func RevisionSyncOverrides(values map[string]string) bool {
	on, err := text{values[RevisionSyncKey], 0}.truth()
	return err == nil && on
}

const prefix = "resource.customizations."

const replaceAllowed = "server.sync.replace.allowed"

const noBinary = "no other program is run for a build; list the version in " + hub.KustomizeVersionsKey + " to have it built with Kustomize " + hub.KustomizeVersion

const noUpdates = "an update of fields that are not ours changes no result and costs no request"

// anyKey stands for all keys of a map: they are names of the tenant's own.
const anyKey = "*"

// Limits of what one tenant may set.
const (
	MaxValue = 1 << 20 // bytes of all values of one map, as in Kubernetes
	MaxKeys  = 5000
	maxName  = 253
)

// secretMaps are the Secrets that hold settings.
func secretMaps() []string {
	return []string{hub.SecretMap, notificationsSecret, imageUpdaterSecret}
}

// IsSecret reports whether the values of a map are secrets.
func IsSecret(name string) bool {
	other, referred := strings.CutPrefix(name, hub.SecretPrefix)
	return slices.Contains(secretMaps(), name) || referred && plain(other)
}

// IsMap reports whether a ConfigMap contains settings.
func IsMap(name string) bool {
	return strings.HasPrefix(name, "argocd-") && plain(name) && !IsSecret(name)
}

// Check reports whether a value can be set. The error names map, key and line,
// and never the value of a secret.
func Check(name, key, value string) error {
	object := Title(name, key)
	switch {
	case !IsSecret(name) && !IsMap(name):
		return fault.With(fault.New(fault.Invalid, "there are no settings of that name"), object, "settings are in argocd-cm, other ConfigMaps whose names begin with argocd-, and argocd-secret")
	case !plain(key):
		return fault.With(fault.New(fault.Invalid, "its key is not usable"), object, "use up to 253 letters, digits, dots, dashes and underscores")
	case len(value) > MaxValue:
		return fault.With(fault.New(fault.Exceeded, "its value has %d bytes, more than %d", len(value), MaxValue), object, "")
	}
	known, ok := Find(name, key)
	if !ok {
		return fault.With(unknown(name, key), object, "")
	}
	set := newSet()
	set.strict = true
	return fault.With(known.read(set, strings.TrimPrefix(key, known.Key), text{value, 0}), object, "")
}

// Title names a key for people.
func Title(name, key string) string {
	kind := "ConfigMap"
	if IsSecret(name) {
		kind = "Secret"
	}
	return fmt.Sprintf("%s %s, key %s", kind, short(strings.TrimPrefix(name, hub.SecretPrefix)), short(key))
}

// Unused says why a key changes nothing yet; empty: something acts on it.
func Unused(name, key string) string {
	k, ok := Find(name, key)
	if ok && k.Used {
		return ""
	}
	if k.Instead != "" {
		return fmt.Sprintf("the key %s of %s is stored without effect: %s", short(key), short(name), k.Instead)
	}
	return fmt.Sprintf("the key %s of %s is stored, but not used yet", short(key), short(name))
}

// plain is what a key of a ConfigMap may be.
func plain(s string) bool {
	for _, c := range s {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("-_.", c)) {
			return false
		}
	}
	return s != "" && len(s) <= maxName
}

func short(s string) string {
	if len(s) > 120 {
		return s[:120] + "…"
	}
	return s
}
