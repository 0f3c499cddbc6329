package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/repourl"
	"github.com/capstan-cd/capstan/shared/fault"
)

// Objects are stored at least this long after their last use. Their date is
// updated only once a day, so that using them costs no write.
const (
	keepObjects = 7 * 24 * time.Hour
	touchAfter  = 24 * time.Hour
)

const (
	// Rows that are there are locked as well, so that a concurrent collection
	// cannot delete them. Transactions share that lock: nearly always many use
	// the same objects at once.
	putObjects = `
		WITH held AS MATERIALIZED (
			SELECT digest FROM object
			WHERE  tenant_id = @tenant AND digest = ANY (@digests::bytea[]) AND kept_until >= @still_kept
			ORDER  BY digest
			FOR    KEY SHARE
		)
		INSERT INTO object AS o (tenant_id, digest, sealed, size, kept_until)
		SELECT @tenant, u.digest, u.sealed, u.size, @kept_until
		FROM   unnest(@digests::bytea[], @sealed::bytea[], @sizes::integer[]) AS u (digest, sealed, size)
		WHERE  NOT EXISTS (SELECT FROM held WHERE held.digest = u.digest)
		ORDER  BY u.digest
		ON CONFLICT (tenant_id, digest) DO UPDATE SET kept_until = excluded.kept_until
		WHERE  o.kept_until < @still_kept`
	selectObjects = `SELECT digest, sealed, size FROM object WHERE tenant_id = $1 AND digest = ANY ($2)`
	selectKnown   = `SELECT digest FROM object WHERE tenant_id = $1 AND digest = ANY ($2)`

	insertSnapshot = `
		INSERT INTO snapshot (tenant_id, id, application_id, revision, revisions, params_hash, objects, object_count, digests, lists,
		                      inputs, source_type, impure, warnings, commit, created_at, mac)
		SELECT @tenant, u.id, u.app, u.revision, u.revisions::text[], u.params, u.objects, u.count, u.digests::bytea[], u.lists::bytea[],
		       u.inputs, u.source_type, u.impure, u.warnings::text[], u.commit::json, u.created_at, u.mac
		FROM   unnest(@ids::uuid[], @apps::uuid[], @revisions::text[], @each_revisions::text[], @params::bytea[],
		              @objects::bytea[], @counts::integer[], @digests::text[], @lists::text[], @inputs::bytea[], @source_types::text[],
		              @impure::boolean[], @warnings::text[], @commits::text[], @created::timestamptz[], @macs::bytea[])
		       AS u (id, app, revision, revisions, params, objects, count, digests, lists, inputs, source_type, impure, warnings, commit, created_at, mac)`
	selectSnapshots = `
		SELECT id, application_id, revision, revisions, params_hash, objects, digests, lists, source_type, impure, warnings, commit, created_at, inputs, mac
		FROM   snapshot
		WHERE  tenant_id = $1 AND id = ANY ($2::uuid[])`
	selectPresent = `SELECT id FROM snapshot WHERE tenant_id = $1 AND id = ANY ($2::uuid[])`
	// The newest of an application that has a revision.
	selectSnapshotOf = `
		SELECT id FROM snapshot
		WHERE  tenant_id = $1 AND application_id = $2 AND (revision = $3 OR $3 = ANY (revisions))
		ORDER  BY created_at DESC, id DESC
		LIMIT  1`
	// The newest of each application.
	selectRecent = `
		SELECT a.application_id, coalesce(a.target_id::text, ''), n.id
		FROM   application_status a
		CROSS  JOIN LATERAL (
			SELECT x.id, x.created_at FROM snapshot x
			WHERE  x.tenant_id = $1 AND x.application_id = a.application_id
			ORDER  BY x.created_at DESC, x.id DESC LIMIT $3) n
		WHERE  a.tenant_id = $1 AND a.application_id = ANY ($2::uuid[])
		ORDER  BY a.application_id, n.created_at DESC, n.id DESC`
	selectInputs = `
		SELECT id, application_id, revision, revisions, params_hash, inputs, lists, source_type, impure, warnings, commit, created_at, objects, digests, mac
		FROM   snapshot
		WHERE  tenant_id = $1 AND id = ANY ($2::uuid[])`
	// What an agent may request: objects of what its applications compare
	// with and enforce, of operations that are not over, and what states refer
	// to themselves.
	selectReachable = `
		WITH apps AS MATERIALIZED (
			SELECT a.id FROM application a WHERE a.tenant_id = $1 AND a.cluster_id = $2
			UNION
			SELECT h.application_id FROM desired_head h WHERE h.tenant_id = $1 AND h.cluster_id = $2
		), wanted AS MATERIALIZED (
			SELECT unnest(ARRAY[st.target_id, st.accepted_id]) AS id
			FROM   apps
			JOIN   application_status st ON st.tenant_id = $1 AND st.application_id = apps.id
			UNION
			SELECT o.snapshot_id FROM operation o
			WHERE  o.tenant_id = $1 AND o.cluster_id = $2 AND o.phase IN ('Pending', 'Running', 'Terminating')
		)
		SELECT DISTINCT d.digest
		FROM   wanted
		JOIN   snapshot s ON s.tenant_id = $1 AND s.id = wanted.id
		CROSS  JOIN LATERAL unnest(s.digests || s.lists) AS d (digest)
		WHERE  d.digest = ANY ($3::bytea[])
		UNION
		SELECT l.digest
		FROM   desired_head h
		CROSS  JOIN LATERAL (
			SELECT substring(h.lists FROM 32 * i + 1 FOR 32) AS digest FROM generate_series(0, length(h.lists) / 32 - 1) AS i) AS l
		WHERE  h.tenant_id = $1 AND h.cluster_id = $2 AND h.lists <> '' AND l.digest = ANY ($3::bytea[])`
)

