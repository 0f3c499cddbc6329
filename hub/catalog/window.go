package catalog

import (
	"context"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/syncwindow"
)

// A WindowState is how the sync windows of an application stand at a moment.
type WindowState struct {
	At       time.Time
	Assigned []syncwindow.State // those that concern the application
	CanSync  bool               // a person may
	Auto     WindowDecision
	Manual   WindowDecision
	Heal     WindowDecision
}

// A WindowDecision is whether one use is allowed, why not, and when that changes.
type WindowDecision struct {
	Allowed    bool
	Reason     string     // why it is not allowed
	NextChange *time.Time // when that changes; nil: not in sight
}

// Windows returns the state of an application's sync windows (WIN-10).
func (c *Catalog) Windows(ctx context.Context, by hub.Caller, namespace, name string) (WindowState, error) {
	var out WindowState
	err := c.read(ctx, by, func(ctx context.Context, r *reader) error {
		a, err := r.visible(ctx, namespace, name)
		if err != nil {
			return err
		}
		spec, err := hub.DecodeSpec(a.Spec)
		if err != nil {
			return err
		}
		p, err := r.EffectiveProject(ctx, a.Project)
		if fault.KindOf(err) == fault.Missing {
			p, err = hub.Project{Spec: []byte("{}")}, nil // its condition says so
		}
		if err != nil {
			return err
		}
		project, err := p.Effective()
		if err != nil {
			return err
		}
		out = windowState(project.WindowsOf(a.Name, spec.Destination), c.parts.Service.Now())
		return nil
	})
	return out, err
}

func windowState(windows []syncwindow.Window, now time.Time) WindowState {
	set := syncwindow.New(windows)
	out := WindowState{At: now, Assigned: syncwindow.States(windows, now)}
	out.Auto, out.Manual, out.Heal = windowDecision(set, syncwindow.Automated, now), windowDecision(set, syncwindow.Manual, now), windowDecision(set, syncwindow.Heal, now)
	out.CanSync = out.Manual.Allowed
	return out
}

func windowDecision(set syncwindow.Set, u syncwindow.Use, now time.Time) WindowDecision {
	d := WindowDecision{Allowed: set.Allows(u, now), Reason: set.Why(u, now)}
	if at, ok := set.NextChange(u, now); ok {
		d.NextChange = &at
	}
	return d
}

// ProjectWindows returns the state of all sync windows of a project, in their
// order.
func (c *Catalog) ProjectWindows(ctx context.Context, by hub.Caller, name string) ([]syncwindow.State, error) {
	p, err := c.Project(ctx, by, name)
	if err != nil {
		return nil, err
	}
	spec, err := hub.DecodeProject(p.Spec)
	if err != nil {
		return nil, err
	}
	return syncwindow.States(spec.SyncWindows, c.parts.Service.Now()), nil
}
