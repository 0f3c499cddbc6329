package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

// The owners of conditions. Each replaces only its own.
const (
	byRefresh  = "refresh"
	byDispatch = "dispatch"
	byAgent    = "agent"
)

const (
	// A new target has not been compared yet: it cannot be Synced, and what the
	// agent reported of the old one is void.
	setTargets = `
		UPDATE application_status s
		SET    target_id   = nullif(u.target, '')::uuid,
		       accepted_id = coalesce(nullif(u.accepted, '')::uuid, s.accepted_id),
		       revision = u.revision, revisions = u.revisions::text[],
		       source_type = u.source_type, resources = u.resources,
		       pin  = CASE WHEN u.unpin THEN NULL ELSE coalesce(u.pin::json, s.pin) END,
		       hold = u.hold, deletion_hooks = u.hooks::text[],
		       generation = u.generation, planned_generation = u.generation, planned_project = u.project,
		       refreshed_at = CASE WHEN u.looked THEN @now ELSE s.refreshed_at END,
		       sync        = CASE WHEN s.target_id IS NOT DISTINCT FROM nullif(u.target, '')::uuid THEN s.sync
		                          WHEN s.target_id IS NULL THEN s.sync ELSE 'OutOfSync' END,
		       compared_at = CASE WHEN s.target_id IS NOT DISTINCT FROM nullif(u.target, '')::uuid THEN s.compared_at END,
		       operation_id = coalesce(nullif(u.operation, '')::uuid, s.operation_id)
		FROM   unnest(@apps::uuid[], @targets::text[], @accepted::text[], @revisions::text[], @each_revisions::text[], @source_types::text[],
		              @resources::integer[], @pins::text[], @unpin::boolean[], @holds::text[], @generations::bigint[], @projects::bigint[],
		              @hooks::text[], @refreshed::boolean[], @operations::text[])
		       AS u (app, target, accepted, revision, revisions, source_type, resources, pin, unpin, hold, generation, project, hooks, looked, operation)
		WHERE  s.tenant_id = @tenant AND s.application_id = u.app AND s.generation <= u.generation`
	setUnchanged = `
		UPDATE application_status s
		SET    revision = u.revision, revisions = u.revisions::text[], refreshed_at = u.at
		FROM   unnest(@apps::uuid[], @revisions::text[], @each_revisions::text[], @times::timestamptz[]) AS u (app, revision, revisions, at)
		JOIN   application_status before ON before.tenant_id = @tenant AND before.application_id = u.app
		WHERE  s.tenant_id = @tenant AND s.application_id = u.app
		RETURNING s.application_id AS app, before.revision <> u.revision OR before.revisions <> u.revisions::text[] AS moved`

	// The time of a condition does not change when it is reported again.
	dropConditions = `
		DELETE FROM condition c
		USING  unnest(@apps::uuid[]) AS a (app)
		WHERE  c.tenant_id = @tenant AND c.application_id = a.app AND c.owner = @owner AND c.type = ANY (@types)
		  AND  NOT EXISTS (
		         SELECT FROM unnest(@now_apps::uuid[], @now_types::text[], @now_messages::text[]) AS u (app, type, message)
		         WHERE  u.app = c.application_id AND u.type = c.type AND u.message = c.message)
		RETURNING c.application_id`
	putConditions = `
		INSERT INTO condition (tenant_id, application_id, owner, type, message, since)
		SELECT @tenant, a.id, @owner, u.type, u.message, @now
		FROM   (SELECT DISTINCT * FROM unnest(@apps::uuid[], @types::text[], @messages::text[]) AS u (app, type, message)) AS u
		JOIN   application a ON a.tenant_id = @tenant AND a.id = u.app
		ON CONFLICT (tenant_id, application_id, owner, type, message_hash) DO NOTHING
		RETURNING application_id`
)

// A conditionRow is one condition of one application.
type conditionRow struct {
	app     hub.ApplicationID
	kind    string
	message string
}

