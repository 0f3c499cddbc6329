// Package notifystore lends the store to the notifications, as hub/notify/stage
// asks for it. It holds no rule: what it stores was decided by others, and one
// decision is one transaction. The daemon and tests of the API make one.
package notifystore

import (
	"context"
	"log/slog"
	"strconv"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/notify"
	"github.com/capstan-cd/capstan/hub/notify/stage"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/logkey"
)

const (
	// mostTransitions of an application are decided about in one transaction.
	mostTransitions = 100
	// defaultProcessors is how many messages of a tenant one replica sends at once.
	defaultProcessors = 4
	mostProcessors    = 16
)

// A Store is the store as the notifications see it.
type Store struct {
	db  *store.DB
	log *slog.Logger
	// due says that work of a kind is due; nil: the next poll finds it.
	due func(kind string)
}

// New makes it.
func New(db *store.DB, log *slog.Logger, due func(kind string)) *Store { return &Store{db, log, due} }

func (s *Store) Waiting(ctx context.Context, tenant hub.TenantID, app hub.ApplicationID) (w stage.Waiting, err error) {
	err = s.db.ReadTenant(ctx, tenant, func(ctx context.Context, t *store.Tenant) error {
		w = stage.Waiting{}
		found, err := t.Transitions(ctx, app, mostTransitions)
		if err != nil || len(found) == 0 {
			w.Gone = true
			return err
		}
		w.Transitions, w.More = found, len(found) == mostTransitions
		if w.Known, err = t.Notified(ctx, app); err != nil {
			return err
		}
		if w.App, err = subject(ctx, t, app, found); err != nil {
			return err
		}
		project, err := t.Project(ctx, w.App.Project)
		if err == nil {
			w.Project = &project
		} else if fault.KindOf(err) != fault.Missing {
			return err
		}
		if w.Operations, err = operationsOf(ctx, t, w.Known, found); err != nil {
			return err
		}
		if w.Room, err = room(ctx, t, time.Now()); err != nil {
			return err
		}
		w.Settings, err = notifySettings(ctx, t)
		return err
	})
	return w, err
}

// subject is the application that transitions are of, which may be there no more.
func subject(ctx context.Context, t *store.Tenant, id hub.ApplicationID, found []hub.Transition) (hub.Application, error) {
	app, err := t.ApplicationByID(ctx, id)
	if fault.KindOf(err) != fault.Missing {
		return app, err
	}
	for _, x := range found {
		if x.Removed != nil {
			return *x.Removed, nil
		}
	}
	return hub.Application{ID: id}, nil
}