// PutObjects stores object bodies, each once, and protects existing ones from
// collection for a while.
func (t *Tenant) PutObjects(ctx context.Context, objects []hub.SealedObject) error {
	if len(objects) == 0 {
		return nil
	}
	seen := make(map[hub.Digest]bool, len(objects))
	var digest, sealed [][]byte
	var size []int32
	for i := range objects {
		o := &objects[i]
		if !seen[o.Digest] {
			seen[o.Digest] = true
			digest, sealed, size = append(digest, o.Digest[:]), append(sealed, o.Sealed), append(size, int32(o.Size))
		}
	}
	now := time.Now()
	_, err := exec(ctx, t.tx, "put objects", putObjects, pgx.StrictNamedArgs{
		"tenant": t.id, "digests": digest, "sealed": sealed, "sizes": size, "kept_until": now.Add(keepObjects),
		"still_kept": now.Add(keepObjects - touchAfter),
	})
	return err
}

// Objects returns those of the objects that there are.
func (t *Tenant) Objects(ctx context.Context, want []hub.Digest) ([]hub.SealedObject, error) {
	return list(ctx, t.tx, "objects", func(row pgx.CollectableRow) (o hub.SealedObject, err error) {
		var d []byte
		err = row.Scan(&d, &o.Sealed, &o.Size)
		copy(o.Digest[:], d)
		return o, err
	}, selectObjects, t.id, digests(want))
}

// KnownObjects returns those of the digests whose objects are stored.
func (t *Tenant) KnownObjects(ctx context.Context, want []hub.Digest) ([]hub.Digest, error) {
	return list(ctx, t.tx, "objects", scanDigest, selectKnown, t.id, digests(want))
}

func scanDigest(row pgx.CollectableRow) (d hub.Digest, err error) {
	var b []byte
	err = row.Scan(&b)
	copy(d[:], b)
	return d, err
}

// Reachable returns those of the digests that the agent of a cluster may have:
// what its own applications and operations refer to.
func (t *Tenant) Reachable(ctx context.Context, cluster hub.ClusterID, want []hub.Digest) ([]hub.Digest, error) {
	if !hub.ValidID(string(cluster)) {
		return nil, noCluster()
	}
	return list(ctx, t.tx, "reachable objects", scanDigest, selectReachable, t.id, cluster, digests(want))
}

