package daemon

import (
	"context"

	"github.com/capstan-cd/capstan/agent/apply"
	"github.com/capstan-cd/capstan/agent/watch"
)

// reconsider applies changed settings.
func (a *agent) reconsider(ctx context.Context) {
	a.customize()
	now := a.settings.current.Get()
	a.tree.Exclude(now.ExcludedChild)
	relabel := a.tree.Label(now.CustomLabels())
	a.engine.Reconsider(ctx)
	a.engine.ReassessHealth()
	a.watcher.Reconsider()
	a.watcher.AskAgain()
	a.orphans.AskAgain()
	if relabel {
		a.watcher.Again()
	}
}

// respect is how kinds that the agent may not list are left out.
func (a *agent) respect() watch.Respect {
	return watch.Respect(a.settings.current.Get().RespectRBAC())
}

// tenant is the id of the tenant that the agent belongs to; empty before it is
// enrolled, when nothing is applied.
func (a *agent) tenant() string {
	id, err := identities{a.secret}.Load(context.Background())
	if err != nil {
		return ""
	}
	return id.Tenant()
}

// customize converts the settings into what the engine reads at every event.
func (a *agent) customize() {
	now := a.settings.current.Get()
	a.settings.engine.Store(&apply.Settings{
		Tenant: a.tenant(),
		Ignore: now.IgnoreDifferences(), InstallationID: now.InstallationID(), InstanceLabel: now.InstanceLabelKey(),
		Hidden: now.SensitiveAnnotations(), Marks: now.Marks(), WaveDelay: now.WaveDelay(a.Config.WaveDelay),
		Impersonate: now.Impersonate(), ImpersonateOptional: now.ImpersonateOptional(),
	})
}
