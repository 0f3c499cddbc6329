package catalog

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/access"
	"github.com/capstan-cd/capstan/hub/catalog/listing"
	"github.com/capstan-cd/capstan/hub/catalog/transact"
	"github.com/capstan-cd/capstan/hub/catalog/validation"
	"github.com/capstan-cd/capstan/shared/appquery"
	"github.com/capstan-cd/capstan/shared/fault"
)

const (
	// mostBulk is how many applications a bulk request may have.
	mostBulk = 20_000
	// mostOpenBulks is how many of a tenant may be under way.
	mostOpenBulks = 10
	// bulkPart is how many applications are done before others have their turn.
	bulkPart = 100
	// bulkParallel is how many of them at once.
	bulkParallel = 4
	// plannedBulk is how many applications a dry run names.
	plannedBulk = 200
	// bulkAttempts is how often an application is tried that was changed, or
	// could not be reached, at that moment.
	bulkAttempts = 3
	shownBulks   = 50
	maxBulkText  = 500
)

// A BulkRequest asks to do the same to many applications: to those that are
// named, or to those of the caller that all queries have.
type BulkRequest struct {
	Action  hub.BulkAction
	Options hub.BulkOptions
	Names   []hub.ApplicationKey
	Query   string // as it was written
	Queries []appquery.Query
	DryRun  bool
}

// bulkRight is the right on an application that an action takes.
func bulkRight(a hub.BulkAction) string {
	switch a {
	case hub.BulkSync:
		return access.Sync
	case hub.BulkRefresh:
		return access.Get
	case hub.BulkDelete:
		return access.Delete
	}
	return access.Update
}

// StartBulk stores a bulk request, which begins at once. With a dry run nothing
// is stored; the items say what would be refused, and what would be done.
func (c *Catalog) StartBulk(ctx context.Context, by hub.Caller, q BulkRequest) (hub.Bulk, []hub.BulkItem, error) {
	b := hub.Bulk{Action: q.Action, Options: q.Options, Query: q.Query, By: by}
	var items []hub.BulkItem
	err := c.writeOr(ctx, by, q.DryRun, func(ctx context.Context, w *writer) error {
		if err := w.May(access.Applications, bulkRight(q.Action)); err != nil {
			return w.Refuse(access.Applications, bulkRight(q.Action), "*", err)
		}
		chosen, err := c.bulkItems(ctx, w, by, q)
		if err != nil {
			return err
		}
		if len(chosen) > mostBulk {
			return fault.With(fault.New(fault.Exceeded, "the request is about %d applications, and %d are the limit", len(chosen), mostBulk), "", "narrow the query, and ask several times")
		}
		b.Counts = map[hub.BulkState]int{}
		for _, i := range chosen {
			b.Counts[i.State]++
		}
		if q.DryRun {
			slices.SortStableFunc(chosen, func(a, b hub.BulkItem) int { return -strings.Compare(string(a.State), string(b.State)) })
			items = chosen[:min(len(chosen), plannedBulk)]
			return nil
		}
		open, err := w.OpenBulks(ctx)
		if err != nil {
			return err
		}
		if open >= mostOpenBulks {
			return fault.With(fault.New(fault.Exceeded, "%d bulk requests are under way", open), "", "wait until one has finished, or cancel one")
		}
		b.ID, b.CreatedAt = hub.NewID[hub.BulkID](), w.Now
		b.Counts = map[hub.BulkState]int{hub.BulkPending: len(chosen)} // what is refused is so when its turn comes
		if err := w.CreateBulk(ctx, b, chosen); err != nil {
			return err
		}
		w.Note("bulk "+string(q.Action), access.Applications, "*", q.Options.Reason, nil, map[string]any{
			"bulk": b.ID, "query": q.Query, "applications": len(chosen), "options": q.Options,
		})
		w.Due = append(w.Due, hub.WorkBulk)
		return w.Enqueue(ctx, hub.WorkBulk, string(b.ID), w.Now, false)
	})
	return b, items, err
}

