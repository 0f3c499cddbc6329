package settings

// Keys of argocd-cm about impersonation (IMP-01).
const (
	impersonationKey         = "application.sync.impersonation.enabled"
	impersonationEnforcedKey = "application.sync.impersonation.enforced"
)

func (s *set) readImpersonation(_ string, t text) error {
	on, err := t.truth()
	s.out.Impersonate = on && err == nil
	return err
}

func (s *set) readImpersonationEnforced(_ string, t text) error {
	on, err := t.truth()
	s.out.ImpersonateOptional = !on && err == nil
	return err
}

func impersonation() []Known {
	return []Known{
		cm(impersonationKey, "Whether agents act for an application as the service account that its project names in destinationServiceAccounts.", "true", true, (*set).readImpersonation),
		cm(impersonationEnforcedKey, "Whether an application for which the project names no account is refused; otherwise the agent acts for it as itself. true, unless it is set.", "false", true, (*set).readImpersonationEnforced),
	}
}
