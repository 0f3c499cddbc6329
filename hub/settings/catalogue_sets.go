package settings

import (
	"strings"

	"github.com/capstan-cd/capstan/hub"
)

// applicationSets are the parameters of ApplicationSets that have an effect
// (CFG-17).
func applicationSets() []Known {
	const c = "applicationsetcontroller."
	out := table(hub.ParamsMap,
		row{hub.SetPolicyKey, "What application sets may do with their applications; it wins over their own applicationsSync.", "sync", among("sync", "create-only", "create-update", "create-delete", ""), "", ""},
		row{hub.SetPolicyOverrideKey, "Whether the applicationsSync of an application set wins over that policy.", "false", truth, "", ""},
		row{hub.SetNamespacesKey, "Namespaces, besides argocd, that may have application sets: globs and /regular expressions/, separated by commas.", "team-*", anyText, "", ""},
		row{hub.SetDryRunKey, "Whether application sets change nothing, and only say what they would change.", "false", truth, "", ""},
		row{hub.SetRequeueKey, "How often Git generators are asked that say nothing else.", "3m", period, "", ""},
		row{hub.SetProgressiveKey, "Whether application sets with the strategy RollingSync sync their applications in steps; they do unless it is false.", "true", truth, "", ""},
		row{hub.SetProgressiveOldKey, "The same in an older form.", "true", truth, "", ""},
		row{c + "enable.new.git.file.globbing", "Whether * in patterns of Git files ends at a slash.", "true", truth, "", ""},
		row{c + "allowed.scm.providers", "Addresses of Git hosts that generators may ask, separated by commas.", "https://git.example.com", anyText, "", ""},
		row{c + "enable.scm.providers", "Whether generators may ask Git hosts at all; they may unless it is false.", "true", truth, "", ""},
		row{hub.SetPreservedAnnotationsKey, "Annotations of applications that no application set overwrites, separated by commas.", "example.com/owner", anyText, "", ""},
		row{hub.SetPreservedLabelsKey, "Labels of applications that no application set overwrites, separated by commas.", "owner", anyText, "", ""},
		row{hub.SetResourcesKey, "How many applications the status of an application set lists.", "5000", count, "", ""},
		row{hub.SetDeletionLimitKey, "How many of its applications, or what part of them, an application set deletes without consent. Without it: five, or a fifth where that is more, and never all.", "20%", numberOrPercent, "", ""},
	)
	for i := range out {
		out[i].Used = true
	}
	return out
}

// numberOrPercent accepts a whole number, or a percentage.
func numberOrPercent(end string, t text) error {
	if number, ok := strings.CutSuffix(strings.TrimSpace(t.value), "%"); ok {
		t.value = number
		return whole(0, 100)(end, t)
	}
	return count(end, t)
}