// replaceConditions replaces the owner's conditions of these types and
// applications by the given ones, in two statements.
func (t *Tenant) replaceConditions(ctx context.Context, owner string, types []string, apps []hub.ApplicationID, now []conditionRow) error {
	var app, kind, message []string
	for _, s := range now {
		app, kind, message = append(app, string(s.app)), append(kind, s.kind), append(message, clean(s.message))
	}
	b := &pgx.Batch{}
	b.Queue(dropConditions, pgx.StrictNamedArgs{
		"tenant": t.id, "apps": ids(apps), "owner": owner, "types": types, "now_apps": nonNil(app), "now_types": nonNil(kind),
		"now_messages": nonNil(message),
	})
	if len(now) > 0 {
		b.Queue(putConditions, pgx.StrictNamedArgs{
			"tenant": t.id, "owner": owner, "now": micro(time.Now()), "apps": app, "types": kind, "messages": message,
		})
	}
	results := t.tx.SendBatch(ctx, b)
	defer results.Close()
	for range b.Len() {
		rows, err := results.Query()
		if err != nil {
			return fmt.Errorf("replace conditions: %w", err)
		}
		touched, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return fmt.Errorf("replace conditions: %w", err)
		}
		for _, id := range touched {
			t.changed(changeApplication, id)
		}
	}
	return results.Close()
}

// refreshErrors are the types of conditions that every refresh decides.
func refreshErrors() []string { return []string{hub.ComparisonError, hub.InvalidSpecError} }

// SetTargets sets the snapshots that applications are compared with. Where
// Accepted is set, it also sets what is enforced. Errors of earlier refreshes
// are cleared where the sources were refreshed. The error is fault.Conflict if
// an application has a higher generation than the change or is gone: an older
// one never wins.
func (t *Tenant) SetTargets(ctx context.Context, changes []hub.TargetChange) error {
	if len(changes) == 0 {
		return nil
	}
	var columns targetColumns
	var seen, unseen evaluated
	for i := range changes {
		c := &changes[i]
		if err := columns.add(c); err != nil {
			return err
		}
		if c.Refreshed {
			seen.add(c)
		} else {
			unseen.add(c)
		}
		t.appChanged(c.Application)
	}
	n, err := exec(ctx, t.tx, "set targets", setTargets, columns.args(t.id, time.Now()))
	if code(err) == foreignKeyViolation {
		return fault.New(fault.Conflict, "a snapshot that was to be the target does not exist")
	}
	if err != nil {
		return err
	}
	if int(n) != len(changes) {
		return fault.New(fault.Conflict, "%d of %d applications were changed or deleted meanwhile", len(changes)-int(n), len(changes))
	}
	if len(seen.apps) > 0 {
		if err := t.replaceConditions(ctx, byRefresh, append(refreshErrors(), hub.RenderWarning, hub.ImpureWarning), seen.apps, seen.warnings); err != nil {
			return err
		}
	}
	if len(unseen.apps) == 0 {
		return nil
	}
	return t.replaceConditions(ctx, byRefresh, []string{hub.RenderWarning, hub.ImpureWarning}, unseen.apps, unseen.warnings)
}

// targetColumns are target changes by column.
type targetColumns struct {
	app, target, accepted, operation []string
	revision, revisions, sourceType  []string
	pin                              []*string
	hold, hooks                      []string
	unpin, refreshed                 []bool
	resources                        []int32
	generation, project              []int64
}

func (v *targetColumns) add(c *hub.TargetChange) error {
	var pin *string
	if c.Pin != nil {
		text, err := jsonText(c.Pin)
		if err != nil {
			return err
		}
		pin = &text
	}
	v.app, v.target, v.accepted = append(v.app, string(c.Application)), append(v.target, string(c.Target)), append(v.accepted, string(c.Accepted))
	v.revision, v.revisions, v.sourceType = append(v.revision, c.Revision), append(v.revisions, arrayText(c.Revisions)), append(v.sourceType, c.SourceType)
	v.pin, v.unpin, v.hold = append(v.pin, pin), append(v.unpin, c.Unpin), append(v.hold, c.Hold)
	v.resources, v.generation, v.project = append(v.resources, int32(c.Resources)), append(v.generation, c.Generation), append(v.project, c.Project)
	v.hooks, v.refreshed, v.operation = append(v.hooks, arrayText(c.DeletionHooks)), append(v.refreshed, c.Refreshed), append(v.operation, string(c.Operation))
	return nil
}

