package client

import (
	"strings"

	"github.com/capstan-cd/capstan/shared/apimodel"
)

// defaultNamespace is that of applications that name none.
const defaultNamespace = "argocd"

// SplitName splits "namespace/name" or "name".
func SplitName(s string) (namespace, name string) {
	if ns, n, ok := strings.Cut(s, "/"); ok {
		return ns, n
	}
	return defaultNamespace, s
}

// QualifiedName is the name of an application as commands take it: with its
// namespace, unless that is the default.
func QualifiedName(m apimodel.Metadata) string {
	if ns := m.Namespace; ns != "" && ns != defaultNamespace {
		return ns + "/" + m.Name
	}
	return m.Name
}

// Given reports whether an optional part of an answer is there.
func Given[T comparable](v T) bool {
	var zero T
	return v != zero
}