// snapshotColumns are snapshots, column by column.
type snapshotColumns struct {
	id, app, revision, revisions, digests, lists, sourceType, warnings, commit []string

	params, objects, inputs, mac [][]byte
	count                        []int32
	impure                       []bool
	created                      []time.Time

	last *hub.Snapshot // the newest one
	each [][]byte      // digests of its objects
	key  [32]byte      // of the codes
}

func (c *snapshotColumns) add(s *hub.Snapshot) error {
	commit, err := jsonText(s.Commit)
	if err != nil {
		return err
	}
	// Applications of one folder read the same and often show the same, one
	// after the other.
	n := len(c.id) - 1
	if c.last != nil && slices.Equal(s.Inputs, c.last.Inputs) {
		c.inputs = append(c.inputs, c.inputs[n])
	} else {
		inputs, err := pack(s.Inputs)
		if err != nil {
			return err
		}
		c.inputs = append(c.inputs, inputs)
	}
	if c.last != nil && slices.Equal(s.Objects, c.last.Objects) {
		c.objects, c.digests = append(c.objects, c.objects[n]), append(c.digests, c.digests[n])
	} else {
		objects, each, err := packRefs(s.Objects)
		if err != nil {
			return err
		}
		c.objects, c.digests, c.each = append(c.objects, objects), append(c.digests, bytesText(each)), digests(each)
	}
	n++
	c.mac = append(c.mac, snapshotMAC(c.key, s, &storedSnapshot{params: s.ParamsHash[:], objects: c.objects[n], inputs: c.inputs[n], digests: c.each, lists: digests(s.Lists)}))
	c.id, c.app, c.revision, c.revisions = append(c.id, string(s.ID)), append(c.app, string(s.Application)), append(c.revision, s.Revision), append(c.revisions, arrayText(s.Revisions))
	c.params, c.count, c.lists = append(c.params, s.ParamsHash[:]), append(c.count, int32(len(s.Objects))), append(c.lists, bytesText(s.Lists))
	c.sourceType, c.impure, c.warnings = append(c.sourceType, string(s.SourceType)), append(c.impure, s.Impure), append(c.warnings, arrayText(s.Warnings))
	c.commit, c.created = append(c.commit, commit), append(c.created, micro(s.CreatedAt))
	c.last = s
	return nil
}

// bytesText is an array of digests as the database reads it: arrays of
// different length are no column.
func bytesText(of []hub.Digest) string {
	if len(of) == 0 {
		return "{}"
	}
	var b strings.Builder
	b.Grow(len(of) * (2*len(of[0]) + 6))
	for i := range of {
		b.WriteString(",\"\\\\x")
		b.WriteString(hex.EncodeToString(of[i][:]))
		b.WriteByte('"')
	}
	return "{" + b.String()[1:] + "}"
}

// PutSnapshots stores new snapshots. Their objects are stored before.
func (t *Tenant) PutSnapshots(ctx context.Context, snapshots []hub.Snapshot) error {
	if len(snapshots) == 0 {
		return nil
	}
	keys, err := t.keys(ctx)
	if err != nil {
		return err
	}
	c := snapshotColumns{key: keys.Snapshot}
	for i := range snapshots {
		s := snapshots[i]
		s.Tenant, s.Revisions = t.id, cleaned(s.Revisions)
		if err := c.add(&s); err != nil {
			return err
		}
	}
	_, err = exec(ctx, t.tx, "insert snapshots", insertSnapshot, pgx.StrictNamedArgs{
		"tenant": t.id, "ids": c.id, "apps": c.app, "revisions": c.revision, "each_revisions": c.revisions, "params": c.params,
		"objects": c.objects, "counts": c.count, "digests": c.digests, "lists": c.lists, "inputs": c.inputs,
		"source_types": c.sourceType, "impure": c.impure, "warnings": c.warnings, "commits": c.commit, "created": c.created, "macs": c.mac,
	})
	if code(err) == foreignKeyViolation {
		return noApp()
	}
	if err != nil {
		return err
	}
	if err := t.putBases(ctx, snapshots); err != nil {
		return err
	}
	for _, s := range snapshots { // the next commit needs them
		s.Tenant = t.id
		s.Revisions, s.Warnings, s.CreatedAt = cleaned(s.Revisions), cleaned(s.Warnings), micro(s.CreatedAt)
		t.keepInputs(s)
		t.keepObjects(s)
	}
	return nil
}