// bulkItems are the applications of a request, with what the caller's rights say
// of each.
func (c *Catalog) bulkItems(ctx context.Context, w *writer, by hub.Caller, q BulkRequest) ([]hub.BulkItem, error) {
	var out []hub.BulkItem
	add := func(key hub.ApplicationKey, refusal error) {
		i := hub.BulkItem{Ordinal: len(out) + 1, Namespace: key.Namespace, Name: key.Name, State: hub.BulkPending}
		if refusal != nil {
			i.State, i.Message = hub.BulkRefused, fault.Sentence(refusal)
		}
		out = append(out, i)
	}
	check := func(object string) error {
		if w.Rights.Check(access.Applications, bulkRight(q.Action), object) {
			return nil
		}
		return transact.Denied(access.Rule{Resource: access.Applications, Action: bulkRight(q.Action), Object: object})
	}
	if q.Queries == nil {
		found, err := w.ApplicationsNamed(ctx, q.Names)
		if err != nil {
			return nil, err
		}
		there := map[hub.ApplicationKey]hub.Application{}
		for _, a := range found {
			if w.Rights.Check(access.Applications, access.Get, objectOf(a)) {
				there[hub.ApplicationKey{Namespace: a.Namespace, Name: a.Name}] = a
			}
		}
		for _, key := range unique(q.Names) {
			if a, ok := there[key]; ok {
				add(key, check(objectOf(a)))
			} else {
				add(key, transact.Missing(access.Applications, title(key.Namespace, key.Name)))
			}
		}
		return out, nil
	}
	page, _, err := c.lists.Page(ctx, by.Tenant, w.ListReader, w.Rights, listing.Request{
		Queries: q.Queries, Me: []string{by.Username}, Order: listing.Order{By: "name"}, Limit: mostBulk + 1,
	}, w.Now)
	for _, row := range page.Rows {
		add(hub.ApplicationKey{Namespace: row.Namespace, Name: row.Name}, check(row.Object))
	}
	return out, err
}

// Bulks lists the newest bulk requests of the caller.
func (c *Catalog) Bulks(ctx context.Context, by hub.Caller) ([]hub.Bulk, error) {
	var out []hub.Bulk
	err := c.read(ctx, by, func(ctx context.Context, r *reader) (err error) {
		out, err = r.Tx.Bulks(ctx, hub.BulkOwner(by), shownBulks)
		return err
	})
	return out, err
}

// Bulk returns a bulk request of the caller with some of its applications, as
// BulkItems of the store. There is one more than limit if there are more.
func (c *Catalog) Bulk(ctx context.Context, by hub.Caller, id hub.BulkID, state hub.BulkState, after, limit int) (hub.Bulk, []hub.BulkItem, error) {
	var b hub.Bulk
	var items []hub.BulkItem
	err := c.read(ctx, by, func(ctx context.Context, r *reader) (err error) {
		if b, err = r.ownBulk(ctx, by, id); err == nil {
			items, err = r.BulkItems(ctx, id, state, after, limit+1)
		}
		return err
	})
	return b, items, err
}

// ownBulk returns a request to who asked for it. Others do not learn of it.
func (r *reader) ownBulk(ctx context.Context, by hub.Caller, id hub.BulkID) (hub.Bulk, error) {
	b, err := r.Tx.Bulk(ctx, id)
	if err == nil && b.Owner() != hub.BulkOwner(by) {
		return hub.Bulk{}, fault.New(fault.Missing, "there is no such bulk request")
	}
	return b, err
}

// CancelBulk ends a bulk request of the caller. What is done stays done.
func (c *Catalog) CancelBulk(ctx context.Context, by hub.Caller, id hub.BulkID) (hub.Bulk, error) {
	var b hub.Bulk
	err := c.write(ctx, by, func(ctx context.Context, w *writer) (err error) {
		if b, err = w.ownBulk(ctx, by, id); err != nil || b.FinishedAt != nil {
			return err
		}
		if err := w.Tx.CancelBulk(ctx, id, "cancelled by "+by.Username, w.Now); err != nil {
			return err
		}
		w.Note("bulk cancel", access.Applications, "*", "", nil, map[string]any{"bulk": id})
		b, err = w.Tx.Bulk(ctx, id)
		return err
	})
	return b, err
}

