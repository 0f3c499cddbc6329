package action

import (
	"context"

	"github.com/capstan-cd/capstan/shared/lua"
)

// Force runs a bundled action whether or not the object offers it now.
func (a *Actions) Force(ctx context.Context, o map[string]any, name string, params map[string]string) ([]Change, error) {
	key := identify(o)
	source, _ := a.bundled.Action(key.group, key.kind, name)
	result, err := a.run(ctx, name, source, lua.Call{Object: o, Params: params})
	if err != nil {
		return nil, err
	}
	return changes(result, o)
}