// operationsOf are the operations that transitions are about.
func operationsOf(ctx context.Context, t *store.Tenant, known *hub.NotifiedState, found []hub.Transition) (map[hub.OperationID]hub.Operation, error) {
	var ids []hub.OperationID
	if known != nil && known.Operation != "" {
		ids = append(ids, known.Operation)
	}
	for _, x := range found {
		if x.Operation != "" {
			ids = append(ids, x.Operation)
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	return t.OperationsByID(ctx, ids)
}

// room is how many messages a tenant may send in this hour; negative: any number.
func room(ctx context.Context, t *store.Tenant, now time.Time) (int64, error) {
	quotas, err := t.Quotas(ctx)
	if err != nil || quotas[hub.QuotaNotifications] == 0 {
		return -1, err
	}
	sent, err := t.DeliveriesSince(ctx, now.Add(-time.Hour))
	return max(0, quotas[hub.QuotaNotifications]-sent), err
}

// notifySettings reads what a tenant has set about notifications.
func notifySettings(ctx context.Context, t *store.Tenant) (stage.Settings, error) {
	out := stage.Settings{Values: map[string]string{}, Processors: defaultProcessors}
	found, err := t.SettingsOf(ctx, []string{hub.NotificationsMap}, nil, "")
	if err != nil {
		return out, err
	}
	for _, s := range found {
		out.Values[s.Key] = s.Value
	}
	params, err := t.SettingValues(ctx, hub.ParamsMap, []string{hub.ProcessorsKey})
	if err != nil {
		return out, err
	}
	if n, err := strconv.Atoi(params[hub.ProcessorsKey]); err == nil {
		out.Processors = min(max(1, n), mostProcessors)
	}
	out.Secrets, err = t.SettingSecrets(ctx, hub.NotificationsSecret)
	return out, err
}

func (s *Store) Settings(ctx context.Context, tenant hub.TenantID) (out stage.Settings, err error) {
	err = s.db.ReadTenant(ctx, tenant, func(ctx context.Context, t *store.Tenant) error {
		out, err = notifySettings(ctx, t)
		return err
	})
	return out, err
}

func (s *Store) Decided(ctx context.Context, item hub.WorkItem, d stage.Decided) error {
	err := s.db.InTenant(ctx, item.Tenant, func(ctx context.Context, t *store.Tenant) error {
		held, err := t.Held(ctx, item.Kind, map[string]int64{item.Key: item.Token})
		if err != nil {
			return err
		}
		if !held[item.Key] {
			return fault.New(fault.Conflict, "another replica has taken up the transitions")
		}
		if err := t.PutNotified(ctx, d.Application, d.State, d.Transitions); err != nil {
			return err
		}
		for _, one := range d.Deliveries {
			if _, err := t.PutDelivery(ctx, one); err != nil {
				return err
			}
		}
		return nil
	})
	if fault.KindOf(err) == fault.Conflict {
		s.log.InfoContext(ctx, "transitions are decided about by another replica", logkey.Tenant, item.Tenant)
		return nil
	}
	if err == nil && len(d.Deliveries) > 0 && s.due != nil {
		s.due(hub.WorkDeliver)
	}
	return err
}

func (s *Store) Letter(ctx context.Context, tenant hub.TenantID, id hub.DeliveryID) (l stage.Letter, err error) {
	err = s.db.ReadTenant(ctx, tenant, func(ctx context.Context, t *store.Tenant) error {
		if l.Delivery, err = t.Delivery(ctx, id); err != nil {
			return err
		}
		if l.After, err = t.EarlierDelivery(ctx, id); err != nil {
			return err
		}
		if l.Message, err = t.DeliveryMessage(ctx, id); err != nil {
			return err
		}
		l.Settings, err = notifySettings(ctx, t)
		return err
	})
	return l, err
}

func (s *Store) Attempted(ctx context.Context, tenant hub.TenantID, d hub.Delivery) error {
	return s.db.InTenant(ctx, tenant, func(ctx context.Context, t *store.Tenant) error { return t.UpdateDelivery(ctx, d) })
}

// Thread and PutThread remember where conversations began.
func (s *Store) Thread(ctx context.Context, tenant hub.TenantID, of hub.Thread) (out hub.Thread, err error) {
	err = s.db.ReadTenant(ctx, tenant, func(ctx context.Context, t *store.Tenant) error {
		out, err = t.Thread(ctx, of)
		return err
	})
	return out, err
}

func (s *Store) PutThread(ctx context.Context, tenant hub.TenantID, of hub.Thread) error {
	return s.db.InTenant(ctx, tenant, func(ctx context.Context, t *store.Tenant) error { return t.PutThread(ctx, of) })
}

// Lookups read what functions of templates ask for, of the application's own
// source.
func (s *Store) Lookups(tenant hub.TenantID, in notify.Input) notify.Lookups {
	return notify.Lookups{Commit: func(revision string) (notify.Commit, error) {
		ctx, cancel := context.WithTimeout(context.Background(), lookupTime)
		defer cancel()
		return s.commit(ctx, tenant, in.App, revision)
	}}
}

// lookupTime bounds how long a function of a template reads.
const lookupTime = 5 * time.Second

// commit is what the history of an application says of a revision.
func (s *Store) commit(ctx context.Context, tenant hub.TenantID, app hub.Application, revision string) (out notify.Commit, err error) {
	err = s.db.ReadTenant(ctx, tenant, func(ctx context.Context, t *store.Tenant) error {
		info, found, err := t.CommitOf(ctx, app.ID, revision)
		if err == nil && !found {
			return fault.New(fault.Missing, "nothing is known of the revision %s", revision[:min(len(revision), 40)])
		}
		out = notify.Commit{Message: info.Message, Author: info.Author, Date: info.At}
		return err
	})
	return out, err
}
