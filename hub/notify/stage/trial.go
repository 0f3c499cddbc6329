package stage

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/notify"
	"github.com/capstan-cd/capstan/shared/fault"
)

// A Trial evaluates triggers and templates for people, and sends nothing.
type Trial struct {
	settings interface {
		Settings(ctx context.Context, tenant hub.TenantID) (Settings, error)
	}
	lookups func(tenant hub.TenantID, in notify.Input) notify.Lookups
	added   map[string]string
}

// NewTrial makes one; url is the address of the console.
func NewTrial(store Store, lookups func(tenant hub.TenantID, in notify.Input) notify.Lookups, url string) *Trial {
	return &Trial{settings: store, lookups: lookups, added: map[string]string{"argocdUrl": url}}
}

// Config returns what a tenant has set.
func (t *Trial) Config(ctx context.Context, tenant hub.TenantID) (*notify.Config, error) {
	s, err := t.settings.Settings(ctx, tenant)
	if err != nil {
		return nil, err
	}
	return Config(s.Values, t.added), nil
}

// A Subject is the application that something is tried for.
type Subject struct {
	Tenant  hub.TenantID
	App     hub.Application
	Project *hub.Project
}

// Trigger evaluates a trigger for the present state of an application. A text
// takes the place of what is set.
func (t *Trial) Trigger(ctx context.Context, of Subject, name, text string) (notify.Trigger, []notify.Result, error) {
	s, err := t.settings.Settings(ctx, of.Tenant)
	if err != nil {
		return nil, nil, err
	}
	c := Config(s.Values, t.added)
	trigger, ok := c.Triggers[name]
	if text != "" {
		if trigger, err = notify.ReadTrigger(name, text); err != nil {
			return nil, nil, err
		}
	} else if !ok {
		return nil, nil, fault.New(fault.Missing, "there is no trigger %q", name)
	}
	return trigger, trigger.Run(t.vars(c, of, nil).Conditions()), nil
}

// Template renders a template for a recipient, as it would be sent now. A text
// takes the place of what is set. The delivery has failed if it cannot be rendered.
func (t *Trial) Template(ctx context.Context, of Subject, name, text string, to notify.Destination) (hub.Delivery, error) {
	s, err := t.settings.Settings(ctx, of.Tenant)
	if err != nil {
		return hub.Delivery{}, err
	}
	c := Config(s.Values, t.added)
	if text != "" {
		if c.Templates[name], err = notify.ReadTemplate(name, text); err != nil {
			return hub.Delivery{}, err
		}
	} else if _, ok := c.Templates[name]; !ok {
		return hub.Delivery{}, fault.New(fault.Missing, "there is no template %q", name)
	}
	if _, ok := c.Services[to.Service]; !ok {
		c.Services[to.Service] = notify.Service{Name: to.Service, Type: to.Service, Options: json.RawMessage("{}")}
	}
	key := make([]byte, 32)
	_, _ = rand.Read(key) // it never fails
	return Render(c, notify.Due{Templates: []string{name}, To: to, Key: key, Vars: t.vars(c, of, s.Secrets)}, of.App, s.Secrets, time.Now()), nil
}

func (t *Trial) vars(c *notify.Config, of Subject, secrets map[string]string) notify.Vars {
	in := notify.Input{App: of.App, Project: of.Project, Secrets: secrets}
	in.Lookups = t.lookups(of.Tenant, in)
	return c.Present(in)
}
