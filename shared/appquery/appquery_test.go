package appquery_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/shared/appquery"
	"github.com/capstan-cd/capstan/shared/fault"
)

// plain is a term without its compiled patterns.
type plain struct {
	Field  appquery.Field
	Key    string
	Values []string
	Match  []string
	Not    bool
}

func plainly(q appquery.Query) (out []plain) {
	for _, t := range q {
		p := plain{Field: t.Field, Key: t.Key, Values: t.Values, Not: t.Not}
		for _, m := range t.Match {
			p.Match = append(p.Match, m.String())
		}
		out = append(out, p)
	}
	return out
}

func TestParse(t *testing.T) {
	t.Parallel()
	cases := map[string][]plain{
		"":                                      nil,
		"  Web \t api ":                         {{Values: []string{"web"}}, {Values: []string{"api"}}},
		`"two words" -old`:                      {{Values: []string{"two words"}}, {Values: []string{"old"}, Not: true}},
		`"health:degraded"`:                     {{Values: []string{"health:degraded"}}},
		`"a \"b\" \\ c"`:                        {{Values: []string{`a "b" \ c`}}},
		"health:degraded,Missing":               {{Field: appquery.Health, Values: []string{"degraded", "missing"}}},
		"drift:out-of-sync":                     {{Field: appquery.Sync, Values: []string{"outofsync"}}},
		"sync:drifted":                          {{Field: appquery.Sync, Values: []string{"outofsync"}}},
		"project:shop -cluster:prod":            {{Field: appquery.Project, Values: []string{"shop"}}, {Field: appquery.Cluster, Values: []string{"prod"}, Not: true}},
		`cluster:""`:                            {{Field: appquery.Cluster, Values: []string{""}}},
		"set:all":                               {{Field: appquery.Owner, Values: []string{"all"}}},
		"repo:https://git.test/a.git,git@h:x/y": {{Field: appquery.Repo, Values: []string{"https://git.test/a.git", "git@h:x/y"}}},
		"label:team=a":                          {{Field: appquery.Label, Key: "team", Values: []string{"a"}}},
		"label:team=a,b":                        {{Field: appquery.Label, Key: "team", Values: []string{"a", "b"}}},
		"-label:example.com/x":                  {{Field: appquery.Label, Key: "example.com/x", Not: true}},
		"label:team=":                           {{Field: appquery.Label, Key: "team", Values: []string{""}}},
		`annotation:"a b"="c d"`:                {{Field: appquery.Annotation, Key: "a b", Values: []string{"c d"}}},
		"label~team=^a":                         {{Field: appquery.Label, Key: "team", Match: []string{"^a"}}},
		"name~^web-[0-9]+$":                     {{Field: appquery.Name, Match: []string{"^web-[0-9]+$"}}},
		`name~"a b"`:                            {{Field: appquery.Name, Match: []string{"a b"}}},
		"name:web-*,api":                        {{Field: appquery.Name, Values: []string{"api"}, Match: []string{`(?s)\Aweb-.*\z`}}},
		`name:"web-*"`:                          {{Field: appquery.Name, Values: []string{"web-*"}}},
		"auto:paused operation:none":            {{Field: appquery.Auto, Values: []string{"paused"}}, {Field: appquery.Operation, Values: []string{"none"}}},
		"author:me":                             {{Field: appquery.Author, Values: []string{"me"}}},
	}
	for text, want := range cases {
		t.Run("UX-NAV-3(part) "+text, func(t *testing.T) {
			t.Parallel()
			got, err := appquery.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, plainly(got)); diff != "" {
				t.Errorf("terms (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseErrors(t *testing.T) {
	t.Parallel()
	cases := map[string]struct{ cause, fix string }{
		"web helth:degraded": {`at character 5 of the query: there is no field "helth"`, "did you mean health"},
		"日本 projekt:x":       {`at character 4 of the query: there is no field "projekt"`, "did you mean project"},
		"x -":                {`at character 3 of the query: a "-" excludes nothing`, "quote"},
		`a "open`:            {"at character 3 of the query: the quote is not closed", "close it"},
		"project:":           {"at character 9 of the query: the field project has no value", `""`},
		"project: x":         {"at character 9 of the query", `""`},
		"health:bad":         {`at character 8 of the query: "bad" is no value of the field health`, "degraded"},
		"health:degraded,x":  {`at character 17 of the query: "x" is no value`, "degraded"},
		"name~":              {"at character 6 of the query: the pattern is missing", "name~^web-"},
		"name~(":             {"at character 6 of the query: the pattern cannot be read: missing closing )", "RE2"},
		"health~x":           {"at character 7 of the query: the field health has no patterns", "health:healthy"},
		"label:=a":           {"at character 7 of the query: the term has no key", "label:team=shop"},
		"label:a,b":          {`at character 8 of the query: "," cannot follow a key`, "label:team=shop"},
		`project:a"b"`:       {`at character 10 of the query: "\"" cannot follow a value`, "comma"},
		"label~team":         {"at character 11 of the query: the pattern is missing", "label~team=^shop"},
		":x":                 {`at character 1 of the query: there is no field ""`, "one of"},
	}
	for text, want := range cases {
		t.Run("UX-NAV-3(refused) "+text, func(t *testing.T) {
			t.Parallel()
			_, err := appquery.Parse(text)
			e, ok := fault.As(err)
			if !ok || fault.KindOf(err) != fault.Invalid {
				t.Fatalf("Parse: %v", err)
			}
			if !strings.Contains(e.Cause, want.cause) || !strings.Contains(e.Fix, want.fix) {
				t.Errorf("cause %q, fix %q; want %q, %q", e.Cause, e.Fix, want.cause, want.fix)
			}
		})
	}
	for name, text := range map[string]string{"too long": strings.Repeat("a", 3000), "too many terms": strings.Repeat("a ", 51)} {
		t.Run("UX-NAV-3(refused) "+name, func(t *testing.T) {
			t.Parallel()
			if _, err := appquery.Parse(text); fault.KindOf(err) != fault.Exceeded {
				t.Errorf("Parse: %v", err)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{`health:degraded -cluster:prod "a b" label:team=a,b name~^x name:a*`, `-"`, `label:`, `"\`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		q, err := appquery.Parse(s)
		if err != nil {
			if k := fault.KindOf(err); k != fault.Invalid && k != fault.Exceeded {
				t.Fatalf("Parse(%q): %v", s, err)
			}
			return
		}
		for _, term := range q {
			if len(term.Values) == 0 && len(term.Match) == 0 && !term.Exists() {
				t.Fatalf("Parse(%q) has a term without condition: %+v", s, term)
			}
		}
	})
}
