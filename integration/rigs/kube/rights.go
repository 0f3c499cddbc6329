package kube

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/capstan-cd/capstan/integration/rigs/build"
)

// AgentNamespace is where agents of the rigs keep their state.
const AgentNamespace = "capstan-system"

// AgentRights are the account and the rights of the agent's own chart, in a
// mode and for namespaces as the chart has them. An agent is never a member
// of system:masters: the API server asks these rules about each request.
func AgentRights(mode string, namespaces ...string) (string, error) {
	return AgentRightsIn(AgentNamespace, mode, namespaces...)
}

// AgentRightsIn is AgentRights for an agent of another namespace.
func AgentRightsIn(home, mode string, namespaces ...string) (string, error) {
	own, err := chartRules("own")
	if err != nil {
		return "", err
	}
	cluster, err := chartRules("cluster")
	if err != nil {
		return "", err
	}
	files := []string{"deploy", "roles"}
	if mode == "observe" {
		files = []string{"observe"}
	}
	deploy, err := chartRules(files...)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: v1\nkind: Namespace\nmetadata: {name: %[1]s}\n---\napiVersion: v1\nkind: ServiceAccount\nmetadata: {name: capstan-agent, namespace: %[1]s}\n", home)
	grant(&b, home, home, "capstan-agent", own)
	if len(namespaces) == 0 {
		cluster += deploy
	}
	grant(&b, home, "", home+":capstan-agent", cluster)
	for _, space := range namespaces {
		grant(&b, home, space, home+":capstan-agent", deploy)
	}
	return b.String(), nil
}

// grant writes a role with rules, and binds it to the account of home: in a
// namespace, or without one in the whole cluster.
func grant(b *strings.Builder, home, space, name, rules string) {
	kind, in := "ClusterRole", ""
	if space != "" {
		kind, in = "Role", ", namespace: "+space
	}
	fmt.Fprintf(b, `---
apiVersion: rbac.authorization.k8s.io/v1
kind: %[1]s
metadata: {name: %[2]q%[3]s}
rules:
%[4]s---
apiVersion: rbac.authorization.k8s.io/v1
kind: %[1]sBinding
metadata: {name: %[2]q%[3]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: %[1]s, name: %[2]q}
subjects:
- {kind: ServiceAccount, name: capstan-agent, namespace: %[5]s}
`, kind, name, in, rules, home)
}

// chartRules reads rules of the agent's chart.
func chartRules(names ...string) (string, error) {
	root, err := build.SourceRoot()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(root, "charts", "capstan-agent", "files", name+".yaml"))
		if err != nil {
			return "", fmt.Errorf("read the rights of the agent's chart: %w", err)
		}
		b.Write(text)
	}
	return b.String(), nil
}
