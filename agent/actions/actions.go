// Package actions offers and runs actions on single live objects. Users request
// them through the hub, scripts define them, and the engine writes the change.
// The hub checks the user's rights; this package does not. An action runs only
// on objects of the named application. An action with one id runs at most once
// and runs to its end even if the caller disconnects; its result can be read
// afterwards. The daemon serves it on the link.
package actions

import (
	"context"
	"log/slog"
	"sync"
	"time"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/action"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/logkey"
	"github.com/capstan-cd/capstan/shared/manifest"
)

const (
	runFor      = 60 * time.Second // timeout of one action
	keepResults = 10 * time.Minute // what became of it
	maxRuns     = 512              // runs whose results are stored
)

// A Cluster reads and changes live objects.
type Cluster interface {
	// Belongs reports whether an application manages the object, or something
	// that owns it.
	Belongs(app string, key manifest.Key) bool
	// Read returns a live object of an application, without managedFields.
	Read(ctx context.Context, app string, key manifest.Key, version string) (*manifest.Object, error)
	// Act reads the object, calls do for the changes and writes them. Created
	// objects are marked with the request's id, within its limits.
	Act(ctx context.Context, wish *linkv1.RunActionRequest, key manifest.Key,
		do func(ctx context.Context, live *manifest.Object) ([]action.Change, error)) ([]*manifest.Object, error)
}

// A Server serves Acts.
type Server struct {
	linkv1.UnimplementedActsServer

	cluster Cluster
	actions *action.Actions
	hidden  func() []string // annotations of Secrets that scripts do not see
	log     *slog.Logger

	mu   sync.Mutex
	runs map[string]*run
}

// run is a requested action.
type run struct {
	began  time.Time
	done   chan struct{}
	answer *linkv1.RunActionResponse
	err    error
}

// New makes a server. Own returns the actions that users wrote for a kind,
// hidden the annotations of Secrets that are masked like their values. Both are
// called for each request.
func New(cluster Cluster, own func(group, kind string) (action.Set, bool), hidden func() []string, log *slog.Logger) *Server {
	return &Server{cluster: cluster, actions: action.New(own), hidden: hidden, log: log, runs: map[string]*run{}}
}

// ListActions returns the actions that an object offers now.
func (s *Server) ListActions(ctx context.Context, r *linkv1.ListActionsRequest) (*linkv1.ListActionsResponse, error) {
	key, err := s.object(r.GetObject())
	if err != nil {
		return nil, err
	}
	live, err := s.cluster.Read(ctx, r.GetObject().GetAppId(), key, r.GetObject().GetVersion())
	if err != nil {
		return nil, err
	}
	all, err := s.actions.List(ctx, blind(live, s.hidden()).Object)
	if err != nil {
		return nil, fault.With(err, key.Describe(), "")
	}
	out := &linkv1.ListActionsResponse{}
	for _, a := range all {
		o := &linkv1.OfferedAction{Name: a.Name, DisplayName: a.DisplayName, IconClass: a.Icon, Disabled: a.Disabled}
		for _, p := range a.Params {
			o.Params = append(o.Params, &linkv1.ActionParam{Name: p.Name, Value: p.Value, Type: p.Type, DefaultValue: p.Default})
		}
		out.Actions = append(out.Actions, o)
	}
	return out, nil
}

// object validates the request's object.
func (s *Server) object(o *linkv1.ActionObject) (manifest.Key, error) {
	key := manifest.Key{Group: o.GetGroup(), Kind: o.GetKind(), Namespace: o.GetNamespace(), Name: o.GetName()}
	if o.GetAppId() == "" || o.GetVersion() == "" || key.Kind == "" || key.Name == "" {
		return key, fault.New(fault.Invalid, "an object is asked for by application, group, version, kind and name")
	}
	if !s.cluster.Belongs(o.GetAppId(), key) {
		return key, fault.With(fault.New(fault.Missing, "it does not belong to the application"), key.Describe(), "")
	}
	return key, nil
}

