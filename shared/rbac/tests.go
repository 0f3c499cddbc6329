package rbac

import (
	"fmt"
	"strings"

	"github.com/capstan-cd/capstan/shared/fault"
)

// A Test is an expectation of TestsKey: what a subject may do, or may not.
type Test struct {
	Names    []string // of one subject: a user and groups, or roles
	Resource string
	Action   string
	Object   string
	Allow    bool
	Origin
}

// ParseTests reads lines "t, subject, resource, action, object, allow|deny".
// A subject is a user, a group or a role; several, with ; between them, are a
// user with groups. The errors name the line.
func ParseTests(text string) (tests []Test, errs []error) {
	each(TestsKey, text, func(at Origin, fields []string) error {
		if fields[0] != "t" || len(fields) != 6 {
			return fault.With(fault.New(fault.Invalid, "it is no test"), "", `write "t, subject, resource, action, object, allow" or "…, deny"`)
		}
		test := Test{Resource: fields[2], Action: fields[3], Object: fields[4], Allow: fields[5] == "allow", Origin: at}
		for _, name := range strings.Split(fields[1], ";") {
			if name = strings.TrimSpace(name); name != "" {
				test.Names = append(test.Names, name)
			}
		}
		switch {
		case len(test.Names) == 0 || test.Resource == "" || test.Action == "" || test.Object == "":
			return fault.New(fault.Invalid, "one of its fields is empty")
		case fields[5] != "allow" && fields[5] != "deny":
			return fault.New(fault.Invalid, "it expects %q, which is neither allow nor deny", fields[5])
		}
		tests = append(tests, test)
		return nil
	}, &errs)
	return tests, errs
}

// A Failure is a test that a policy does not meet.
type Failure struct {
	Test
	Decision Decision
}

// String says what was expected and what is.
func (f Failure) String() string {
	may, reason := "may not", "no rule allows it"
	if f.Decision.Allowed {
		may = "may"
	}
	if f.Decision.Rule != nil {
		reason = fmt.Sprintf("%s: %s", f.Decision.Rule.Origin, f.Decision.Rule)
	}
	return fmt.Sprintf("%s: %s %s %s %s %s (%s)", f.Origin, strings.Join(f.Names, ";"), may, f.Action, f.Resource, f.Object, reason)
}

// Run returns the tests that a policy fails. For returns the rights of a
// subject with some names.
func Run(tests []Test, of func(names []string) *Index) (failed []Failure) {
	for _, t := range tests {
		if d := of(t.Names).Explain(t.Resource, t.Action, t.Object); d.Allowed != t.Allow {
			failed = append(failed, Failure{t, d})
		}
	}
	return failed
}