// AdvanceBulk does a part of a bulk request, and reports whether it is over. Each
// application is done once, whoever else works on the request or dies over it.
func (c *Catalog) AdvanceBulk(ctx context.Context, tenant hub.TenantID, id hub.BulkID) (over bool, err error) {
	var b hub.Bulk
	var items []hub.BulkItem
	gone := ""
	err = c.parts.Service.Store.ReadTenant(ctx, tenant, func(ctx context.Context, tx transact.Tx) (err error) {
		if b, err = tx.Bulk(ctx, id); err != nil || b.FinishedAt != nil {
			return err
		}
		if b.By, gone, err = asNow(ctx, tx, b.By, c.parts.Service.Now()); err != nil {
			return err
		}
		items, err = tx.BulkItems(ctx, id, hub.BulkPending, 0, bulkPart)
		return err
	})
	if fault.KindOf(err) == fault.Missing {
		return true, nil
	}
	if err != nil || b.FinishedAt != nil {
		return err == nil, err
	}
	store := c.parts.Service.Store
	if gone != "" {
		err := store.InTenant(ctx, tenant, func(ctx context.Context, tx transact.Tx) error {
			return tx.CancelBulk(ctx, id, gone, c.parts.Service.Now())
		})
		return err == nil, err
	}
	c.bulkPart(ctx, b, items)
	err = store.InTenant(ctx, tenant, func(ctx context.Context, tx transact.Tx) error {
		if err := tx.NoteBulkItems(ctx, id, slices.DeleteFunc(items, func(i hub.BulkItem) bool { return i.State == hub.BulkPending })); err != nil {
			return err
		}
		if err := tx.FinishBulk(ctx, id, c.parts.Service.Now()); err != nil {
			return err
		}
		b, err := tx.Bulk(ctx, id)
		over = err == nil && b.FinishedAt != nil
		return err
	})
	return over, err
}

// asNow is a caller with what their account is now. Gone is why they may not go
// on.
func asNow(ctx context.Context, tx transact.Tx, by hub.Caller, now time.Time) (_ hub.Caller, gone string, _ error) {
	ended, err := tokenEnded(ctx, tx, by, now)
	switch {
	case err != nil:
		return by, "", err
	case ended:
		return by, "the token of " + by.Username + " has been revoked or has expired", nil
	}
	if by.User == "" || by.ProjectRole != "" {
		return by, "", nil
	}
	u, err := tx.User(ctx, by.User)
	switch {
	case fault.KindOf(err) == fault.Missing:
		return by, "the account of " + by.Username + " is gone", nil
	case err != nil:
		return by, "", err
	case u.Disabled:
		return by, "the account of " + by.Username + " is disabled", nil
	}
	by.Roles = u.Roles
	return by, "", nil
}

// tokenEnded reports whether somebody called with a token that has been revoked
// or has expired since. A session may end: who signs out wants the work done.
func tokenEnded(ctx context.Context, tx transact.Tx, by hub.Caller, now time.Time) (bool, error) {
	if by.Via != "token" {
		return false, nil
	}
	id := hub.TokenID(by.Credential)
	_, err := tx.ExchangedToken(ctx, id, now)
	if fault.KindOf(err) != fault.Missing {
		return false, err
	}
	if by.ProjectRole != "" {
		t, err := tx.RoleToken(ctx, id)
		if fault.KindOf(err) == fault.Missing {
			return true, nil
		}
		return err == nil && !now.Before(t.ExpiresAt), err
	}
	all, err := tx.Tokens(ctx, by.User)
	return err == nil && !slices.ContainsFunc(all, func(t hub.APIToken) bool {
		return t.ID == id && (t.ExpiresAt == nil || now.Before(*t.ExpiresAt))
	}), err
}

// bulkPart does the items, some at once. One that cannot be settled now stays
// pending.
func (c *Catalog) bulkPart(ctx context.Context, b hub.Bulk, items []hub.BulkItem) {
	next := make(chan *hub.BulkItem)
	var workers sync.WaitGroup
	for range min(bulkParallel, len(items)) {
		workers.Go(func() {
			for i := range next {
				c.bulkItem(ctx, b, i)
			}
		})
	}
	for i := range items {
		if ctx.Err() != nil {
			break
		}
		next <- &items[i]
	}
	close(next)
	workers.Wait()
}

// bulkItem does one item, and says in it what became of that.
func (c *Catalog) bulkItem(ctx context.Context, b hub.Bulk, i *hub.BulkItem) {
	by := b.By
	by.Bulk = hub.BulkMark{ID: b.ID, Ordinal: i.Ordinal}
	for attempt := 1; ; attempt++ {
		op, message, err := c.bulkAct(ctx, by, b, i.Namespace, i.Name)
		if err == nil {
			i.State, i.Operation, i.Message = hub.BulkDone, op, message
			return
		}
		if ctx.Err() != nil {
			return
		}
		var known *fault.Error
		stale := errors.As(err, &known) && known.Code == transact.CodeStale
		if attempt < bulkAttempts && (stale || fault.KindOf(err) == fault.Offline) {
			continue
		}
		i.State, i.Message = hub.BulkFailed, validation.Shorten(fault.Sentence(err))
		if len(i.Message) > maxBulkText {
			i.Message = strings.ToValidUTF8(i.Message[:maxBulkText], "") + "…"
		}
		if kind := fault.KindOf(err); kind == fault.Denied || kind == fault.Missing {
			i.State = hub.BulkRefused
		}
		return
	}
}

