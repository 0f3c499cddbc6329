package apply

import (
	"time"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
)

// Settings are a tenant's settings for comparison and tracking. The zero value
// is the default.
type Settings struct {
	Ignore         []*linkv1.IgnoreRule // for all applications, before their own
	Tenant         string               // id, written to each object; what carries another one is left alone
	InstallationID string               // written to each object; what carries another one is left alone
	InstanceLabel  string               // by which Argo CD may name its applications; empty: the usual one
	Hidden         []string             // annotations of Secrets that are masked like their values
	Marks          string               // Argo CD's marks written beside ours: annotation, annotation+label or label; empty: none
	WaveDelay      time.Duration        // between two waves, unless an application says otherwise
}

// tenantSettings returns the settings as they are now.
func (e *Engine) tenantSettings() Settings {
	if e.Settings == nil {
		return Settings{}
	}
	return e.Settings()
}

// Hidden returns the annotations of Secrets that people must not see.
func (e *Engine) Hidden() []string { return e.tenantSettings().Hidden }
