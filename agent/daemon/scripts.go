package daemon

import (
	"context"

	"github.com/capstan-cd/capstan/agent/rule"
	"github.com/capstan-cd/capstan/agent/settings"
	"github.com/capstan-cd/capstan/shared/action"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// assessHealth is the health of an object; an empty state means that it has
// none.
func (a *agent) assessHealth(o *manifest.Object) (state, message string) {
	s, ok := a.settings.rules.Of(context.Background(), o) // a rule ends by its own limits
	if !ok {
		return "", ""
	}
	return s.State, s.Message
}

// healthScripts are the tenant's current rules.
func healthScripts(now *settings.Current) func(group, kind string) (rule.Script, bool) {
	return func(group, kind string) (rule.Script, bool) {
		s, ok := now.Get().HealthScript(group, kind)
		return rule.Script{Lua: s.Lua, OpenLibs: s.OpenLibs}, ok
	}
}

// actionScripts are the tenant's current actions.
func actionScripts(now *settings.Current) func(group, kind string) (action.Set, bool) {
	return func(group, kind string) (action.Set, bool) {
		all := now.Get().Actions(group, kind)
		if all == nil {
			return action.Set{}, false
		}
		health, _ := now.Get().HealthScript(group, kind)
		set := action.Set{
			Discovery: all.GetDiscoveryLua(), MergeBuiltin: all.GetMergeBuiltin(), OpenLibs: health.OpenLibs, Scripts: map[string]string{},
		}
		for _, d := range all.GetDefinitions() {
			set.Scripts[d.GetName()] = d.GetLua()
		}
		return set, true
	}
}
