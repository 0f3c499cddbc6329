package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

const (
	selectSets = `
		SELECT s.id, s.tenant_id, s.namespace, s.name, s.labels, s.annotations, s.finalizers, s.project, s.spec::text, s.version, s.generation,
		       s.created_at, s.updated_at, s.deleting_at, s.deletion, s.status::text, coalesce(up.namespace, ''), coalesce(up.name, '')
		FROM   application_set s
		LEFT   JOIN rendered r ON r.tenant_id = s.tenant_id AND r.object_id = s.id
		LEFT   JOIN application up ON up.tenant_id = r.tenant_id AND up.id = r.parent_id
		WHERE  s.tenant_id = $1`
	setByName = selectSets + ` AND s.namespace = $2 AND s.name = $3`
	setByID   = selectSets + ` AND s.id = $2`
	allSets   = selectSets + ` ORDER BY s.name, s.namespace`
	lockSet   = `SELECT id FROM application_set WHERE tenant_id = $1 AND id = $2 FOR NO KEY UPDATE`
	insertSet = `
		INSERT INTO application_set (tenant_id, id, namespace, name, labels, annotations, finalizers, project, spec, watches, created_at, updated_at)
		VALUES (@tenant, @id, @namespace, @name, @labels, @annotations, @finalizers, @project, @spec, @watches, @now, @now)`
	updateSet = `
		UPDATE application_set
		SET    labels = @labels, annotations = @annotations, finalizers = @finalizers, project = @project, spec = @spec, watches = @watches,
		       version = version + 1, updated_at = @now, generation = generation + CASE WHEN @respec THEN 1 ELSE 0 END
		WHERE  tenant_id = @tenant AND id = @id AND (@version = 0 OR version = @version)
		RETURNING version, generation, created_at`
	putSetStatus   = `UPDATE application_set SET status = $3::text::json WHERE tenant_id = $1 AND id = $2 AND status::text <> $3::text`
	takeSetRefresh = `
		UPDATE application_set
		SET    annotations = annotations - $3, version = version + 1, updated_at = $4
		WHERE  tenant_id = $1 AND id = $2 AND annotations ? $3`
	markSetDeleting = `
		UPDATE application_set SET deleting_at = coalesce(deleting_at, $3), deletion = $4, version = version + 1
		WHERE  tenant_id = $1 AND id = $2`
	deleteSet = `DELETE FROM application_set WHERE tenant_id = $1 AND id = $2`
)

func setObject(s hub.ApplicationSet) string { return "application set " + s.Namespace + "/" + s.Name }

func scanSet(row pgx.CollectableRow) (s hub.ApplicationSet, err error) {
	var status []byte
	var parent hub.ApplicationKey
	err = row.Scan(&s.ID, &s.Tenant, &s.Namespace, &s.Name, &s.Labels, &s.Annotations, &s.Finalizers, &s.Project, (*rawJSON)(&s.Spec), &s.Version, &s.Generation,
		&s.CreatedAt, &s.UpdatedAt, &s.DeletingAt, &s.Deletion, (*rawJSON)(&status), &parent.Namespace, &parent.Name)
	if err != nil {
		return s, err
	}
	if parent.Name != "" {
		s.Parent = &parent
	}
	if err := json.Unmarshal(status, &s.Status); err != nil {
		return s, fmt.Errorf("read the status of application set %q: %w", s.ID, err)
	}
	return s, nil
}

func noSet() error { return fault.New(fault.Missing, "there is no such application set") }

// ApplicationSet returns one application set by its name.
func (t *Tenant) ApplicationSet(ctx context.Context, namespace, name string) (hub.ApplicationSet, error) {
	s, err := one(ctx, t.tx, "application set", scanSet, setByName, t.id, clean(namespace), clean(name))
	return s, missing(err, "there is no application set %q in namespace %q", name, namespace)
}

// ApplicationSetByID returns one application set.
func (t *Tenant) ApplicationSetByID(ctx context.Context, id hub.ApplicationSetID) (hub.ApplicationSet, error) {
	if !hub.ValidID(string(id)) {
		return hub.ApplicationSet{}, noSet()
	}
	s, err := one(ctx, t.tx, "application set", scanSet, setByID, t.id, id)
	return s, missing(err, "there is no such application set")
}

// ApplicationSets returns all application sets, in order of name.
func (t *Tenant) ApplicationSets(ctx context.Context) ([]hub.ApplicationSet, error) {
	return list(ctx, t.tx, "application sets", scanSet, allSets, t.id)
}

// LockApplicationSet returns a set that nobody else changes until the
// transaction ends.
func (t *Tenant) LockApplicationSet(ctx context.Context, id hub.ApplicationSetID) (hub.ApplicationSet, error) {
	if !hub.ValidID(string(id)) {
		return hub.ApplicationSet{}, noSet()
	}
	if _, err := exec(ctx, t.tx, "lock application set", lockSet, t.id, id); err != nil {
		return hub.ApplicationSet{}, err
	}
	return t.ApplicationSetByID(ctx, id)
}

