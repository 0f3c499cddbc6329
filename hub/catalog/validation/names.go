package validation

import (
	"strings"

	"github.com/capstan-cd/capstan/shared/fault"
)

// maxMetadata is how many bytes labels and annotations may have together, as
// in Kubernetes.
const maxMetadata = 256 << 10

// DefaultNamespace is where applications are that name no namespace. It means
// nothing beyond being Argo CD's.
const DefaultNamespace = "argocd"

// label is a DNS label: what projects, clusters, tenants and namespaces are named.
func label(s string) bool {
	return len(s) <= 63 && word(s, "-", false)
}

// subdomain is DNS labels joined by dots: what Kubernetes objects are named.
func subdomain(s string) bool {
	if len(s) > 253 {
		return false
	}
	for _, part := range strings.Split(s, ".") {
		if !label(part) {
			return false
		}
	}
	return true
}

// labelKey is "name" or "prefix/name" as in Kubernetes.
func labelKey(s string) bool {
	if prefix, name, found := strings.Cut(s, "/"); found {
		return subdomain(prefix) && labelName(name)
	}
	return labelName(s)
}

func labelName(s string) bool { return len(s) <= 63 && word(s, "-_.", true) }

func labelValue(s string) bool { return s == "" || labelName(s) }

// word is letters and digits with some other characters between them.
func word(s, between string, upper bool) bool {
	alnum := func(c byte) bool {
		return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || upper && c >= 'A' && c <= 'Z'
	}
	if s == "" || !alnum(s[0]) || !alnum(s[len(s)-1]) {
		return false
	}
	for i := range len(s) {
		if !alnum(s[i]) && strings.IndexByte(between, s[i]) < 0 {
			return false
		}
	}
	return true
}

// CheckLabel is the error for a name that is no DNS label.
func CheckLabel(what, name string) error {
	if label(name) {
		return nil
	}
	return fault.With(fault.New(fault.Invalid, "%s %q is no DNS label", what, Shorten(name)), "",
		"use 1 to 63 lower-case letters, digits and hyphens, with a letter or digit at both ends")
}

// checkMaps validates labels and annotations.
func checkMaps(labels, annotations map[string]string) error {
	size := 0
	for k, v := range labels {
		if !labelKey(k) || !labelValue(v) {
			return fault.With(fault.New(fault.Invalid, "label %q: %q is not a valid label", Shorten(k), Shorten(v)), "",
				"a value has at most 63 letters, digits, -, _ and ., with a letter or digit at both ends")
		}
		size += len(k) + len(v)
	}
	for k, v := range annotations {
		if !labelKey(strings.ToLower(k)) {
			return fault.New(fault.Invalid, "annotation %q is not a valid name", Shorten(k))
		}
		size += len(k) + len(v)
	}
	if size > maxMetadata {
		return fault.New(fault.Exceeded, "labels and annotations have %d bytes, and %d are the limit", size, maxMetadata)
	}
	return nil
}

// Shorten cuts a text that is shown in an error.
func Shorten(s string) string {
	if r := []rune(s); len(r) > 80 {
		return string(r[:80]) + "…"
	}
	return s
}
