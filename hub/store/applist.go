package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/capstan-cd/capstan/hub"
)

const (
	// Changes of transactions that ended before the oldest one that runs are in
	// every later snapshot. All others are looked for again.
	selectListMark = `
		SELECT pg_snapshot_xmin(pg_current_snapshot())::text, o.feed_floor::text,
		       greatest(o.feed_floor, (
		           SELECT c.xid
		           FROM   change c
		           WHERE  c.tenant_id = $1 AND c.xid < pg_snapshot_xmin(pg_current_snapshot())
		           ORDER  BY c.xid DESC
		           LIMIT  1))::text
		FROM   organisation o
		WHERE  o.tenant_id = $1`
	selectListChanges = `
		SELECT c.xid::text, c.kind, c.ref
		FROM   change c
		WHERE  c.tenant_id = $1 AND c.xid >= $2::text::xid8 AND c.kind IN ('application', 'cluster')
		LIMIT  $3`
	selectListFailing = `SELECT b.id, b.error || b.error_since::text FROM repository b WHERE b.tenant_id = $1 AND ` + isRepositoryAway
	selectListUsers   = `SELECT application_id FROM app_source WHERE tenant_id = $1 AND repository_id = ANY ($2::uuid[])`
	selectListRows    = `SELECT` + applicationColumns + `,
		       coalesce((SELECT n.commit FROM snapshot n WHERE n.tenant_id = $1 AND n.id = s.target_id), '{}')` + applicationTables
	selectListAll      = selectListRows + ` ORDER BY a.name, a.namespace`
	selectListSome     = selectListRows + ` AND a.id = ANY ($3::uuid[]) ORDER BY a.name, a.namespace`
	selectListClusters = `
		SELECT c.id, c.name, c.server, coalesce(p.connected, false), p.seen_at, coalesce(p.lag_ms, 0)
		FROM   cluster c
		LEFT   JOIN directory.my_presence p ON p.cluster_id = c.id
		WHERE  c.tenant_id = $1
		ORDER  BY c.name`
)

// maxListChanges is the number of changes from which on a list is read whole.
const maxListChanges = 20_000

// ListChanges returns what may have changed of lists since a mark, and the
// place of this transaction in the feed, in one round trip.
func (t *Tenant) ListChanges(ctx context.Context, since hub.ListMark) (hub.ListChanges, error) {
	type change struct {
		xid  uint64
		kind string
		ref  string
	}
	type failing struct {
		id    hub.RepositoryID
		state string
	}
	var marks [][3]string
	var found []change
	var away []failing
	b := &pgx.Batch{}
	queueList(b, "mark of lists", func(row pgx.CollectableRow) (m [3]string, err error) {
		return m, row.Scan(&m[0], &m[1], &m[2])
	}, &marks, selectListMark, t.id)
	queueList(b, "failing repositories", func(row pgx.CollectableRow) (f failing, err error) {
		return f, row.Scan(&f.id, &f.state)
	}, &away, selectListFailing, t.id)
	if since.Xmin > 0 {
		queueList(b, "changes of lists", func(row pgx.CollectableRow) (c change, err error) {
			var xid string
			if err := row.Scan(&xid, &c.kind, &c.ref); err != nil {
				return c, err
			}
			c.xid, err = strconv.ParseUint(xid, 10, 64)
			return c, err
		}, &found, selectListChanges, t.id, strconv.FormatUint(since.Xmin, 10), maxListChanges)
	}
	if err := send(ctx, t.tx, "read changes of lists", b); err != nil {
		return hub.ListChanges{}, err
	}
	if len(marks) != 1 {
		return hub.ListChanges{}, noTenant()
	}
	xmin, err := strconv.ParseUint(marks[0][0], 10, 64)
	if err != nil {
		return hub.ListChanges{}, fmt.Errorf("read mark of lists: %w", err)
	}
	floor, err := strconv.ParseUint(marks[0][1], 10, 64)
	if err != nil {
		return hub.ListChanges{}, fmt.Errorf("read mark of lists: %w", err)
	}
	out := hub.ListChanges{Mark: hub.ListMark{Xmin: xmin, Failing: make(map[hub.RepositoryID]string, len(away))}}
	for _, f := range away {
		out.Mark.Failing[f.id] = f.state
	}
	for _, c := range found {
		if c.kind == changeCluster {
			out.Clusters = true
		} else {
			out.Applications = append(out.Applications, hub.ListChange{Transaction: c.xid, Application: hub.ApplicationID(c.ref)})
		}
	}
	out.All = since.Xmin == 0 || floor >= since.Xmin || len(found) == maxListChanges
	out.Clusters = out.Clusters || out.All
	if out.Cursor, err = t.cursor(ctx, position{marks[0][2], lastKind, lastRef}); err != nil || out.All {
		return out, err
	}
	return out, t.addUsers(ctx, &out, since)
}

// addUsers adds the applications of repositories that fail since the mark, or
// fail no more, or in another way.
func (t *Tenant) addUsers(ctx context.Context, c *hub.ListChanges, since hub.ListMark) error {
	var other []hub.RepositoryID
	for id, state := range c.Mark.Failing {
		if since.Failing[id] != state {
			other = append(other, id)
		}
	}
	for id := range since.Failing {
		if _, still := c.Mark.Failing[id]; !still {
			other = append(other, id)
		}
	}
	if len(other) == 0 {
		return nil
	}
	apps, err := list(ctx, t.tx, "applications of repositories", pgx.RowTo[hub.ApplicationID], selectListUsers, t.id, ids(other))
	for _, a := range apps {
		c.Applications = append(c.Applications, hub.ListChange{Application: a})
	}
	return err
}

// ListedApplications returns these applications, in order of name and
// namespace, without the results of their operations.
func (t *Tenant) ListedApplications(ctx context.Context, want []hub.ApplicationID) ([]hub.ListedApplication, error) {
	return list(ctx, t.tx, "listed applications", scanListed(), selectListSome, t.id, false, ids(want))
}

// AllListed is ListedApplications of all.
func (t *Tenant) AllListed(ctx context.Context) ([]hub.ListedApplication, error) {
	return list(ctx, t.tx, "listed applications", scanListed(), selectListAll, t.id, false)
}

func scanListed() pgx.RowToFunc[hub.ListedApplication] {
	w := &messageDecoder{}
	return func(row pgx.CollectableRow) (l hub.ListedApplication, err error) {
		var commit []byte
		if l.Application, err = w.application(row, &commit); err != nil {
			return l, err
		}
		if err := json.Unmarshal(commit, &l.Commit); err != nil {
			return l, fmt.Errorf("read commit: %w", err)
		}
		return l, nil
	}
}

// ListedClusters returns all clusters as lists show them.
func (t *Tenant) ListedClusters(ctx context.Context) ([]hub.ListedCluster, error) {
	return list(ctx, t.tx, "listed clusters", func(row pgx.CollectableRow) (c hub.ListedCluster, err error) {
		var lag int64
		err = row.Scan(&c.ID, &c.Name, &c.Server, &c.Connected, &c.LastSeen, &lag)
		c.Lag = time.Duration(lag) * time.Millisecond
		return c, err
	}, selectListClusters, t.id)
}