const putBases = `SELECT directory.put_bases($1::uuid[], $2::bytea[])`

// putBases notes at which places the bases are that snapshots use, so that a
// push there refreshes their applications. Most have none.
func (t *Tenant) putBases(ctx context.Context, snapshots []hub.Snapshot) error {
	var apps []string
	var places [][]byte
	for _, s := range snapshots {
		for _, address := range hub.BaseAddresses(s.Inputs) {
			sum := sha256.Sum256([]byte(repourl.Place(address)))
			apps, places = append(apps, string(s.Application)), append(places, sum[:])
		}
	}
	if len(apps) == 0 {
		return nil
	}
	_, err := exec(ctx, t.tx, "put bases", putBases, apps, places)
	return err
}

// SnapshotOf returns the id of the newest snapshot of an application that was
// rendered from a revision; empty: none is kept.
func (t *Tenant) SnapshotOf(ctx context.Context, app hub.ApplicationID, revision string) (hub.SnapshotID, error) {
	if !hub.ValidID(string(app)) {
		return "", noApp()
	}
	found, err := list(ctx, t.tx, "snapshots of a revision", pgx.RowTo[hub.SnapshotID], selectSnapshotOf, t.id, app, revision)
	if err != nil || len(found) == 0 {
		return "", err
	}
	return found[0], nil
}

// Snapshots returns those of the snapshots that there are, with their objects
// and without their inputs: from memory if they were used lately. They are
// others' as well, so nothing in them may be changed.
func (t *Tenant) Snapshots(ctx context.Context, want []hub.SnapshotID) (map[hub.SnapshotID]hub.Snapshot, error) {
	held, missing := cachedSnapshots(t, t.db.objects, want)
	out := make(map[hub.SnapshotID]hub.Snapshot, len(want))
	b := &pgx.Batch{}
	if len(held) > 0 {
		var id hub.SnapshotID
		b.Queue(selectPresent, t.id, ids(slices.Collect(maps.Keys(held)))).Query(func(rows pgx.Rows) error {
			_, err := pgx.ForEachRow(rows, []any{&id}, func() error {
				out[id] = held[id]
				return nil
			})
			return err
		})
	}
	if len(missing) > 0 {
		b.Queue(selectSnapshots, t.id, ids(missing)).Query(func(rows pgx.Rows) error {
			found, err := pgx.CollectRows(rows, t.scanSnapshot(ctx))
			for _, s := range found {
				if s != nil {
					t.keepObjects(*s)
					out[s.ID] = *s
				}
			}
			return err
		})
	}
	if b.Len() == 0 {
		return out, nil
	}
	if _, err := t.keys(ctx); err != nil { // what is read is checked with them
		return nil, err
	}
	return out, send(ctx, t.tx, "read snapshots", b)
}

// scanSnapshot reads a snapshot; nil: something else than the hub has changed
// it. One of an earlier release has no code and is used as it is.
func (t *Tenant) scanSnapshot(ctx context.Context) func(pgx.CollectableRow) (*hub.Snapshot, error) {
	return func(row pgx.CollectableRow) (*hub.Snapshot, error) {
		s := hub.Snapshot{Tenant: t.id}
		var raw storedSnapshot
		err := row.Scan(&s.ID, &s.Application, &s.Revision, &s.Revisions, &raw.params, &raw.objects, &raw.digests, &raw.lists, &s.SourceType, &s.Impure,
			&s.Warnings, &s.Commit, &s.CreatedAt, &raw.inputs, &raw.mac)
		if err != nil {
			return nil, err
		}
		copy(s.ParamsHash[:], raw.params)
		if raw.mac != nil {
			if ok, err := t.authentic(ctx, &s, &raw); !ok {
				return nil, err
			}
		}
		s.Lists = fromBytes(raw.lists)
		s.Objects, err = unpackRefs(raw.objects, raw.digests)
		return &s, err
	}
}

