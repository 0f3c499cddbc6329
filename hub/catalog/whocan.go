package catalog

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/access"
	"github.com/capstan-cd/capstan/shared/glob"
)

// maxAsked is how many objects WhoCan looks at.
const maxAsked = 1000

// A Holder is somebody who may do something, and on what.
type Holder struct {
	Subject         string // empty: everybody who is signed in
	Account         bool   // it is an account of the tenant
	Count           int    // of objects
	Examples        []string
	access.Decision // about the first of them
}

// A WhoCan is who may do something.
type WhoCan struct {
	Holders []Holder
	Objects int  // that the question is about; 0: there is none, and the object itself was asked about
	More    bool // there are more objects
}

// WhoCan says who may do an action on an object, or on the objects that a
// pattern stands for, and by which rules. Who has the right only because
// everybody has it is not named. It needs the right to read the policy.
func (c *Catalog) WhoCan(ctx context.Context, by hub.Caller, q RightQuestion) (WhoCan, error) {
	var out WhoCan
	err := c.read(ctx, by, func(ctx context.Context, r *reader) error {
		out = WhoCan{}
		if err := r.readsPolicy(); err != nil {
			return err
		}
		roles, err := r.AccountRoles(ctx)
		if err != nil {
			return err
		}
		rights, err := c.parts.Service.AllRights(ctx, r.Tx)
		if err != nil {
			return err
		}
		objects, err := r.asked(ctx, q, slices.Sorted(maps.Keys(roles)))
		if err != nil {
			return err
		}
		if out.Objects, out.More = len(objects), len(objects) > maxAsked; out.More {
			objects, out.Objects = objects[:maxAsked], maxAsked
		}
		if len(objects) == 0 {
			objects = [][]string{{q.Object}}
		}
		everybody := held(rights.ForNames(nil, roles), q, objects)
		if everybody.Count > 0 {
			out.Holders = append(out.Holders, everybody)
		}
		for _, subject := range unique(slices.Concat(slices.Sorted(maps.Keys(roles)), slices.Sorted(slices.Values(rights.Subjects())))) {
			h := held(rights.ForNames([]string{subject}, roles), q, objects)
			if h.Count <= everybody.Count {
				continue
			}
			_, h.Account = roles[subject]
			h.Subject = subject
			out.Holders = append(out.Holders, h)
		}
		return nil
	})
	return out, err
}

// asked returns the objects that a question is about, each with its names.
func (r *reader) asked(ctx context.Context, q RightQuestion, accounts []string) ([][]string, error) {
	projects, err := r.Tx.Projects(ctx)
	if err != nil {
		return nil, err
	}
	all, err := r.policyObjects(ctx, projects, accounts)
	if err != nil {
		return nil, err
	}
	pattern := q.Object
	if !strings.Contains(pattern, "/") && pattern != "*" && (q.Resource == access.Applications || q.Resource == access.Logs || q.Resource == access.Exec) {
		pattern += "/*"
	}
	return slices.DeleteFunc(all[q.Resource], func(names []string) bool {
		return !slices.ContainsFunc(names, func(n string) bool { return glob.Match(pattern, n) })
	}), nil
}

// held says on which objects somebody may do it.
func held(rights *access.Index, q RightQuestion, objects [][]string) Holder {
	var h Holder
	for _, names := range objects {
		d := rights.Explain(q.Resource, q.Action, names...)
		if !d.Allowed {
			continue
		}
		if h.Count++; h.Count == 1 {
			h.Decision = d
		}
		if len(h.Examples) < maxSamples {
			h.Examples = append(h.Examples, names[0])
		}
	}
	return h
}