// RunAction runs an action, or returns the result of one that was run.
func (s *Server) RunAction(ctx context.Context, r *linkv1.RunActionRequest) (*linkv1.RunActionResponse, error) {
	if r.GetId() == "" || r.GetAction() == "" {
		return nil, fault.New(fault.Invalid, "an action is asked for by id and name")
	}
	held, begun := s.held(r)
	if held == nil {
		return nil, fault.New(fault.Missing, "this agent has not been asked for the action, or was restarted since")
	}
	if begun {
		s.run(context.WithoutCancel(ctx), r, held) // it continues when the connection is lost
	}
	select {
	case <-held.done:
		return held.answer, held.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// held returns the run of an id and whether it is new. It returns none if the
// request only asks for a result and the id is unknown.
func (s *Server) held(r *linkv1.RunActionRequest) (held *run, begun bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if held, ok := s.runs[r.GetId()]; ok {
		return held, false
	}
	if r.GetRecall() {
		return nil, false
	}
	for id, old := range s.runs {
		if len(s.runs) >= maxRuns || time.Since(old.began) > keepResults {
			select {
			case <-old.done:
				delete(s.runs, id)
			default:
			}
		}
	}
	held = &run{began: time.Now(), done: make(chan struct{})}
	s.runs[r.GetId()] = held
	return held, true
}

func (s *Server) run(ctx context.Context, r *linkv1.RunActionRequest, held *run) {
	ctx, cancel := context.WithTimeout(ctx, runFor)
	defer cancel()
	defer close(held.done)
	held.err = fault.New(fault.Internal, "the action failed with an internal error") // unless the script returns it
	held.answer, held.err = s.execute(ctx, r)
	args := []any{"action", r.GetAction(), logkey.Kind, r.GetObject().GetKind(), logkey.Namespace, r.GetObject().GetNamespace(), "object", r.GetObject().GetName()}
	if held.err != nil {
		s.log.WarnContext(ctx, "action failed", append(args, logkey.Error, held.err)...)
		return
	}
	s.log.InfoContext(ctx, "action done", args...)
}

func (s *Server) execute(ctx context.Context, r *linkv1.RunActionRequest) (*linkv1.RunActionResponse, error) {
	key, err := s.object(r.GetObject())
	if err != nil {
		return nil, err
	}
	written, err := s.cluster.Act(ctx, r, key,
		func(ctx context.Context, live *manifest.Object) ([]action.Change, error) {
			seen := blind(live, s.hidden())
			changes, err := s.actions.Run(ctx, seen.Object, r.GetAction(), r.GetParams())
			return rebase(changes, seen, live), err
		})
	if err != nil {
		return nil, fault.With(err, key.Describe(), "")
	}
	out := &linkv1.RunActionResponse{}
	for _, o := range written {
		k := manifest.KeyOf(o)
		out.Changes = append(out.Changes, &linkv1.ActionChange{
			Created: k != key, Group: k.Group, Version: manifest.Version(o), Kind: k.Kind, Namespace: k.Namespace, Name: k.Name,
		})
	}
	return out, nil
}

// blind returns a Secret for a script, without values and hidden annotations:
// users see the script's result and errors.
func blind(o *manifest.Object, hidden []string) *manifest.Object {
	if key := manifest.KeyOf(o); key.Group != "" || key.Kind != "Secret" {
		return o
	}
	out := o.DeepCopy()
	for _, field := range []string{"data", "stringData"} {
		if values, ok := out.Object[field].(map[string]any); ok {
			for k := range values {
				values[k] = ""
			}
		}
	}
	if notes := out.GetAnnotations(); len(notes) > 0 {
		delete(notes, "kubectl.kubernetes.io/last-applied-configuration")
		for _, name := range hidden {
			delete(notes, name)
		}
		out.SetAnnotations(notes)
	}
	return out
}

// rebase converts changes of what the script saw to changes of the live object.
func rebase(changes []action.Change, seen, live *manifest.Object) []action.Change {
	if seen == live {
		return changes
	}
	for i, c := range changes {
		if c.Create {
			continue
		}
		for _, field := range []string{"data", "stringData"} {
			values, _ := c.Object[field].(map[string]any)
			was, _ := live.Object[field].(map[string]any)
			for k, v := range values {
				if _, held := was[k]; held && v == "" {
					values[k] = was[k]
				}
			}
		}
		c.Object = unhide(c.Object, seen, live)
		changes[i] = c
	}
	return changes
}

// unhide returns the annotations that the script did not see.
func unhide(changed map[string]any, seen, live *manifest.Object) map[string]any {
	o := &manifest.Object{Object: changed}
	shown, notes := seen.GetAnnotations(), o.GetAnnotations()
	for name, value := range live.GetAnnotations() {
		_, visible := shown[name]
		if _, set := notes[name]; visible || set {
			continue
		}
		if notes == nil {
			notes = map[string]string{}
		}
		notes[name] = value
	}
	if len(notes) > 0 {
		o.SetAnnotations(notes)
	}
	return o.Object
}
