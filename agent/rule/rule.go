// Package rule computes the health of objects: by users' scripts, then by the
// bundled ones for custom kinds, then by the rules in Go of agent/health. It
// sends no requests and changes no object. The agent calls it for every event.
// The same object and script always have the same health. A script that fails
// makes only its object Unknown.
package rule

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/capstan-cd/capstan/agent/health"
	"github.com/capstan-cd/capstan/shared/bundled"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lua"
	"github.com/capstan-cd/capstan/shared/manifest"
)

const (
	maxCompiled = 512              // compiled scripts in the cache
	maxExceeded = 1024             // stored objects whose script exceeded a limit
	rest        = 15 * time.Second // before such a script is run for the same object again
	bundledTime = 5 * time.Second  // limit of a bundled rule, which is known to end
	maxMessage  = 4 << 10          // bytes of a message
)

// A Script is a user's rule.
type Script struct {
	Lua      string
	OpenLibs bool // it may use the standard libraries
}

// Rules compute health by users' scripts, then by the bundled rules for custom
// kinds, then by the rules in Go (HLT-07). Many goroutines may use them.
type Rules struct {
	own     func(group, kind string) (Script, bool)
	bundled *bundled.Catalogue

	mu       sync.Mutex
	compiled map[string]*compiled
	exceeded map[string]exceeded // by uid
}

type compiled struct {
	once   sync.Once
	script *lua.Script
	err    error
}

// exceeded is an object whose script has recently exceeded a limit.
type exceeded struct {
	script *compiled
	until  time.Time
	status health.Status
}

// New makes rules. Own returns a user's script for a kind; it is called each
// time, so that changed scripts apply at once.
func New(own func(group, kind string) (Script, bool)) *Rules {
	if own == nil {
		own = func(string, string) (Script, bool) { return Script{}, false }
	}
	return &Rules{own: own, bundled: bundled.New(), compiled: map[string]*compiled{}, exceeded: map[string]exceeded{}}
}

// Of returns the health of one live object. ok is false if it has none
// (HLT-05). A script that fails makes the object Unknown, with the script's
// error as the message.
func (r *Rules) Of(ctx context.Context, o *manifest.Object) (s health.Status, ok bool) {
	if s, ok = health.Leaving(o); ok {
		return s, true
	}
	key := manifest.KeyOf(o)
	if own, found := r.own(key.Group, key.Kind); found {
		return r.runRule(ctx, o, own, lua.Limits{})
	}
	if source, found := r.bundled.Health(key.Group, key.Kind); found {
		return r.runRule(ctx, withoutSchemas(o), Script{Lua: source, OpenLibs: true}, lua.Limits{Time: bundledTime})
	}
	return health.Of(o)
}

// withoutSchemas removes the schemas of a CustomResourceDefinition, which no
// bundled rule reads and which are most of its size.
func withoutSchemas(o *manifest.Object) *manifest.Object {
	if o.GetKind() != "CustomResourceDefinition" {
		return o
	}
	out := map[string]any{}
	for k, v := range o.Object {
		if k != "spec" {
			out[k] = v
		}
	}
	return &manifest.Object{Object: out}
}

func (r *Rules) runRule(ctx context.Context, o *manifest.Object, s Script, l lua.Limits) (health.Status, bool) {
	c := r.compile(s.Lua)
	if c.err != nil {
		return health.Status{State: health.Unknown, Message: fault.Sentence(c.err)}, true
	}
	uid := string(o.GetUID())
	if held, yes := r.hasExceeded(uid, c); yes {
		return held, true
	}
	result, err := c.script.Run(ctx, lua.Call{Object: bare(o), Open: s.OpenLibs, Limits: l})
	if err != nil {
		status := health.Status{State: health.Unknown, Message: fault.Sentence(err)}
		if fault.KindOf(err) == fault.Exceeded {
			r.tire(uid, c, status)
		}
		return status, true
	}
	return readResult(result)
}

// bare returns an object without its managedFields, which are large and do not
// affect health, and a Secret without its values, because users see the
// message.
func bare(o *manifest.Object) map[string]any {
	meta, _ := o.Object["metadata"].(map[string]any)
	secret := o.GetKind() == "Secret" && o.GetAPIVersion() == "v1"
	if _, has := meta["managedFields"]; !has && !secret {
		return o.Object
	}
	out := maps.Clone(o.Object)
	slim := maps.Clone(meta)
	delete(slim, "managedFields")
	if secret {
		delete(slim, "annotations")
		for _, field := range []string{"data", "stringData"} {
			values, _ := o.Object[field].(map[string]any)
			names := make(map[string]any, len(values))
			for name := range values {
				names[name] = ""
			}
			out[field] = names
		}
	}
	out["metadata"] = slim
	return out
}

// readResult reads what a rule returned (HLT-09): a table with status and
// message. Without a table, or without a status, there is no health.
func readResult(result any) (health.Status, bool) {
	if result == nil {
		return health.Status{}, false
	}
	table, ok := result.(map[string]any)
	if !ok {
		return health.Status{State: health.Unknown, Message: "the health script returned no table with status and message"}, true
	}
	state, given := table["status"].(string)
	message, _ := table["message"].(string)
	if len(message) > maxMessage {
		message = message[:maxMessage]
	}
	switch {
	case len(table) == 0:
		return health.Status{}, false
	case health.Known(state):
		return health.Status{State: state, Message: message}, true
	case !given || state == "":
		return health.Status{State: health.Unknown, Message: "the health script returned no status"}, true
	}
	return health.Status{State: health.Unknown, Message: "the health script returned the status " + quoted(state) + ", which there is none of"}, true
}

func quoted(s string) string {
	const most = 40
	if len(s) > most {
		s = s[:most] + "…"
	}
	return `"` + s + `"`
}

// compile returns a script ready to run, or why there is none.
func (r *Rules) compile(source string) *compiled {
	r.mu.Lock()
	c, ok := r.compiled[source]
	if !ok {
		if len(r.compiled) >= maxCompiled {
			clear(r.compiled)
		}
		c = &compiled{}
		r.compiled[source] = c
	}
	r.mu.Unlock()
	c.once.Do(func() { c.script, c.err = lua.Compile("health script", source) })
	return c
}

// hasExceeded returns the recent result for an object whose script exceeded a
// limit: such a script is expensive, and there can be many events.
func (r *Rules) hasExceeded(uid string, c *compiled) (health.Status, bool) {
	if uid == "" {
		return health.Status{}, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	t, ok := r.exceeded[uid]
	if !ok || t.script != c {
		return health.Status{}, false
	}
	if time.Now().After(t.until) {
		delete(r.exceeded, uid)
		return health.Status{}, false
	}
	return t.status, true
}

func (r *Rules) tire(uid string, c *compiled, s health.Status) {
	if uid == "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.exceeded) >= maxExceeded {
		clear(r.exceeded)
	}
	r.exceeded[uid] = exceeded{c, time.Now().Add(rest), s}
}
