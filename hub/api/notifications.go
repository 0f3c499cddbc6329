package api

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/access"
	"github.com/capstan-cd/capstan/hub/api/gen"
	"github.com/capstan-cd/capstan/hub/catalog/validation"
	"github.com/capstan-cd/capstan/hub/notify"
	"github.com/capstan-cd/capstan/hub/notify/stage"
	"github.com/capstan-cd/capstan/shared/apimodel"
	"github.com/capstan-cd/capstan/shared/fault"
)

// Notifications tries triggers and templates out.
type Notifications interface {
	Config(ctx context.Context, tenant hub.TenantID) (*notify.Config, error)
	Trigger(ctx context.Context, of stage.Subject, name, text string) (notify.Trigger, []notify.Result, error)
	Template(ctx context.Context, of stage.Subject, name, text string, to notify.Destination) (hub.Delivery, error)
}

// notifications returns what the caller's tenant has set, and whether the caller
// may see all of it.
func (s *Server) notifications(ctx context.Context) (*notify.Config, bool, error) {
	by := callerOf(ctx)
	sees, err := s.Catalog.SeesNotificationSettings(ctx, by)
	if err != nil {
		return nil, false, err
	}
	c, err := s.Notifications.Config(ctx, by.Tenant)
	return c, sees, err
}

// ListNotificationServices answers the names of services.
func (s *Server) ListNotificationServices(ctx context.Context, _ gen.ListNotificationServicesRequestObject) (gen.ListNotificationServicesResponseObject, error) {
	c, sees, err := s.notifications(ctx)
	if err != nil {
		return nil, err
	}
	out := gen.ListNotificationServices200JSONResponse{Items: []apimodel.NotificationService{}}
	for _, name := range slices.Sorted(maps.Keys(c.Services)) {
		out.Items = append(out.Items, apimodel.NotificationService{Name: name, Type: c.Services[name].Type})
	}
	if sees && len(c.Problems) > 0 {
		out.Problems = c.Problems
	}
	return out, nil
}

// ListNotificationTriggers answers the triggers.
func (s *Server) ListNotificationTriggers(ctx context.Context, _ gen.ListNotificationTriggersRequestObject) (gen.ListNotificationTriggersResponseObject, error) {
	c, sees, err := s.notifications(ctx)
	if err != nil {
		return nil, err
	}
	out := gen.ListNotificationTriggers200JSONResponse{Items: []apimodel.NotificationTrigger{}}
	for _, name := range slices.Sorted(maps.Keys(c.Triggers)) {
		t := c.Triggers[name]
		item := apimodel.NotificationTrigger{Name: name, Builtin: c.BuiltInTrigger(name), Default: slices.Contains(c.DefaultTriggers, name)}
		for _, condition := range t {
			if item.Description == "" {
				item.Description = condition.Description
			}
		}
		if item.Builtin || sees {
			item.Text = t.Text()
		}
		out.Items = append(out.Items, item)
	}
	return out, nil
}

// ListNotificationTemplates answers the templates.
func (s *Server) ListNotificationTemplates(ctx context.Context, _ gen.ListNotificationTemplatesRequestObject) (gen.ListNotificationTemplatesResponseObject, error) {
	c, sees, err := s.notifications(ctx)
	if err != nil {
		return nil, err
	}
	out := gen.ListNotificationTemplates200JSONResponse{Items: []apimodel.NotificationTemplate{}}
	for _, name := range slices.Sorted(maps.Keys(c.Templates)) {
		item := apimodel.NotificationTemplate{Name: name, Builtin: c.BuiltInTemplate(name)}
		if item.Builtin || sees {
			item.Text = c.Templates[name].Text()
		}
		out.Items = append(out.Items, item)
	}
	return out, nil
}

// subject finds the application that something is tried for.
func (s *Server) subject(ctx context.Context, name, action string) (stage.Subject, error) {
	by := callerOf(ctx)
	key := applicationKey(name)
	of, err := s.Catalog.TriedFor(ctx, by, key.Namespace, key.Name, action)
	return stage.Subject{Tenant: by.Tenant, App: of.Application, Project: of.Project}, err
}

// applicationKey reads NAMESPACE/NAME, or a name alone.
func applicationKey(text string) hub.ApplicationKey {
	namespace, name, found := strings.Cut(text, "/")
	if !found {
		return hub.ApplicationKey{Namespace: validation.DefaultNamespace, Name: text}
	}
	return hub.ApplicationKey{Namespace: namespace, Name: name}
}

