package render

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/repourl"
)

// EnvNames are the variables of the build environment (SRC-17).
func EnvNames() []string {
	return []string{
		"ARGOCD_APP_NAME", "ARGOCD_APP_NAMESPACE", "ARGOCD_APP_PROJECT_NAME",
		"ARGOCD_APP_REVISION", "ARGOCD_APP_REVISION_SHORT", "ARGOCD_APP_REVISION_SHORT_8",
		"ARGOCD_APP_SOURCE_PATH", "ARGOCD_APP_SOURCE_REPO_URL", "ARGOCD_APP_SOURCE_TARGET_REVISION",
		"KUBE_VERSION", "KUBE_API_VERSIONS",
	}
}

// fact answers one question about the request itself.
func (r Request) fact(source int, name string) string {
	switch {
	case name == FactKubeVersion:
		return r.KubeVersion
	case name == FactAPIVersions:
		return strings.Join(r.APIVersions, "\n")
	case strings.HasPrefix(name, FactAPIVersion):
		if len(r.APIVersions) == 0 {
			return ""
		}
		if slices.Contains(r.APIVersions, strings.TrimPrefix(name, FactAPIVersion)) {
			return "true"
		}
		return "false"
	case name == FactPlugins:
		return r.discovering()
	case strings.HasPrefix(name, FactPlugin):
		p, _ := r.installedPlugin(strings.TrimPrefix(name, FactPlugin))
		return p.Digest
	case name == FactGeneratePaths:
		return r.GeneratePaths
	case strings.HasPrefix(name, FactSetting):
		return r.Settings[strings.TrimPrefix(name, FactSetting)]
	case strings.HasPrefix(name, FactEnv):
		return r.env(source, strings.TrimPrefix(name, FactEnv))
	}
	return ""
}

func (r Request) env(source int, name string) string {
	var s hub.Source
	if source >= 0 && source < len(r.Sources) {
		s = r.Sources[source]
	}
	switch name {
	case "ARGOCD_APP_NAME":
		return r.Application
	case "ARGOCD_APP_NAMESPACE":
		return r.Namespace
	case "ARGOCD_APP_PROJECT_NAME":
		return r.Project
	case "ARGOCD_APP_REVISION":
		return r.revision(source)
	case "ARGOCD_APP_REVISION_SHORT":
		return short(r.revision(source), 7)
	case "ARGOCD_APP_REVISION_SHORT_8":
		return short(r.revision(source), 8)
	case "ARGOCD_APP_SOURCE_PATH":
		return s.Path
	case "ARGOCD_APP_SOURCE_REPO_URL":
		return repourl.RedactText(s.RepoURL)
	case "ARGOCD_APP_SOURCE_TARGET_REVISION":
		return s.TargetRevision
	case "KUBE_VERSION":
		return r.KubeVersion
	case "KUBE_API_VERSIONS":
		return strings.Join(r.APIVersions, ",")
	}
	return ""
}

func (r Request) revision(source int) string {
	if source >= 0 && source < len(r.Trees) && r.Trees[source] != nil {
		return r.Trees[source].Commit()
	}
	return r.Revision
}

func short(s string, n int) string { return s[:min(n, len(s))] }

// factInput is how an answer is recorded: itself, or its hash if it is long.
func factInput(source int, name, answer string) hub.Input {
	in := hub.Input{Source: source, Kind: hub.InputFact, Path: name, Hash: answer}
	if len(answer) > 80 {
		sum := sha256.Sum256([]byte(answer))
		in.Hash = "sha256:" + hex.EncodeToString(sum[:])
	}
	return in
}
