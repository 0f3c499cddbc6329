package git

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

// minShort is the shortest abbreviation of a commit that is looked up.
const minShort = 7

// Resolve finds the commit that a target revision names among the refs
// of a repository, and the full name that led to it. It decides in this order:
//
//  1. nothing or HEAD: the default branch;
//  2. 40 hexadecimal digits: that commit, whose name is then empty;
//  3. a full name such as refs/heads/main or refs/tags/v1 (SRC-08);
//  4. the tag of exactly that name, with tagPrefix before it or without;
//  5. a semver constraint: the highest tag that satisfies it (SRC-06), among
//     the tags that start with tagPrefix, which is no part of the version
//     (SRC-07);
//  6. the branch of that name.
//
// So of a tag and a branch with one name the tag wins, as in git rev-parse;
// the full name is unambiguous. Abbreviated commits need the objects
// and are left to Mirrors.Resolve. The error is fault.Missing and lists near
// names.
func Resolve(refs []hub.Ref, targetRevision, tagPrefix string) (commit, name string, err error) {
	if targetRevision == "" {
		targetRevision = "HEAD"
	}
	if isCommit(targetRevision) {
		return strings.ToLower(targetRevision), "", nil
	}
	try := []string{targetRevision, "refs/tags/" + tagPrefix + targetRevision, "refs/tags/" + targetRevision}
	if targetRevision != "HEAD" && !strings.HasPrefix(targetRevision, "refs/") {
		try = try[1:]
	}
	for _, full := range try {
		if c, ok := lookup(refs, full); ok {
			return c, full, nil
		}
	}
	constraint, parseErr := semver.NewConstraint(targetRevision)
	if parseErr == nil {
		if ref, ok := highest(refs, constraint, tagPrefix); ok {
			return ref.Commit, ref.Name, nil
		}
	}
	if c, ok := lookup(refs, "refs/heads/"+targetRevision); ok {
		return c, "refs/heads/" + targetRevision, nil
	}
	return "", "", unknownRevision(refs, targetRevision, tagPrefix, parseErr == nil)
}

func lookup(refs []hub.Ref, name string) (string, bool) {
	i := slices.IndexFunc(refs, func(r hub.Ref) bool { return r.Name == name })
	if i < 0 {
		return "", false
	}
	return refs[i].Commit, true
}

func isCommit(s string) bool { return len(s) == 40 && isHex(s) }

func isHex(s string) bool {
	return s != "" && strings.Trim(s, "0123456789abcdefABCDEF") == ""
}

// highest returns the tag with the highest version that satisfies a constraint.
// Of equal versions, such as v1.0.0 and 1.0.0, the name decides, so that the
// answer does not depend on the order of the refs.
func highest(refs []hub.Ref, c *semver.Constraints, prefix string) (best hub.Ref, found bool) {
	var top *semver.Version
	for _, r := range refs {
		tag, ok := strings.CutPrefix(r.Name, "refs/tags/"+prefix)
		if !ok {
			continue
		}
		v, err := semver.NewVersion(tag)
		if err != nil || !c.Check(v) {
			continue
		}
		if order := compare(v, top); order > 0 || order == 0 && r.Name > best.Name {
			best, top, found = r, v, true
		}
	}
	return best, found
}

func compare(v, top *semver.Version) int {
	if top == nil {
		return 1
	}
	return v.Compare(top)
}

func unknownRevision(refs []hub.Ref, revision, prefix string, constraint bool) error {
	near := nearNames(refs, revision, prefix)
	fix := "check the target revision"
	if len(near) > 0 {
		fix += "; near names: " + strings.Join(near, ", ")
	}
	shown := fmt.Sprintf("%q", cut(revision, 120))
	if revision == "HEAD" {
		return fault.With(fault.New(fault.Missing, "the repository has no default branch"), "", "name a branch or a tag as the target revision")
	}
	if constraint && (strings.ContainsAny(revision, "<>=~^*,| ") || strings.HasSuffix(strings.ToLower(revision), ".x")) {
		if prefix != "" {
			return fault.With(fault.New(fault.Missing, "no tag with the prefix %q satisfies the version constraint %s", cut(prefix, 120), shown), "", fix)
		}
		return fault.With(fault.New(fault.Missing, "no tag satisfies the version constraint %s", shown), "", fix)
	}
	return fault.With(fault.New(fault.Missing, "the revision %s is neither a branch, a tag nor a commit of the repository", shown), "", fix)
}

func cut(s string, limit int) string {
	if len(s) > limit {
		return strings.ToValidUTF8(s[:limit], "") + "…"
	}
	return s
}

// nearNames returns up to three branches or tags with similar names.
func nearNames(refs []hub.Ref, revision, prefix string) []string {
	type near struct {
		name     string
		distance int
	}
	want := short(cut(revision, 64))
	var found []near
	for i, r := range refs {
		if i == 5000 || r.Name == "HEAD" {
			continue
		}
		name := short(r.Name)
		d := distance(strings.ToLower(want), strings.ToLower(cut(name, 64)))
		if prefix != "" {
			d = min(d, distance(strings.ToLower(prefix+want), strings.ToLower(cut(name, 64))))
		}
		if d <= max(2, len(want)/3) {
			found = append(found, near{name, d})
		}
	}
	slices.SortFunc(found, func(a, b near) int {
		return cmp.Or(cmp.Compare(a.distance, b.distance), strings.Compare(a.name, b.name))
	})
	var names []string
	for _, n := range found[:min(3, len(found))] {
		names = append(names, n.name)
	}
	return slices.Compact(names)
}

func short(name string) string {
	return strings.TrimPrefix(strings.TrimPrefix(name, "refs/heads/"), "refs/tags/")
}

// distance is the number of edits between two names (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