// TryNotificationTrigger evaluates a trigger.
func (s *Server) TryNotificationTrigger(ctx context.Context, r gen.TryNotificationTriggerRequestObject) (gen.TryNotificationTriggerResponseObject, error) {
	of, err := s.subject(ctx, r.Body.Application, access.Get)
	if err != nil {
		return nil, err
	}
	trigger, results, err := s.Notifications.Trigger(ctx, of, r.Name, r.Body.Text)
	if err != nil {
		return nil, err
	}
	out := gen.TryNotificationTrigger200JSONResponse{Items: []apimodel.TriggerResult{}}
	for i, x := range results {
		out.Items = append(out.Items, apimodel.TriggerResult{
			Condition: x.Key, When: trigger[i].When, Triggered: x.Triggered, OncePer: x.OncePer, Templates: append([]string{}, x.Templates...), Problem: x.Problem,
		})
	}
	return out, nil
}

// TryNotificationTemplate renders a template, and sends it if that is asked for.
func (s *Server) TryNotificationTemplate(ctx context.Context, r gen.TryNotificationTemplateRequestObject) (gen.TryNotificationTemplateResponseObject, error) {
	of, err := s.subject(ctx, r.Body.Application, access.Update)
	if err != nil {
		return nil, err
	}
	d, err := s.Notifications.Template(ctx, of, r.Name, r.Body.Text, notify.Destination{Service: r.Body.Service, Recipient: r.Body.Recipient})
	if err != nil {
		return nil, err
	}
	if d.State == hub.DeliveryFailed {
		return nil, fault.New(fault.Invalid, "%s", d.Reason)
	}
	if r.Body.Send {
		d, err = s.Catalog.SendTried(ctx, callerOf(ctx), d)
	} else {
		d.ID = ""
	}
	return gen.TryNotificationTemplate200JSONResponse(presentDelivery(d)), err
}

// ListDeliveries answers a page of messages.
func (s *Server) ListDeliveries(ctx context.Context, r gen.ListDeliveriesRequestObject) (gen.ListDeliveriesResponseObject, error) {
	p := r.Params
	limit := p.Limit
	if limit == 0 {
		limit = defaultDeliveries
	}
	f := hub.DeliveryFilter{State: hub.DeliveryState(p.State), Service: p.Service, Trigger: p.Trigger, Before: hub.DeliveryID(p.Before), Limit: limit + 1}
	var app *hub.ApplicationKey
	if p.Application != "" {
		key := applicationKey(p.Application)
		app = &key
	}
	all, err := s.Catalog.Deliveries(ctx, callerOf(ctx), f, app)
	if err != nil {
		return nil, err
	}
	out := gen.ListDeliveries200JSONResponse{}
	if len(all) > limit {
		all = all[:limit]
		out.Next = string(all[limit-1].ID)
	}
	out.Items = collect(all, presentDelivery)
	return out, nil
}

const defaultDeliveries = 50

// GetDelivery answers one message.
func (s *Server) GetDelivery(ctx context.Context, r gen.GetDeliveryRequestObject) (gen.GetDeliveryResponseObject, error) {
	d, err := s.Catalog.Delivery(ctx, callerOf(ctx), hub.DeliveryID(r.Id))
	return gen.GetDelivery200JSONResponse(presentDelivery(d)), err
}

// Redeliver sends a message once more.
func (s *Server) Redeliver(ctx context.Context, r gen.RedeliverRequestObject) (gen.RedeliverResponseObject, error) {
	d, err := s.Catalog.Redeliver(ctx, callerOf(ctx), hub.DeliveryID(r.Id))
	return gen.Redeliver201JSONResponse(presentDelivery(d)), err
}

func presentDelivery(d hub.Delivery) apimodel.Delivery {
	out := apimodel.Delivery{
		Id: string(d.ID), Namespace: d.Namespace, Name: d.Name, Project: d.Project, Trigger: d.Trigger, Templates: append([]string{}, d.Templates...), Service: d.Service,
		ServiceType: d.ServiceType, Recipient: d.Recipient, State: apimodel.DeliveryState(d.State), Reason: d.Reason, Message: map[string]any{},
		Redelivers: string(d.Redelivers), CreatedAt: d.CreatedAt.UTC(), DueAt: at(d.DueAt), FinishedAt: at(d.FinishedAt),
	}
	_ = json.Unmarshal(d.Shown, &out.Message) // it was written by the hub
	out.Attempts = collect(d.Attempts, func(a hub.DeliveryAttempt) apimodel.DeliveryAttempt {
		return apimodel.DeliveryAttempt{At: a.At.UTC(), TookMs: a.TookMS, Requests: a.Requests, Status: a.Status, Answer: a.Answer, Error: a.Error}
	})
	return out
}
