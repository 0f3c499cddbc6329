package daemon

import (
	"context"

	"github.com/capstan-cd/capstan/agent/apply"
)

// reconsider acts on settings that have changed.
func (a *agent) reconsider(ctx context.Context) {
	a.customize()
	a.tree.Exclude(a.settings.Get().ExcludedChild)
	a.engine.Reconsider(ctx)
	a.engine.Rejudge()
	a.watcher.Reconsider()
}

// customize makes of the settings what the engine asks for at every event.
func (a *agent) customize() {
	now := a.settings.Get()
	a.custom.Store(&apply.Custom{
		Ignore: now.IgnoreDifferences(), InstallationID: now.InstallationID(), InstanceLabel: now.InstanceLabelKey(),
		Hidden: now.SensitiveAnnotations(),
	})
}
