package catalog

import (
	"context"
	"strconv"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/access"
	"github.com/capstan-cd/capstan/hub/audit"
	"github.com/capstan-cd/capstan/hub/catalog/transact"
	"github.com/capstan-cd/capstan/shared/fault"
)

// maxPodLogsKey of SettingsMap is of how many pods logs are shown at once
// (API-21).
const (
	maxPodLogsKey     = "server.maxPodLogsToRender"
	maxPodLogsDefault = 10
)

// BeginLogs checks that the caller may read logs of an application, and records
// that they do (RBAC-08). It returns of how many pods at once.
func (c *Catalog) BeginLogs(ctx context.Context, by hub.Caller, namespace, name string, of hub.ObjectRef, container string) (v View, maxPods int, err error) {
	err = c.write(ctx, by, func(ctx context.Context, w *writer) error {
		if v, err = w.streamed(ctx, namespace, name, access.Logs, access.Get); err != nil {
			return err
		}
		if maxPods, err = w.maxPodLogs(ctx); err != nil {
			return err
		}
		detail := map[string]any{}
		if of.Kind != "" {
			detail["object"] = kindAndName(of)
		}
		if container != "" {
			detail["container"] = container
		}
		w.Note("stream-begin", access.Logs, objectOf(v.Application), "", nil, detail)
		return nil
	})
	return v, maxPods, err
}

// EndLogs records the end of a stream of logs, and why the hub ended it.
func (c *Catalog) EndLogs(ctx context.Context, by hub.Caller, v View, reason string) error {
	return c.parts.Service.Record(ctx, by, audit.Entry{
		Action: "stream-end", Resource: access.Logs, Object: objectOf(v.Application), Result: audit.Allowed, Reason: reason,
	})
}

// MayStream reports by its error whether the caller still has a right on an
// application that an open stream needs.
func (c *Catalog) MayStream(ctx context.Context, by hub.Caller, namespace, name, resource, action string) error {
	return c.ofApplication(ctx, by, namespace, name, func(_ context.Context, r *reader, a hub.Application) error {
		return r.Need(resource, action, objectOf(a))
	})
}

// streamed finds an application whose streams the caller may open. The right is
// that on the resource, beside that to see the application.
func (w *writer) streamed(ctx context.Context, namespace, name, resource, action string) (View, error) {
	a, err := w.Application(ctx, namespace, name)
	if err != nil {
		return View{}, transact.Hide(err, access.Applications, title(namespace, name))
	}
	if !w.Rights.Check(access.Applications, access.Get, objectOf(a)) {
		return View{}, w.Refuse(resource, action, objectOf(a), transact.Missing(access.Applications, title(namespace, name)))
	}
	if err := w.Need(resource, action, objectOf(a)); err != nil {
		return View{}, err
	}
	views, err := w.views(ctx, []hub.Application{a})
	if err != nil {
		return View{}, err
	}
	if views[0].On == nil {
		return View{}, fault.With(fault.New(fault.Conflict, "its destination stands for no cluster"), "application "+title(namespace, name), "its conditions say why")
	}
	return views[0], nil
}

func (r *reader) maxPodLogs(ctx context.Context) (int, error) {
	set, err := r.SettingsOf(ctx, []string{hub.SettingsMap}, []string{maxPodLogsKey}, "")
	if err != nil {
		return 0, err
	}
	for _, s := range set {
		if n, err := strconv.Atoi(s.Value); err == nil && n > 0 {
			return n, nil
		}
	}
	return maxPodLogsDefault, nil
}
