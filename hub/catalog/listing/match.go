package listing

import (
	"regexp"
	"slices"
	"strings"

	"github.com/capstan-cd/capstan/hub/repourl"
	"github.com/capstan-cd/capstan/shared/appquery"
)

// A group is a condition on a row: terms of one field, which are alternatives,
// or one term that excludes.
type group struct {
	field appquery.Field
	key   string
	holds func(r *Row, on *Cluster) bool
}

// compile makes conditions of queries, all of which must hold. Me are the names
// of the caller.
func compile(queries []appquery.Query, me []string) []group {
	var out []group
	for _, q := range queries {
		var done []appquery.Term // the first of each group
		for i, t := range q {
			same := func(o appquery.Term) bool { return o.Field == t.Field && o.Key == t.Key && !o.Not }
			if t.Field != appquery.Text && !t.Not && slices.ContainsFunc(done, same) {
				continue
			}
			test := termTest(t, me)
			if t.Field != appquery.Text && !t.Not {
				done = append(done, t)
				for _, o := range q[i+1:] {
					if same(o) {
						test = either(test, termTest(o, me))
					}
				}
			}
			if t.Not {
				test = not(test)
			}
			out = append(out, group{t.Field, t.Key, test})
		}
	}
	return out
}

func not(test func(*Row, *Cluster) bool) func(*Row, *Cluster) bool {
	return func(r *Row, on *Cluster) bool { return !test(r, on) }
}

func either(a, b func(*Row, *Cluster) bool) func(*Row, *Cluster) bool {
	return func(r *Row, on *Cluster) bool { return a(r, on) || b(r, on) }
}

// termTest reports of a row whether what a term names is there. It does not
// know about exclusion.
func termTest(t appquery.Term, me []string) func(r *Row, on *Cluster) bool {
	switch t.Field {
	case appquery.Text:
		return func(r *Row, _ *Cluster) bool { return strings.Contains(r.lower, t.Values[0]) }
	case appquery.Label:
		return func(r *Row, _ *Cluster) bool { return keyed(t, r.Labels) }
	case appquery.Annotation:
		return func(r *Row, _ *Cluster) bool { return keyed(t, r.Annotations) }
	case appquery.Author:
		return authorTest(t, me)
	case appquery.Sync, appquery.Health, appquery.Operation, appquery.Auto, appquery.State:
		return func(r *Row, on *Cluster) bool { return slices.Contains(t.Values, r.state(t.Field, on)) }
	case appquery.Repo:
		for _, v := range t.Values {
			if normal, err := repourl.Normalize(v); err == nil {
				t.Values = append(slices.Clone(t.Values), normal)
			}
		}
	case appquery.By:
		t.Values = people(t.Values, me)
	case appquery.Revision:
		return func(r *Row, _ *Cluster) bool {
			return slices.ContainsFunc(r.revisions, func(v string) bool { return revisionIs(t, v) })
		}
	}
	return func(r *Row, on *Cluster) bool { return slices.ContainsFunc(r.values(t.Field, on), t.Holds) }
}

// shortRevision is the number of digits from which on a value is the begin of a
// commit.
const shortRevision = 7

func revisionIs(t appquery.Term, v string) bool {
	return t.Holds(v) || slices.ContainsFunc(t.Values, func(s string) bool { return len(s) >= shortRevision && strings.HasPrefix(v, s) })
}

func keyed(t appquery.Term, in map[string]string) bool {
	v, found := in[t.Key]
	return found && (t.Exists() || t.Holds(v))
}

// people replaces the caller's own name.
func people(values, me []string) []string {
	var out []string
	for _, v := range values {
		if v == appquery.Me {
			out = append(out, me...)
		} else {
			out = append(out, v)
		}
	}
	return out
}

func authorTest(t appquery.Term, me []string) func(r *Row, on *Cluster) bool {
	var lower []string
	for _, v := range people(t.Values, me) {
		if v != "" {
			lower = append(lower, strings.ToLower(v))
		}
	}
	return func(r *Row, _ *Cluster) bool {
		return r.authored(lower) || r.Commit.Author != "" && slices.ContainsFunc(t.Match, func(m *regexp.Regexp) bool { return m.MatchString(r.Commit.Author) })
	}
}
