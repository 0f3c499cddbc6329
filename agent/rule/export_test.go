package rule

import (
	"context"

	"github.com/capstan-cd/capstan/agent/health"
	"github.com/capstan-cd/capstan/shared/lua"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// Bundled asks the bundled rule alone, even of an object that is being
// deleted, as its own cases do.
func (r *Rules) Bundled(ctx context.Context, o *manifest.Object) health.Status {
	key := manifest.KeyOf(o)
	source, _ := r.bundled.Health(key.Group, key.Kind)
	s, _ := r.runRule(ctx, withoutSchemas(o), Script{Lua: source, OpenLibs: true}, lua.Limits{Time: bundledTime})
	return s
}
