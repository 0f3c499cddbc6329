package main

import (
	"fmt"
	"go/version"
	"slices"
	"strings"
)

// builds are versions of Go: the one of this machine, and the one that go.mod
// asks for.
type builds struct{ here, wanted string }

// A result is what failures must be mended, and what else is to be known.
type result struct{ failures, notices []string }

// assess decides what fails: a vulnerability that is called or shipped, unless
// it is excepted or the wanted Go mends it, and an exception that nothing needs.
// Exceptions of packages of the console count only if these were audited.
func assess(called, shipped []vulnerability, exceptions []string, b builds, audited bool) result {
	var r result
	needed := map[string]bool{}
	mended := 0
	for _, v := range slices.Concat(called, shipped) {
		switch {
		case v.mendedBy(b.wanted):
			mended++
		case slices.Contains(exceptions, v.id):
			needed[v.id] = true
		default:
			r.failures = append(r.failures, v.describe(b))
		}
	}
	for _, id := range exceptions {
		if !needed[id] && (audited || !strings.HasPrefix(id, "GHSA-")) {
			r.failures = append(r.failures, id+": nothing needs this line of exceptions.txt any more; remove it")
		}
	}
	if mended > 0 {
		r.notices = append(r.notices, fmt.Sprintf("this machine builds with %s; go.mod asks for %s, which mends %d", b.here, b.wanted, mended))
	}
	return r
}

// mendedBy reports whether a version of Go has a standard library without the
// vulnerability.
func (v vulnerability) mendedBy(goVersion string) bool {
	return v.module == standard && v.fixed != "" && version.Compare(goVersionOf(v.fixed), goVersion) <= 0
}

// goVersionOf is a version of the standard library as Go's releases name it.
func goVersionOf(v string) string { return "go" + strings.TrimPrefix(v, "v") }

// describe is a failure in a few lines, with what to do.
func (v vulnerability) describe(b builds) string {
	found, remedy := v.module+" "+v.found, "there is no fixed version; if it does not concern Capstan, say why in exceptions.txt"
	switch {
	case v.module == standard:
		found = "the standard library of " + goVersionOf(v.found)
		if v.fixed != "" {
			remedy = fmt.Sprintf("fixed in %s: go.mod asks for %s, raise its toolchain", goVersionOf(v.fixed), b.wanted)
		}
	case v.fixed != "":
		remedy = "fixed in " + v.fixed
	case strings.HasPrefix(v.id, "GHSA-"):
		remedy = "cd web && npm audit says which version has no such fault"
	}
	lines := []string{v.id + ": " + v.summary, "    found in " + found + "; " + remedy}
	if v.trace != "" {
		lines = append(lines, "    "+v.trace)
	}
	return strings.Join(lines, "\n")
}