// Snapshot returns one snapshot with its objects and without its inputs.
func (t *Tenant) Snapshot(ctx context.Context, id hub.SnapshotID) (hub.Snapshot, error) {
	found, err := t.Snapshots(ctx, []hub.SnapshotID{id})
	if err != nil {
		return hub.Snapshot{}, err
	}
	s, ok := found[id]
	if !ok {
		return hub.Snapshot{}, fault.New(fault.Missing, "there is no such snapshot")
	}
	return s, nil
}

// SnapshotObjects returns the objects of a snapshot in order.
func (t *Tenant) SnapshotObjects(ctx context.Context, id hub.SnapshotID) ([]hub.ObjectRef, error) {
	s, err := t.Snapshot(ctx, id)
	return s.Objects, err
}

// RecentSnapshots returns the newest n snapshots of each application, and its
// target if that is older, newest first. They have their inputs and not their
// objects.
func (t *Tenant) RecentSnapshots(ctx context.Context, apps []hub.ApplicationID, n int) (map[hub.ApplicationID][]hub.Snapshot, error) {
	recent := make(map[hub.ApplicationID][]hub.SnapshotID, len(apps))
	targets := make(map[hub.ApplicationID]hub.SnapshotID, len(apps))
	_, err := list(ctx, t.tx, "recent snapshots", func(row pgx.CollectableRow) (none struct{}, err error) {
		var app hub.ApplicationID
		var target, id hub.SnapshotID
		err = row.Scan(&app, &target, &id)
		recent[app], targets[app] = append(recent[app], id), target
		return none, err
	}, selectRecent, t.id, ids(apps), n)
	if err != nil {
		return nil, err
	}
	var all []hub.SnapshotID
	for app, target := range targets {
		if target != "" && !slices.Contains(recent[app], target) {
			recent[app] = append(recent[app], target)
		}
		all = append(all, recent[app]...)
	}
	found, err := t.inputs(ctx, all)
	if err != nil {
		return nil, err
	}
	out := make(map[hub.ApplicationID][]hub.Snapshot, len(recent))
	for app, ids := range recent {
		for _, id := range ids {
			if s, ok := found[id]; ok {
				out[app] = append(out[app], s)
			}
		}
	}
	return out, nil
}

// inputs returns those of the snapshots that there are, with their inputs and
// without their objects: from memory if they were used lately.
func (t *Tenant) inputs(ctx context.Context, want []hub.SnapshotID) (map[hub.SnapshotID]hub.Snapshot, error) {
	out, want := cachedSnapshots(t, t.db.inputs, want)
	if len(want) == 0 {
		return out, nil
	}
	if _, err := t.keys(ctx); err != nil { // what is read is checked with them
		return nil, err
	}
	_, err := list(ctx, t.tx, "snapshots", func(row pgx.CollectableRow) (none struct{}, err error) {
		s := hub.Snapshot{Tenant: t.id}
		var raw storedSnapshot
		var commit []byte
		err = row.Scan(&s.ID, &s.Application, &s.Revision, &s.Revisions, &raw.params, &raw.inputs, &raw.lists, &s.SourceType, &s.Impure,
			&s.Warnings, &commit, &s.CreatedAt, &raw.objects, &raw.digests, &raw.mac)
		if err != nil {
			return none, err
		}
		if raw.mac == nil {
			return none, nil // of an earlier release: it is rendered again, once
		}
		copy(s.ParamsHash[:], raw.params)
		if ok, err := t.authentic(ctx, &s, &raw); !ok {
			return none, err
		}
		s.Lists = fromBytes(raw.lists)
		if err := json.Unmarshal(commit, &s.Commit); err != nil {
			return none, fmt.Errorf("read commit of snapshot %q: %w", s.ID, err)
		}
		if err := unpack(raw.inputs, &s.Inputs); err != nil {
			return none, fmt.Errorf("read inputs of snapshot %q: %w", s.ID, err)
		}
		t.keepInputs(s)
		out[s.ID] = s
		return none, nil
	}, selectInputs, t.id, ids(want))
	return out, err
}
