package settings

import (
	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/rbac"
)

// InheritKey says whether rights to update and delete an application leave out
// its single objects (RBAC-06).
const InheritKey = "server.rbac.disableApplicationFineGrainedRBACInheritance"

// AnonymousKey says whether people who have not signed in have the rights of the
// default role (RBAC-17).
const AnonymousKey = "users.anonymous.enabled"

// PolicyKeys are the keys, besides those that begin with rbac.KeyPrefix, that
// rights depend on.
func PolicyKeys() []string { return []string{rbac.ScopesKey, RollbackKey, InheritKey} }

// Inherits reports whether rights to update and delete an application include
// its single objects. Values are those of argocd-cm.
func Inherits(values map[string]string) bool {
	apart, err := text{values[InheritKey], 0}.truth()
	return err == nil && !apart
}

// On reports whether a switch of argocd-cm is on. One that cannot be read is off.
func On(values map[string]string, key string) bool {
	on, err := text{values[key], 0}.truth()
	return err == nil && on
}

// Lines of a policy are checked together, when all keys are known: whether they
// are globs or expressions is the value of another key.
func policies() []Known {
	rule := func(key, about, sample string, read func(*set, string, text) error) Known {
		return Known{Map: rbac.Map, Key: key, About: about, Sample: sample, Used: true, read: read}
	}
	return []Known{
		rule(rbac.PolicyKey, "Who may do what: lines p, subject, resource, action, object, allow|deny and g, subject, role.",
			"p, role:dev, applications, sync, shop/*, allow\ng, my-org:developers, role:dev\n", (*set).readAny),
		{
			Map: rbac.Map, Key: rbac.KeyPrefix, Example: "team.csv", About: "More lines of the policy, in keys that end in .csv.",
			Sample: "p, role:dev, logs, get, shop/*, allow\n", Used: true, read: (*set).readOverlay,
		},
		rule(rbac.DefaultKey, "The role that everyone has; what it allows, only "+rbac.OrgKey+" denies.", "role:readonly", (*set).readDefaultRole),
		rule(rbac.ScopesKey, "Claims of a single sign-on whose values policies may name as subjects.", "[groups, email]", (*set).readScopes),
		rule(rbac.MatchModeKey, "Whether patterns of policies are globs or regular expressions (RE2): glob or regex.", "glob", (*set).readMatchMode),
		rule(rbac.OrgKey, "Rules of the organisation: what they deny, no other rule, role or project allows. The subject * is everyone.",
			"p, *, applications, delete, prod/*, deny\n", (*set).readAny),
		rule(rbac.TestsKey, "Expectations, as lines t, subject, resource, action, object, allow|deny; a policy that fails one is not saved.",
			"t, my-org:developers, applications, delete, prod/web, deny\n", (*set).readTests),
		{
			Map: hub.SettingsMap, Key: InheritKey, About: "Whether rights to update and delete an application leave out its single objects; the default is true.",
			Sample: "true", Used: true, read: (*set).readSwitch,
		},
		{
			Map: hub.SettingsMap, Key: AnonymousKey, About: "Whether requests without a sign-in may read what the default role may read, over the API and without people and settings.",
			Sample: "false", Used: true, read: (*set).readSwitch,
		},
	}
}

// readOverlay checks the name alone.
func (s *set) readOverlay(end string, _ text) error {
	if rbac.IsOverlay(rbac.KeyPrefix + end) {
		return nil
	}
	return s.whenSet(fault.With(fault.New(fault.Invalid, "it is no policy by its name"), "", "write policy.csv or policy.NAME.csv"))
}

func (s *set) readDefaultRole(_ string, t text) error {
	_, err := rbac.ReadDefault(t.value)
	return s.whenSet(err)
}

func (s *set) readScopes(_ string, t text) error {
	_, err := rbac.ReadScopes(t.value)
	return s.whenSet(err)
}

func (s *set) readMatchMode(_ string, t text) error {
	_, err := rbac.ReadMatchMode(t.value)
	return s.whenSet(err)
}

func (s *set) readTests(_ string, t text) error {
	if _, errs := rbac.ParseTests(t.value); len(errs) > 0 {
		return s.whenSet(errs[0])
	}
	return nil
}

// whenSet is an error only while a person sets a value: an earlier release may
// have stored any, and agents need the other settings.
func (s *set) whenSet(err error) error {
	if !s.strict {
		return nil
	}
	return err
}