// CreateApplicationSet makes a set and has it reconciled. An empty ID or time is
// filled in. Watches say what else wakes it.
func (t *Tenant) CreateApplicationSet(ctx context.Context, s hub.ApplicationSet, watches []string) (hub.ApplicationSet, error) {
	if s.ID == "" {
		s.ID = hub.NewID[hub.ApplicationSetID]()
	}
	if s.CreatedAt.IsZero() {
		s.CreatedAt = time.Now()
	}
	spec, err := givenSpec(s.Spec)
	if err != nil {
		return hub.ApplicationSet{}, fault.With(err, setObject(s), "")
	}
	_, err = exec(ctx, t.tx, "insert application set", insertSet, pgx.StrictNamedArgs{
		"tenant": t.id, "id": s.ID, "namespace": s.Namespace, "name": s.Name, "labels": labels(s.Labels), "annotations": labels(s.Annotations),
		"finalizers": nonNil(s.Finalizers), "project": s.Project, "spec": spec, "watches": nonNil(watches), "now": micro(s.CreatedAt),
	})
	switch {
	case violates(err, "application_set_name"):
		return hub.ApplicationSet{}, taken(setObject(s))
	case code(err) == checkViolation:
		return hub.ApplicationSet{}, fault.New(fault.Invalid, "an application set needs a name and a namespace")
	case err != nil:
		return hub.ApplicationSet{}, err
	}
	t.setChanged(s.ID)
	t.grows(hub.QuotaSets)
	t.enqueue(hub.WorkApplicationSet, string(s.ID), time.Now(), false)
	return t.ApplicationSetByID(ctx, s.ID)
}

func (t *Tenant) setChanged(id hub.ApplicationSetID) { t.changed(changeApplicationSet, string(id)) }

// UpdateApplicationSet changes what users wrote of a set and has it reconciled.
// The error is fault.Conflict if its version is not the expected one; 0 expects
// any.
func (t *Tenant) UpdateApplicationSet(ctx context.Context, s hub.ApplicationSet, watches []string, expect int64) (hub.ApplicationSet, error) {
	spec, err := givenSpec(s.Spec)
	if err != nil {
		return hub.ApplicationSet{}, fault.With(err, setObject(s), "")
	}
	old, err := t.LockApplicationSet(ctx, s.ID)
	if err != nil {
		return hub.ApplicationSet{}, err
	}
	err = t.tx.QueryRow(ctx, updateSet, pgx.StrictNamedArgs{
		"tenant": t.id, "id": s.ID, "labels": labels(s.Labels), "annotations": labels(s.Annotations), "finalizers": nonNil(s.Finalizers),
		"project": s.Project, "spec": spec, "watches": nonNil(watches), "now": micro(time.Now()), "version": expect, "respec": !sameJSON(s.Spec, old.Spec),
	}).Scan(&s.Version, &s.Generation, &s.CreatedAt)
	if err := missing(err, "not found"); fault.KindOf(err) == fault.Missing {
		return hub.ApplicationSet{}, stale(setObject(old))
	}
	if err != nil {
		return hub.ApplicationSet{}, fmt.Errorf("update application set %q: %w", s.Name, err)
	}
	t.setChanged(s.ID)
	t.enqueue(hub.WorkApplicationSet, string(s.ID), time.Now(), false)
	return t.ApplicationSetByID(ctx, s.ID)
}

// PutApplicationSetStatus stores what is known of a set, if that is new. It
// does not change its version.
func (t *Tenant) PutApplicationSetStatus(ctx context.Context, id hub.ApplicationSetID, status hub.ApplicationSetStatus) error {
	if !hub.ValidID(string(id)) {
		return noSet()
	}
	text, err := jsonText(status)
	if err != nil {
		return err
	}
	n, err := exec(ctx, t.tx, "put status of application set", putSetStatus, t.id, id, text)
	if n > 0 {
		t.setChanged(id)
	}
	return err
}

// AcknowledgeSetRefresh removes the annotation that asked for a set to be
// generated.
func (t *Tenant) AcknowledgeSetRefresh(ctx context.Context, id hub.ApplicationSetID) error {
	if !hub.ValidID(string(id)) {
		return noSet()
	}
	n, err := exec(ctx, t.tx, "take refresh annotation", takeSetRefresh, t.id, id, hub.RefreshSetAnnotation, micro(time.Now()))
	if n > 0 {
		t.setChanged(id)
	}
	return err
}

// MarkSetDeleting notes that a set is to go, and what becomes of its
// applications, and has it reconciled. The first time stays.
func (t *Tenant) MarkSetDeleting(ctx context.Context, id hub.ApplicationSetID, how hub.SetDeletion) error {
	if !hub.ValidID(string(id)) {
		return noSet()
	}
	n, err := exec(ctx, t.tx, "mark deletion of application set", markSetDeleting, t.id, id, micro(time.Now()), how)
	if err != nil {
		return err
	}
	if n == 0 {
		return noSet()
	}
	t.setChanged(id)
	t.enqueue(hub.WorkApplicationSet, string(id), time.Now(), false)
	return nil
}

// RemoveApplicationSet deletes a set. Applications that it has generated stay
// and have no owner any more.
func (t *Tenant) RemoveApplicationSet(ctx context.Context, id hub.ApplicationSetID) error {
	if !hub.ValidID(string(id)) {
		return noSet()
	}
	members, err := t.SetMembers(ctx, id)
	if err != nil {
		return err
	}
	used, err := list(ctx, t.tx, "repositories of application set", pgx.RowTo[string], selectSetRepositories, t.id, id)
	if err != nil {
		return err
	}
	n, err := exec(ctx, t.tx, "delete application set", deleteSet, t.id, id)
	if err != nil {
		return err
	}
	if n == 0 {
		return noSet()
	}
	for _, m := range members {
		t.appChanged(m.Application)
	}
	t.removed(changeApplicationSet, string(id))
	return t.forgetRepositories(ctx, used)
}
