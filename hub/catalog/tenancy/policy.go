package tenancy

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/access"
	"github.com/capstan-cd/capstan/hub/catalog/transact"
	"github.com/capstan-cd/capstan/hub/catalog/validation"
	"github.com/capstan-cd/capstan/hub/settings"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/rbac"
)

// aboutPolicy reports whether rights depend on a setting.
func aboutPolicy(c hub.SettingChange) bool {
	return c.Map == rbac.Map || c.Map == hub.SettingsMap && slices.Contains(settings.PolicyKeys(), c.Key)
}

// changePolicy checks the policy that changes lead to, and makes compiled rights
// stale. It notes what people should know of a policy that is fine.
func (w *writer) changePolicy(ctx context.Context, before, after []hub.Setting, changes []hub.SettingChange) error {
	if !slices.ContainsFunc(changes, aboutPolicy) {
		return nil
	}
	projects, err := w.Tx.Projects(ctx)
	if err != nil {
		return err
	}
	next := access.Compile(w.ID(), transact.PolicyOf(after, projects))
	_, had := rbac.Read(transact.PolicyOf(before, nil).Values)
	if err := refuseProblems(had, next.Problems()); err != nil {
		return err
	}
	roles, err := w.AccountRoles(ctx)
	if err != nil {
		return err
	}
	if err := refuseUnmet(next.Unmet(roles)); err != nil {
		return err
	}
	if err := w.refuseLockout(next, changes); err != nil {
		return err
	}
	w.doubts = next.Doubts()
	if err := w.keepPolicy(ctx, before, after); err != nil {
		return err
	}
	return w.RaisePolicy(ctx)
}

// refuseProblems returns the first problem that a policy did not have before.
func refuseProblems(before, after []error) error {
	for _, problem := range after {
		if !slices.ContainsFunc(before, func(old error) bool { return old.Error() == problem.Error() }) {
			return inPolicy(problem)
		}
	}
	return nil
}

// inPolicy makes an error about a key of argocd-rbac-cm name that.
func inPolicy(err error) error {
	e, ok := fault.As(err)
	if !ok {
		return err
	}
	c := *e
	c.Object = "ConfigMap " + rbac.Map + ", key " + c.Object
	return &c
}

// maxNamed bounds what an error lists.
const maxNamed = 5

// refuseUnmet refuses a policy that fails tests.
func refuseUnmet(unmet []rbac.Failure) error {
	if len(unmet) == 0 {
		return nil
	}
	var named []string
	for _, f := range unmet[:min(len(unmet), maxNamed)] {
		named = append(named, f.String())
	}
	return fault.With(fault.New(fault.Invalid, "the policy fails %d of its tests: %s", len(unmet), strings.Join(named, "; ")),
		"ConfigMap "+rbac.Map, "correct the policy, or the test together with it")
}

// refuseLockout refuses a policy by which its writer could not take it back.
func (w *writer) refuseLockout(next *access.Rights, changes []hub.SettingChange) error {
	rights := next.For(access.SubjectOf(w.By))
	for _, c := range changes {
		name := validation.SettingName(c.Map, c.Key)
		if aboutPolicy(c) && !rights.Check(access.Settings, access.Update, name) {
			reason := "no rule would allow it"
			if d := rights.Explain(access.Settings, access.Update, name); d.Rule != nil {
				reason = fmt.Sprintf("%s: %s", d.Rule.Origin, d.Rule)
			}
			return fault.With(fault.New(fault.Invalid, "you would lose the right to change it back (%s)", reason),
				settings.Title(c.Map, c.Key), "keep the right settings, update, "+name+", or ask somebody who keeps it")
		}
	}
	return nil
}
