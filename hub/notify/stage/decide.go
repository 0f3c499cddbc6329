package stage

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/notify"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/logkey"
)

// Config reads the settings of a tenant, with the context that the hub adds.
func Config(values, added map[string]string) *notify.Config {
	c := notify.Read(values)
	for k, v := range added {
		if _, own := c.Context[k]; !own {
			c.Context[k] = v
		}
	}
	return c
}

// decide decides about the oldest transitions of an application.
func (s *Stage) decide(ctx context.Context, item hub.WorkItem) (time.Time, error) {
	app := hub.ApplicationID(item.Key)
	w, err := s.store.Waiting(ctx, item.Tenant, app)
	if err != nil || w.Gone {
		return time.Time{}, err
	}
	if due := notify.Unsettled(w.Transitions, s.clock.Now()); !due.IsZero() && !w.More {
		return due, nil
	}
	c := Config(w.Values, s.context)
	w.Input.Secrets = w.Settings.Secrets
	w.Lookups = s.lookups(item.Tenant, w.Input)
	d := c.Decide(w.Input)
	for e, n := range d.Evaluated {
		s.counts.Evaluated(e.Trigger, e.Triggered, n)
	}
	for _, problem := range d.Problems {
		s.log.InfoContext(ctx, "a subscription has no effect", logkey.Tenant, item.Tenant, logkey.Application, app, logkey.Reason, problem)
	}
	out := Decided{Application: app, State: &d.State, Deliveries: s.deliveries(c, w, d)}
	for _, t := range w.Transitions {
		out.Transitions = append(out.Transitions, t.ID)
		if t.Removed != nil {
			out.State = nil
		}
	}
	if err := s.store.Decided(ctx, item, out); err != nil {
		return time.Time{}, err
	}
	if w.More {
		return s.clock.Now(), nil
	}
	return time.Time{}, nil
}

// deliveries renders messages.
func (s *Stage) deliveries(c *notify.Config, w Waiting, d notify.Decision) []hub.Delivery {
	var out []hub.Delivery
	now, room := s.clock.Now(), w.Room
	for _, m := range d.Messages {
		made := Render(c, m, w.App, w.Settings.Secrets, now)
		if made.State == hub.DeliveryPending && room == 0 {
			end := now
			made.State, made.Reason, made.FinishedAt = hub.DeliverySkipped, "the tenant has sent as many messages as its quota "+string(hub.QuotaNotifications)+" allows", &end
		} else if room > 0 {
			room--
		}
		out = append(out, made)
	}
	return out
}

// Render makes the delivery of a message. One that cannot be rendered has failed.
func Render(c *notify.Config, m notify.Due, a hub.Application, secrets map[string]string, now time.Time) hub.Delivery {
	d := hub.Delivery{
		ID: hub.NewID[hub.DeliveryID](), Dedup: m.Key, Application: a.ID, Namespace: a.Namespace, Name: a.Name, Project: a.Project, Trigger: m.Trigger,
		Templates: m.Templates, Service: m.To.Service, Recipient: m.To.Recipient, State: hub.DeliveryPending, CreatedAt: now,
		Message: json.RawMessage("{}"), Shown: json.RawMessage("{}"),
	}
	message, service, err := render(c, m)
	d.ServiceType = service.Type
	if err == nil {
		d.Message, err = json.Marshal(message)
	}
	if err != nil {
		end := now
		d.State, d.Reason, d.FinishedAt = hub.DeliveryFailed, fault.Sentence(err), &end
		return d
	}
	d.Shown = json.RawMessage(notify.Mask(service.Hidden(secrets)).Replace(string(d.Message)))
	if !json.Valid(d.Shown) {
		d.Shown = json.RawMessage("{}")
	}
	return d
}

func render(c *notify.Config, m notify.Due) (notify.Message, notify.Service, error) {
	service, ok := c.Services[m.To.Service]
	if !ok {
		return nil, service, fault.With(fault.New(fault.Invalid, "there is no service %q", m.To.Service), "", "set service."+m.To.Service+" in "+hub.NotificationsMap)
	}
	var templates []notify.Template
	for _, name := range m.Templates {
		t, ok := c.Templates[name]
		if !ok {
			return nil, service, fault.With(fault.New(fault.Invalid, "there is no template %q", name), "", "set template."+name+" in "+hub.NotificationsMap)
		}
		templates = append(templates, t)
	}
	message, err := notify.Render(templates, service, m.Vars.Template(service, m.To.Recipient))
	return message, service, err
}

// Names are the names of a configuration, in order.
func Names[T any](all map[string]T) []string { return slices.Sorted(maps.Keys(all)) }
