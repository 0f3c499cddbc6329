// Package action runs resource actions on live objects, such as the restart of
// a Deployment or the promotion of a Rollout. Scripts define which actions
// there are and what each does; some are bundled, others are the users'. The
// package never changes a cluster: it returns what to patch or create, and the
// agent does it. A script can change only the object that it was run for, and
// create others; everything else is refused here.
package action

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/capstan-cd/capstan/shared/bundled"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lua"
)

const (
	maxActions  = 200 // of one object
	maxChanges  = 50  // by one action
	maxCompiled = 256
	maxName     = 253
)

// A Set is what users wrote for a kind.
type Set struct {
	Discovery    string            // script that says which actions there are
	Scripts      map[string]string // by name of the action
	MergeBuiltin bool              // the bundled actions are offered, too
	OpenLibs     bool
}

// An Action is one that an object offers.
type Action struct {
	Name        string
	DisplayName string
	Icon        string // class of an icon font, from the script
	Disabled    bool   // it cannot be run in the current state of the object
	Params      []Param
}

// A Param is a value that a user passes to an action.
type Param struct {
	Name    string
	Value   string
	Type    string
	Default string
}

// A Change is one result of an action: an object's new content, or an object to
// create.
type Change struct {
	Create bool
	Object map[string]any
}

// Actions finds and runs actions. Many goroutines may use it.
type Actions struct {
	own     func(group, kind string) (Set, bool)
	bundled *bundled.Catalogue

	mu       sync.Mutex
	compiled map[string]*lua.Script
}

// New makes actions. Own returns the actions that users wrote for a kind; it is
// called each time.
func New(own func(group, kind string) (Set, bool)) *Actions {
	if own == nil {
		own = func(string, string) (Set, bool) { return Set{}, false }
	}
	return &Actions{own: own, bundled: bundled.New(), compiled: map[string]*lua.Script{}}
}

// List returns the actions that an object offers, by name.
func (a *Actions) List(ctx context.Context, o map[string]any) ([]Action, error) {
	key := identify(o)
	set, own := a.own(key.group, key.kind)
	var scripts []string
	if own {
		scripts = append(scripts, set.Discovery)
	}
	if source, ok := a.bundled.Discovery(key.group, key.kind); ok && (!own || set.MergeBuiltin) {
		scripts = append(scripts, source)
	}
	out := map[string]Action{}
	for _, source := range scripts {
		if strings.TrimSpace(source) == "" {
			continue
		}
		result, err := a.run(ctx, "discovery of actions", source, lua.Call{Object: o, Open: set.OpenLibs})
		if err != nil {
			return nil, err
		}
		if err := offered(result, out); err != nil {
			return nil, err
		}
	}
	list := make([]Action, 0, len(out))
	for _, x := range out {
		list = append(list, x)
	}
	slices.SortFunc(list, func(x, y Action) int { return strings.Compare(x.Name, y.Name) })
	return list, nil
}

// Run returns the changes of one action. An action that the object does not
// offer is fault.Missing, one that it offers but not now fault.Conflict.
func (a *Actions) Run(ctx context.Context, o map[string]any, name string, params map[string]string) ([]Change, error) {
	all, err := a.List(ctx, o)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(all, func(x Action) bool { return x.Name == name })
	key := identify(o)
	switch {
	case at < 0:
		return nil, fault.With(fault.New(fault.Missing, "it offers no action %q", name), key.String(), "see which it offers: "+names(all))
	case all[at].Disabled:
		return nil, fault.With(fault.New(fault.Conflict, "the action %q cannot be run as it is now", name), key.String(), "")
	}
	if err := known(all[at], params); err != nil {
		return nil, fault.With(err, key.String(), "")
	}
	set, _ := a.own(key.group, key.kind)
	source, ok := set.Scripts[name]
	if !ok {
		source, ok = a.bundled.Action(key.group, key.kind, name)
	}
	if !ok {
		return nil, fault.With(fault.New(fault.Missing, "the action %q is offered, but it has no script", name), key.String(),
			"add it to the definitions in resource.customizations.actions")
	}
	result, err := a.run(ctx, "action "+name, source, lua.Call{Object: o, Params: filled(all[at], params), Open: set.OpenLibs})
	if err != nil {
		return nil, err
	}
	return changes(result, o)
}

func names(all []Action) string {
	if len(all) == 0 {
		return "none"
	}
	out := make([]string, len(all))
	for i, a := range all {
		out[i] = a.Name
	}
	return strings.Join(out, ", ")
}

// known refuses parameters that an action does not declare, if it declares any.
func known(a Action, params map[string]string) error {
	if len(a.Params) == 0 {
		return nil
	}
	for name := range params {
		if !slices.ContainsFunc(a.Params, func(p Param) bool { return p.Name == name }) {
			return fault.New(fault.Invalid, "the action %q has no parameter %q", a.Name, name)
		}
	}
	return nil
}

// filled adds an action's default parameters.
func filled(a Action, params map[string]string) map[string]string {
	out := map[string]string{}
	for _, p := range a.Params {
		if p.Default != "" {
			out[p.Name] = p.Default
		}
	}
	for k, v := range params {
		out[k] = v
	}
	return out
}

func (a *Actions) run(ctx context.Context, name, source string, c lua.Call) (any, error) {
	script, err := a.compile(name, source)
	if err != nil {
		return nil, err
	}
	return script.Run(ctx, c)
}

func (a *Actions) compile(name, source string) (*lua.Script, error) {
	key := name + "\x00" + source
	a.mu.Lock()
	defer a.mu.Unlock()
	if s, ok := a.compiled[key]; ok {
		return s, nil
	}
	s, err := lua.Compile(name, source)
	if err != nil {
		return nil, err
	}
	if len(a.compiled) >= maxCompiled {
		clear(a.compiled)
	}
	a.compiled[key] = s
	return s, nil
}

// offered reads what a discovery script returned into the actions that are
// not there yet.
func offered(result any, into map[string]Action) error {
	table, ok := result.(map[string]any)
	if !ok {
		return fault.New(fault.Invalid, "the discovery of actions returned no table of actions by name")
	}
	for name, v := range table {
		if _, held := into[name]; held {
			continue
		}
		if name == "" || len(name) > maxName || len(into) >= maxActions {
			return fault.New(fault.Invalid, "the discovery of actions returned an action without a good name, or more than %d", maxActions)
		}
		fields, _ := v.(map[string]any)
		a := Action{Name: name, DisplayName: text(fields["displayName"]), Icon: text(fields["iconClass"])}
		a.Disabled, _ = fields["disabled"].(bool)
		list, _ := fields["params"].([]any)
		for _, p := range list {
			f, _ := p.(map[string]any)
			if n := text(f["name"]); n != "" {
				a.Params = append(a.Params, Param{Name: n, Value: text(f["value"]), Type: text(f["type"]), Default: text(f["default"])})
			}
		}
		into[name] = a
	}
	return nil
}

// text converts a string, a number or a bool to text.
func text(v any) string {
	switch v := v.(type) {
	case nil, map[string]any, []any:
		return ""
	case string:
		return v
	default:
		return fmt.Sprint(v)
	}
}
