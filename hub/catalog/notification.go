package catalog

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/access"
	"github.com/capstan-cd/capstan/hub/catalog/transact"
	"github.com/capstan-cd/capstan/hub/catalog/validation"
	"github.com/capstan-cd/capstan/shared/fault"
)

// pagesAtOnce bounds how many deliveries are read to fill a page with those that
// a caller may see.
const pagesAtOnce = 20

// notificationSettings is what policies call all settings of notifications.
func notificationSettings() string { return validation.SettingName(hub.NotificationsMap, "*") }

// SeesNotificationSettings reports whether the caller may see all of them.
func (c *Catalog) SeesNotificationSettings(ctx context.Context, by hub.Caller) (may bool, err error) {
	err = c.read(ctx, by, func(_ context.Context, r *reader) error {
		may = r.Rights.Check(access.Settings, access.Get, notificationSettings())
		return nil
	})
	return may, err
}

// TriedFor returns an application that the caller may see, for somebody who may
// change settings with action: what they try can read all of it.
func (c *Catalog) TriedFor(ctx context.Context, by hub.Caller, namespace, name, action string) (Linked, error) {
	var out Linked
	err := c.ofApplication(ctx, by, namespace, name, func(ctx context.Context, r *reader, a hub.Application) error {
		if !r.Rights.Check(access.Settings, action, notificationSettings()) {
			return transact.Denied(access.Rule{Resource: access.Settings, Action: action, Object: notificationSettings()})
		}
		out.Application = a
		project, err := r.Tx.Project(ctx, a.Project)
		if err == nil {
			out.Project = &project
		} else if fault.KindOf(err) != fault.Missing {
			return err
		}
		return nil
	})
	return out, err
}

// Deliveries returns the newest messages about applications that the caller may
// see. Whoever may see settings sees those about applications that are gone, too.
func (c *Catalog) Deliveries(ctx context.Context, by hub.Caller, f hub.DeliveryFilter, app *hub.ApplicationKey) ([]hub.Delivery, error) {
	var out []hub.Delivery
	limit := f.Limit
	err := c.read(ctx, by, func(ctx context.Context, r *reader) error {
		out = nil
		if err := r.May(access.Applications, access.Get); err != nil {
			return err
		}
		if app != nil {
			a, err := r.Tx.Application(ctx, app.Namespace, app.Name)
			if fault.KindOf(err) == fault.Missing {
				return nil
			}
			if err != nil {
				return err
			}
			f.Application = a.ID
		}
		all := r.Rights.Check(access.Settings, access.Get, notificationSettings())
		for range pagesAtOnce {
			found, err := r.Tx.Deliveries(ctx, f)
			if err != nil {
				return err
			}
			for _, d := range found {
				if all || r.Rights.Check(access.Applications, access.Get, object(d.Project, hub.ApplicationKey{Namespace: d.Namespace, Name: d.Name})) {
					out = append(out, d)
				}
			}
			if len(found) < f.Limit || len(out) >= limit {
				break
			}
			f.Before = found[len(found)-1].ID
		}
		out = out[:min(len(out), limit)]
		return nil
	})
	return out, err
}

// Delivery returns a message about an application that the caller may see.
func (c *Catalog) Delivery(ctx context.Context, by hub.Caller, id hub.DeliveryID) (hub.Delivery, error) {
	var out hub.Delivery
	err := c.read(ctx, by, func(ctx context.Context, r *reader) (err error) {
		out, err = r.delivery(ctx, id, access.Get)
		return err
	})
	return out, err
}

// delivery finds a message that the caller has a right on.
func (r *reader) delivery(ctx context.Context, id hub.DeliveryID, action string) (hub.Delivery, error) {
	d, err := r.Tx.Delivery(ctx, id)
	if err != nil {
		return d, err
	}
	place := object(d.Project, hub.ApplicationKey{Namespace: d.Namespace, Name: d.Name})
	settings := access.Get
	if action != access.Get {
		settings = access.Update
	}
	if r.Rights.Check(access.Settings, settings, notificationSettings()) || r.Rights.Check(access.Applications, action, place) {
		return d, nil
	}
	if r.Rights.Check(access.Applications, access.Get, place) {
		return d, transact.Denied(access.Rule{Resource: access.Applications, Action: action, Object: place})
	}
	return d, fault.New(fault.Missing, "there is no such delivery")
}

// Redeliver sends a message once more, as another delivery.
func (c *Catalog) Redeliver(ctx context.Context, by hub.Caller, id hub.DeliveryID) (hub.Delivery, error) {
	var out hub.Delivery
	err := c.write(ctx, by, func(ctx context.Context, w *writer) error {
		d, err := w.delivery(ctx, id, access.Update)
		if err != nil {
			return w.Refuse(access.Applications, access.Update, object(d.Project, hub.ApplicationKey{Namespace: d.Namespace, Name: d.Name}), err)
		}
		switch {
		case !d.State.Over():
			return fault.With(fault.New(fault.Conflict, "the message is still being sent"), "delivery "+string(id), "wait until it is over")
		case len(d.Attempts) == 0 && d.State == hub.DeliveryFailed:
			return fault.With(fault.New(fault.Invalid, "the message could not be made, so there is none to send"), "delivery "+string(id), "correct the template or the service")
		}
		if d.Message, err = w.DeliveryMessage(ctx, id); err != nil {
			return err
		}
		d.Redelivers = id
		out, err = w.deliver(ctx, d)
		if err == nil {
			w.Note("redeliver", access.Applications, object(d.Project, hub.ApplicationKey{Namespace: d.Namespace, Name: d.Name}), "", nil, map[string]any{"delivery": id, "service": d.Service, "recipient": d.Recipient})
		}
		return err
	})
	return out, err
}

// SendTried sends a message that somebody has tried out.
func (c *Catalog) SendTried(ctx context.Context, by hub.Caller, d hub.Delivery) (hub.Delivery, error) {
	var out hub.Delivery
	err := c.write(ctx, by, func(ctx context.Context, w *writer) (err error) {
		if !w.Rights.Check(access.Settings, access.Update, notificationSettings()) {
			return w.Refuse(access.Settings, access.Update, notificationSettings(), transact.Denied(access.Rule{Resource: access.Settings, Action: access.Update, Object: notificationSettings()}))
		}
		if out, err = w.deliver(ctx, d); err == nil {
			w.Note("try notification", access.Settings, notificationSettings(), "", nil, map[string]any{"templates": d.Templates, "service": d.Service, "recipient": d.Recipient})
		}
		return err
	})
	return out, err
}

// deliver stores a message as a new delivery that is due now.
func (w *writer) deliver(ctx context.Context, d hub.Delivery) (hub.Delivery, error) {
	quotas, err := w.Quotas(ctx)
	if err != nil {
		return d, err
	}
	if most := quotas[hub.QuotaNotifications]; most > 0 {
		sent, err := w.DeliveriesSince(ctx, w.Now.Add(-time.Hour))
		if err != nil {
			return d, err
		}
		if sent >= most {
			return d, hub.ErrQuota(hub.QuotaNotifications, most, sent+1)
		}
	}
	d.ID, d.State, d.Reason, d.Attempts, d.CreatedAt, d.DueAt, d.FinishedAt = hub.NewID[hub.DeliveryID](), hub.DeliveryPending, "", nil, w.Now, nil, nil
	d.Dedup = make([]byte, 32)
	_, _ = rand.Read(d.Dedup) // it never fails
	if _, err := w.PutDelivery(ctx, d); err != nil {
		return d, err
	}
	w.Due = append(w.Due, hub.WorkDeliver)
	return d, nil
}