func (v *targetColumns) args(tenant hub.TenantID, now time.Time) pgx.StrictNamedArgs {
	return pgx.StrictNamedArgs{
		"tenant": tenant, "now": micro(now), "apps": v.app, "targets": v.target, "accepted": v.accepted, "operations": v.operation,
		"revisions": v.revision, "each_revisions": v.revisions, "source_types": v.sourceType, "resources": v.resources,
		"pins": v.pin, "unpin": v.unpin, "holds": v.hold, "generations": v.generation, "projects": v.project,
		"hooks": v.hooks, "refreshed": v.refreshed,
	}
}

// impure is what people see of a target that is not the same each time.
const impure = "templates use random values or the time, so each render differs; it is rendered anew only when its inputs change: give the values explicitly"

// An evaluated are the conditions that renders set on applications.
type evaluated struct {
	apps     []hub.ApplicationID
	warnings []conditionRow
}

func (e *evaluated) add(c *hub.TargetChange) {
	e.apps = append(e.apps, c.Application)
	for _, w := range c.Warnings {
		e.warnings = append(e.warnings, conditionRow{c.Application, hub.RenderWarning, w})
	}
	if c.Impure {
		e.warnings = append(e.warnings, conditionRow{c.Application, hub.ImpureWarning, impure})
	}
}

// Unchanged records that applications were refreshed without a new target, and
// clears the errors of earlier refreshes. It appears in the feed only where the
// revision or a condition changed.
func (t *Tenant) Unchanged(ctx context.Context, apps []hub.Unchanged) error {
	if len(apps) == 0 {
		return nil
	}
	var id, revision, revisions []string
	var at []time.Time
	var all []hub.ApplicationID
	for _, u := range apps {
		id, revision, revisions, at = append(id, string(u.Application)), append(revision, u.Revision), append(revisions, arrayText(u.Revisions)), append(at, micro(u.RefreshedAt))
		all = append(all, u.Application)
	}
	type noted struct {
		App   string
		Moved bool
	}
	found, err := list(ctx, t.tx, "unchanged applications", pgx.RowToStructByName[noted], setUnchanged, pgx.StrictNamedArgs{
		"tenant": t.id, "apps": id, "revisions": revision, "each_revisions": revisions, "times": at,
	})
	if err != nil {
		return err
	}
	for _, n := range found {
		if n.Moved {
			t.changed(changeApplication, n.App)
		}
	}
	return t.replaceConditions(ctx, byRefresh, refreshErrors(), all, nil)
}

// SetFailures stores why applications could not be refreshed. The time of a
// repeated failure does not change.
func (t *Tenant) SetFailures(ctx context.Context, failures []hub.RefreshFailure) error {
	var apps []hub.ApplicationID
	var now []conditionRow
	for _, f := range failures {
		if !hub.ValidID(string(f.Application)) {
			continue
		}
		apps = append(apps, f.Application)
		now = append(now, conditionRow{f.Application, f.Condition, f.Message})
	}
	return t.replaceConditions(ctx, byRefresh, refreshErrors(), apps, now)
}

// SetCondition sets one condition of an application; an empty message
// removes it.
func (t *Tenant) SetCondition(ctx context.Context, app hub.ApplicationID, kind, message string) error {
	if !hub.ValidID(string(app)) {
		return noApp()
	}
	var now []conditionRow
	if message != "" {
		now = []conditionRow{{app, kind, message}}
	}
	return t.replaceConditions(ctx, byDispatch, []string{kind}, []hub.ApplicationID{app}, now)
}

// appsOf returns the distinct applications of some values.
func appsOf[T any](in []T, app func(T) hub.ApplicationID) []hub.ApplicationID {
	out := make([]hub.ApplicationID, 0, len(in))
	for _, v := range in {
		out = append(out, app(v))
	}
	slices.Sort(out)
	return slices.Compact(out)
}
