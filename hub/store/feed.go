package store

import (
	"context"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/encryption"
	"github.com/capstan-cd/capstan/shared/fault"
)

// The kinds of changes in a tenant's feed.
const (
	changeApplication = "application"
	changeResources   = "resources" // of the application with that id
	changeOperation   = "operation"
	changeCluster     = "cluster"
	changeRepository  = "repository"
	changeProject     = "project"

	changeApplicationSet = "applicationset"
)

// A touch is one thing that the transaction changed.
type touch struct{ kind, id string }

// changed puts a thing into the feed when the transaction commits, once.
func (t *Tenant) changed(kind, id string) { t.touch(kind, id, false) }

// removed adds to the feed that a thing was deleted.
func (t *Tenant) removed(kind, id string) { t.touch(kind, id, true) }

func (t *Tenant) touch(kind, id string, gone bool) {
	if t.touched == nil {
		t.touched = map[touch]bool{}
	}
	t.touched[touch{kind, id}] = gone
}

const (
	insertChanges = `
		INSERT INTO change (tenant_id, kind, ref, gone)
		SELECT $1, u.kind, u.ref, u.gone FROM unnest($2::text[], $3::uuid[], $4::boolean[]) AS u (kind, ref, gone)`

	// Rows of transactions below the oldest that still runs are complete:
	// nothing can appear before or between them any more.
	selectChanges = `
		SELECT c.xid::text, c.kind, c.ref, c.gone
		FROM   change c
		WHERE  c.tenant_id = @tenant
		  AND  (c.xid, c.kind, c.ref) > (@xid::text::xid8, @kind, @ref::uuid)
		  AND  c.xid < pg_snapshot_xmin(pg_current_snapshot())
		ORDER  BY c.xid, c.kind, c.ref
		LIMIT  @limit`
	selectForgotten = `
		SELECT o.feed_floor > $2::text::xid8 OR (o.feed_floor = $2::text::xid8 AND $3)
		FROM   organisation o
		WHERE  o.tenant_id = $1`
	// The end of the feed is the tenant's own last change: the database's
	// newest transaction would reveal other tenants' activity.
	selectFeedEnd = `
		SELECT greatest(o.feed_floor, (
		           SELECT c.xid
		           FROM   change c
		           WHERE  c.tenant_id = $1 AND c.xid < pg_snapshot_xmin(pg_current_snapshot())
		           ORDER  BY c.xid DESC
		           LIMIT  1))::text
		FROM   organisation o
		WHERE  o.tenant_id = $1`
)

func (t *Tenant) queueChanges(b *pgx.Batch) {
	if len(t.touched) == 0 {
		return
	}
	var kinds, refs []string
	var gone []bool
	for c, g := range t.touched {
		kinds, refs, gone = append(kinds, c.kind), append(refs, c.id), append(gone, g)
	}
	b.Queue(insertChanges, t.id, kinds, refs, gone)
}

// A position is a place in the feed: after the change (xid, kind, ref), or
// after all of a transaction when kind is lastKind. Encrypted with a key of the
// tenant it is the cursor of clients: transaction numbers count the whole
// database, and would reveal other tenants' activity.
type position struct{ xid, kind, ref string }

// lastKind sorts behind every kind, and lastRef behind every id.
const (
	lastKind = "~"
	lastRef  = "ffffffff-ffff-ffff-ffff-ffffffffffff"
)

func (p position) String() string {
	if p.kind == lastKind {
		return p.xid
	}
	return p.xid + "." + p.kind + "." + p.ref
}

func parsePosition(text string) (position, bool) {
	parts := strings.Split(text, ".")
	n, err := strconv.ParseUint(parts[0], 10, 63)
	p := position{xid: strconv.FormatUint(n, 10), kind: lastKind, ref: lastRef}
	switch {
	case err != nil || (len(parts) != 1 && len(parts) != 3):
	case len(parts) == 1:
		return p, true
	case parts[1] != "" && hub.ValidID(parts[2]):
		p.kind, p.ref = parts[1], parts[2]
		return p, true
	}
	return p, false
}

// cursor seals a position.
func (t *Tenant) cursor(ctx context.Context, p position) (string, error) {
	keys, err := t.keys(ctx)
	if err != nil {
		return "", err
	}
	sealed, err := encryption.SealToken(keys.Feed, []byte(p.String()))
	if err != nil {
		return "", fmt.Errorf("seal a cursor: %w", err)
	}
	return base64.RawURLEncoding.EncodeToString(sealed), nil
}

// parseCursor decrypts a cursor. One of an earlier release is too old: the
// client lists again.
func (t *Tenant) parseCursor(ctx context.Context, cursor string) (position, error) {
	if _, plain := parsePosition(cursor); plain {
		return position{}, errForgotten()
	}
	keys, err := t.keys(ctx)
	if err != nil {
		return position{}, err
	}
	if sealed, err := base64.RawURLEncoding.DecodeString(cursor); err == nil {
		if text, err := encryption.OpenToken(keys.Feed, sealed); err == nil {
			if p, ok := parsePosition(string(text)); ok {
				return p, nil
			}
		}
	}
	return position{}, fault.With(fault.New(fault.Invalid, "the cursor is not one of the feed"), "", "read the list again and follow from its cursor")
}

func errForgotten() error {
	return fault.With(fault.New(fault.Missing, "the cursor is too old"), "", "read the list again and follow from its cursor")
}

// Changes returns what changed after a cursor, in an order that is the same for
// every reader, with the cursor to continue from. Nothing is omitted, however
// many transactions run concurrently. The error is fault.Missing if changes
// after the cursor were already deleted: the caller lists again.
func (t *Tenant) Changes(ctx context.Context, after string, limit int) ([]hub.Change, string, error) {
	from, err := t.parseCursor(ctx, after)
	if err != nil {
		return nil, "", err
	}
	var forgotten bool
	if err := t.tx.QueryRow(ctx, selectForgotten, t.id, from.xid, from.kind != lastKind).Scan(&forgotten); err != nil {
		return nil, "", fmt.Errorf("read feed: %w", err)
	}
	if forgotten {
		return nil, "", errForgotten()
	}
	next := after
	out, err := list(ctx, t.tx, "changes", func(row pgx.CollectableRow) (c hub.Change, err error) {
		var p position
		if err := row.Scan(&p.xid, &p.kind, &p.ref, &c.Gone); err != nil {
			return c, err
		}
		c.Kind, c.ID = p.kind, p.ref
		c.Cursor, err = t.cursor(ctx, p)
		next = c.Cursor
		return c, err
	}, selectChanges, pgx.StrictNamedArgs{"tenant": t.id, "xid": from.xid, "kind": from.kind, "ref": from.ref, "limit": limit})
	return out, next, err
}

// FeedCursor is the current end of the feed: a reader that follows from it, and
// lists in this transaction or later, misses nothing. It moves only with the
// tenant's own changes.
func (t *Tenant) FeedCursor(ctx context.Context) (string, error) {
	p := position{kind: lastKind, ref: lastRef}
	if err := t.tx.QueryRow(ctx, selectFeedEnd, t.id).Scan(&p.xid); err != nil {
		return "", fmt.Errorf("read feed: %w", err)
	}
	return t.cursor(ctx, p)
}
