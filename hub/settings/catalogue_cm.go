package settings

import (
	"slices"

	"github.com/capstan-cd/capstan/hub"
)

// configKeys are the keys of argocd-cm that have no reader of their own.
func configKeys() []Known {
	out := table(hub.SettingsMap, rowsOf(addressRows(), resourceRows(), toolRows(), behaviourRows(), linkRows())...)
	for i := range out {
		out[i].Used = slices.Contains(readBySomebody, out[i].Key)
	}
	return out
}

// readBySomebody are keys of this table that have an effect: others read their texts.
var readBySomebody = []string{ButtonTextKey, "exec.enabled", "exec.shells", "server.maxPodLogsToRender"}

// addressRows are keys about the address of the hub and its console (CFG-01).
func addressRows() []row {
	return []row{
		{"ui.loginButtonText", "The text of the button that begins a single sign-on.", "Sign in with Okta", anyText, "", ""},
		{"ga.trackingid", "An account of Google Analytics.", "UA-12345-1", anyText, noAnalytics, ""},
		{"ga.anonymizeusers", "Whether names of users are hashed for Google Analytics.", "true", truth, noAnalytics, ""},
	}
}

const (
	noAnalytics = "the console reports nothing about its users to anybody"
	noStyle     = "the console loads nothing that is not part of it"
)

// resourceRows are keys about objects of clusters (CFG-03).
func resourceRows() []row {
	return []row{
		{"resource.includeEventLabelKeys", "Labels of an application that its Kubernetes events get, separated by commas.", "team,env-*", anyText, "", ""},
		{"resource.excludeEventLabelKeys", "Labels that its Kubernetes events do not get, separated by commas.", "env-*", anyText, "", ""},
		{"application.allowedNodeLabels", "Labels of nodes that are shown with pods, separated by commas.", "topology.kubernetes.io/zone", anyText, "", ""},
	}
}

// toolRows are keys about renderers (CFG-04).
func toolRows() []row {
	return []row{
		{"helm.enable", "Whether Helm charts are rendered.", "true", truth, "", ""},
		{"kustomize.enable", "Whether Kustomize is built.", "true", truth, "", ""},
		{"jsonnet.enable", "Whether Jsonnet is evaluated.", "true", truth, "", ""},
		{"configManagementPlugins", "Plugins in an older form.", "- name: mine\n", sequence, "plugins are declared as ConfigManagementPlugin objects", ""},
		{"repositories", "Repositories in an older form.", "- url: https://git.example.com/a.git\n", sequence, byRepositorySecrets, ""},
		{"repository.credentials", "Credentials in an older form.", "- url: https://git.example.com\n", sequence, byRepositorySecrets, ""},
		{"helm.repositories", "Chart repositories in an older form.", "- url: https://charts.example.com\n", sequence, byRepositorySecrets, ""},
	}
}

const byRepositorySecrets = "declare them as Secrets with the label argocd.argoproj.io/secret-type"

// behaviourRows are switches of behaviour (CFG-05, CFG-06).
func behaviourRows() []row {
	return []row{
		{"exec.enabled", "Whether users may open a terminal in a container.", "true", truth, "", ""},
		{"exec.shells", "Shells that a terminal tries, separated by commas.", "bash,sh", anyText, "", ""},
		{"server.maxPodLogsToRender", "Of how many pods the console shows logs at once.", "10", positive, "", ""},
		{"server.enable.server.side.diff", "Whether the console compares by a dry run.", "true", truth, "every first comparison is a dry run by the API server", ""},
		{"server.rbac.log.enforce.enable", "Whether logs need the right logs.", "true", truth, "logs always need the right logs", ""},
	}
}

// linkRows are keys about webhooks, extensions and the hydrator (CFG-07).
func linkRows() []row {
	return []row{
		{"webhook.maxPayloadSizeMB", "The size up to which an event of a Git host is read, in MB.", "50", positive, noEventSize, ""},
		{"extension.config", "Services behind extensions of the console.", "extensions: []\n", mapping, noExtensions, ""},
		{"extension.config.", "The service behind one extension of the console.", "connectionTimeout: 2s\n", mapping, noExtensions, "metrics"},
		{"commit.author.name", "The author of commits of the hydrator.", "Capstan", anyText, "", ""},
		{"commit.author.email", "The email address of that author.", "cd@example.com", anyText, "", ""},
		{"sourceHydrator.commitMessageTemplate", "The message of commits of the hydrator.", "{{.metadata.subject}}", anyText, "", ""},
		{"sourceHydrator.readmeMessageTemplate", "The README of commits of the hydrator.", "# {{.repoURL}}", anyText, "", ""},
	}
}

const (
	noEventSize  = "the hub reads events up to webhook.maxPayloadSizeMB of its own configuration, which holds for all tenants"
	noExtensions = "the console loads nothing that is not part of it"
)

const sampleLinks = `- url: https://example.com/{{.project.metadata.name}}
  title: Runbook
  if: project.metadata.name != "default"
`

func rowsOf(parts ...[]row) (out []row) {
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}
