package apply

import (
	"time"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
)

// Settings are a tenant's settings for comparison and tracking. The zero value
// is the default.
type Settings struct {
	Ignore         []*linkv1.IgnoreRule // for all applications, before their own
	Tenant         string               // id, written to each object; objects with another id are not changed
	InstallationID string               // written to each object; what carries another one is left alone
	InstanceLabel  string               // label with which Argo CD may name its applications; empty: the default
	Hidden         []string             // annotations of Secrets that are masked like their values
	Marks          string               // Argo CD's marks, written in addition to ours: annotation, annotation+label or label; empty: none
	// Impersonate makes the agent act for each application as the service account
	// that its project names, and ImpersonateOptional as itself where it names none.
	Impersonate, ImpersonateOptional bool

	WaveDelay time.Duration // pause between two waves, unless an application sets another
}

// tenantSettings returns the current settings.
func (e *Engine) tenantSettings() Settings {
	if e.Settings == nil {
		return Settings{}
	}
	return e.Settings()
}

// Hidden returns the annotations of Secrets whose values are hidden from users.
func (e *Engine) Hidden() []string { return e.tenantSettings().Hidden }