// bulkAct does to one application what a request asks for.
func (c *Catalog) bulkAct(ctx context.Context, by hub.Caller, b hub.Bulk, namespace, name string) (op hub.OperationID, message string, err error) {
	o := b.Options
	switch b.Action {
	case hub.BulkSync:
		made, err := c.Sync(ctx, by, namespace, name, hub.SyncRequest{Options: hub.OperationOptions{Prune: o.Prune}, Reason: o.Reason})
		return made.ID, "", err
	case hub.BulkRefresh:
		_, err := c.Refresh(ctx, by, namespace, name, o.Hard)
		return "", "", err
	case hub.BulkDelete:
		left, err := c.DeleteApplication(ctx, by, namespace, name, o.Cascade, o.Propagation)
		if left != nil {
			message = "its objects are being deleted"
		}
		return "", message, err
	case hub.BulkPause, hub.BulkResume:
		message, err := c.automate(ctx, by, namespace, name, b.Action == hub.BulkResume, o.Reason)
		return "", message, err
	}
	return "", "", fault.New(fault.Invalid, "there is no bulk action %q", b.Action)
}

// automate switches the automation of an application on or off. On also ends the
// pause that a rollback began.
func (c *Catalog) automate(ctx context.Context, by hub.Caller, namespace, name string, on bool, reason string) (message string, err error) {
	a, err := c.ForUpdate(ctx, by, namespace, name)
	if err != nil {
		return "", err
	}
	spec, changed, err := automated(a.Spec, on)
	if err != nil {
		return "", err
	}
	pinned := on && a.Pin != nil
	if !changed && !pinned {
		return "nothing was to be done", c.settleBulk(ctx, by)
	}
	first := by
	if pinned {
		first.Bulk = hub.BulkMark{} // the item is done when both are
	}
	if changed {
		next := hub.Application{Spec: spec, Meta: hub.Meta{Namespace: a.Namespace, Name: a.Name, Labels: a.Labels, Annotations: a.Annotations, Finalizers: a.Finalizers}}
		if _, _, _, err := c.PutApplication(ctx, first, next, PutOptions{Update: true, Expect: a.Version}); err != nil {
			return "", err
		}
	}
	if pinned {
		_, err = c.Resume(ctx, by, namespace, name, cmp.Or(reason, "bulk request"))
	}
	return "", err
}

// settleBulk marks an item done for which nothing had to be written.
func (c *Catalog) settleBulk(ctx context.Context, by hub.Caller) error {
	return c.write(ctx, by, func(context.Context, *writer) error { return nil })
}

// automated is a spec whose automation is on or off, and whether it is another one.
// What has no automation stays without.
func automated(spec json.RawMessage, on bool) (json.RawMessage, bool, error) {
	var whole, policy, automation map[string]json.RawMessage
	if err := json.Unmarshal(spec, &whole); err != nil {
		return nil, false, fault.Wrap(fault.Invalid, err, "the spec cannot be read")
	}
	absent := func(text json.RawMessage) bool { return len(text) == 0 || string(text) == "null" }
	if absent(whole["syncPolicy"]) {
		return spec, false, nil
	}
	if err := json.Unmarshal(whole["syncPolicy"], &policy); err != nil {
		return nil, false, fault.Wrap(fault.Invalid, err, "spec.syncPolicy cannot be read")
	}
	if absent(policy["automated"]) {
		return spec, false, nil
	}
	if err := json.Unmarshal(policy["automated"], &automation); err != nil {
		return nil, false, fault.Wrap(fault.Invalid, err, "spec.syncPolicy.automated cannot be read")
	}
	off := string(automation["enabled"]) == "false"
	if off != on {
		return spec, false, nil
	}
	if on {
		delete(automation, "enabled")
	} else {
		automation["enabled"] = json.RawMessage("false")
	}
	var err error
	if policy["automated"], err = json.Marshal(automation); err != nil {
		return nil, false, err
	}
	if whole["syncPolicy"], err = json.Marshal(policy); err != nil {
		return nil, false, err
	}
	out, err := json.Marshal(whole)
	return out, true, err
}
