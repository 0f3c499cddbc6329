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
	selectProjects = `
		SELECT id, tenant_id, namespace, name, labels, annotations, finalizers, spec::text, version, created_at, updated_at
		FROM   project
		WHERE  tenant_id = $1
		ORDER  BY name`
	selectProject = `
		SELECT id, tenant_id, namespace, name, labels, annotations, finalizers, spec::text, version, created_at, updated_at
		FROM   project
		WHERE  tenant_id = $1 AND name = $2`
	selectProjectsByName = `
		SELECT id, tenant_id, namespace, name, labels, annotations, finalizers, spec::text, version, created_at, updated_at
		FROM   project
		WHERE  tenant_id = $1 AND name = ANY ($2)`
	// What is set about all projects.
	selectProjectSettings = `
		SELECT key, value
		FROM   setting
		WHERE  tenant_id = $1 AND sealed IS NULL
		  AND  (map = '` + hub.SettingsMap + `' AND key IN ('` + hub.GlobalProjectsKey + `', '` + hub.PausesKey + `') OR map = '` + hub.ParamsMap + `' AND key = '` + hub.ApplicationNamespacesKey + `')`
	insertProject = `
		INSERT INTO project (tenant_id, id, namespace, name, labels, annotations, finalizers, spec, created_at, updated_at)
		VALUES (@tenant, @id, @namespace, @name, @labels, @annotations, @finalizers, @spec, @now, @now)`
	updateProject = `
		UPDATE project
		SET    namespace = @namespace, labels = @labels, annotations = @annotations, finalizers = @finalizers, spec = @spec, version = version + 1, updated_at = @now
		WHERE  tenant_id = @tenant AND name = @name AND (@version = 0 OR version = @version)
		RETURNING id, version, created_at`
	lockProject   = `SELECT id FROM project WHERE tenant_id = $1 AND name = $2 FOR UPDATE`
	shareProject  = `SELECT id FROM project WHERE tenant_id = $1 AND name = $2 FOR KEY SHARE`
	deleteProject = `DELETE FROM project WHERE tenant_id = $1 AND id = $2`
	projectUsers  = `SELECT count(*) FROM application WHERE tenant_id = $1 AND project = $2`
	// The applications of a project are refreshed when it changes, because it
	// decides what they may do.
	selectProjectApps = `SELECT id FROM application WHERE tenant_id = $1 AND project = $2`
)

func scanProject(row pgx.CollectableRow) (p hub.Project, err error) {
	err = row.Scan(&p.ID, &p.Tenant, &p.Namespace, &p.Name, &p.Labels, &p.Annotations, &p.Finalizers, (*rawJSON)(&p.Spec),
		&p.Version, &p.CreatedAt, &p.UpdatedAt)
	return p, err
}

// Projects returns all projects in order of name.
func (t *Tenant) Projects(ctx context.Context) ([]hub.Project, error) {
	return list(ctx, t.tx, "projects", scanProject, selectProjects, t.id)
}

// Project returns one project.
func (t *Tenant) Project(ctx context.Context, name string) (hub.Project, error) {
	p, err := one(ctx, t.tx, "project", scanProject, selectProject, t.id, name)
	return p, missing(err, "there is no project %q", name)
}

// ProjectSpecs returns those of the named projects that there are, with what
// they inherit.
func (t *Tenant) ProjectSpecs(ctx context.Context, names []string) (map[string]hub.Project, error) {
	var found []hub.Project
	values := map[string]string{}
	b := &pgx.Batch{}
	queueList(b, "projects", scanProject, &found, selectProjectsByName, t.id, nonNil(names))
	queueSettings(b, values, selectProjectSettings, t.id)
	if err := send(ctx, t.tx, "read projects", b); err != nil {
		return nil, err
	}
	if err := t.inherit(ctx, found, values[hub.GlobalProjectsKey]); err != nil {
		return nil, err
	}
	pauses := hub.ActivePauses(values[hub.PausesKey], time.Now())
	out := make(map[string]hub.Project, len(found))
	for _, p := range found {
		p.Pauses, p.AppNamespaces = pauses, values[hub.ApplicationNamespacesKey]
		out[p.Name] = p
	}
	return out, nil
}

// queueSettings reads settings by key, of a statement that selects both.
func queueSettings(b *pgx.Batch, into map[string]string, statement string, args ...any) {
	queueList(b, "settings", func(row pgx.CollectableRow) (key string, err error) {
		var value string
		err = row.Scan(&key, &value)
		into[key] = value
		return key, err
	}, new([]string), statement, args...)
}

// EffectiveProject is Project with what the project inherits.
func (t *Tenant) EffectiveProject(ctx context.Context, name string) (hub.Project, error) {
	found, err := t.ProjectSpecs(ctx, []string{name})
	if err != nil {
		return hub.Project{}, err
	}
	p, there := found[name]
	if !there {
		return p, fault.New(fault.Missing, "there is no project %q", name)
	}
	return p, nil
}

// inherit sets what projects inherit by a value of globalProjects; empty:
// nothing.
func (t *Tenant) inherit(ctx context.Context, projects []hub.Project, setting string) error {
	if setting == "" || len(projects) == 0 {
		return nil
	}
	all, _ := hub.ParseGlobalProjects(setting) // Inherit reports what is wrong with it
	var names []string
	for _, p := range projects {
		names = append(names, hub.GlobalsOf(all, p)...)
	}
	found := map[string]hub.Project{}
	if len(names) > 0 {
		globals, err := list(ctx, t.tx, "global projects", scanProject, selectProjectsByName, t.id, names)
		if err != nil {
			return err
		}
		for _, g := range globals {
			found[g.Name] = g
		}
	}
	for i := range projects {
		projects[i].Inherit(setting, found)
	}
	return nil
}

// RefreshProject lets the applications of a project be checked again.
func (t *Tenant) RefreshProject(ctx context.Context, name string) error {
	apps, err := list(ctx, t.tx, "applications of project", pgx.RowTo[string], selectProjectApps, t.id, name)
	now := time.Now()
	for _, app := range apps {
		t.enqueue(hub.WorkRefresh, app, now, false)
	}
	return err
}

// CreateProject makes a project. An empty ID or time is filled in.
func (t *Tenant) CreateProject(ctx context.Context, p hub.Project) (hub.Project, error) {
	if p.ID == "" {
		p.ID = hub.NewID[hub.ProjectID]()
	}
	if p.CreatedAt.IsZero() {
		p.CreatedAt = time.Now()
	}
	spec, err := givenSpec(p.Spec)
	if err != nil {
		return hub.Project{}, fault.With(err, "project "+p.Name, "")
	}
	p.Tenant, p.Version, p.CreatedAt = t.id, 1, micro(p.CreatedAt)
	p.UpdatedAt = p.CreatedAt
	_, err = exec(ctx, t.tx, "insert project", insertProject, pgx.StrictNamedArgs{
		"tenant": t.id, "id": p.ID, "namespace": p.Namespace, "name": p.Name, "labels": labels(p.Labels),
		"annotations": labels(p.Annotations), "finalizers": nonNil(p.Finalizers), "spec": spec, "now": p.CreatedAt,
	})
	if violates(err, "project_name") {
		return hub.Project{}, taken("project " + p.Name)
	}
	if err != nil {
		return hub.Project{}, err
	}
	return p, t.projectChanged(ctx, p)
}

// UpdateProject changes the project of that name. The error is fault.Conflict
// if its version is not the expected one; 0 expects any.
func (t *Tenant) UpdateProject(ctx context.Context, p hub.Project, expect int64) (hub.Project, error) {
	spec, err := givenSpec(p.Spec)
	if err != nil {
		return hub.Project{}, fault.With(err, "project "+p.Name, "")
	}
	p.Tenant, p.UpdatedAt = t.id, micro(time.Now())
	err = t.tx.QueryRow(ctx, updateProject, pgx.StrictNamedArgs{
		"tenant": t.id, "name": p.Name, "version": expect, "namespace": p.Namespace, "labels": labels(p.Labels),
		"annotations": labels(p.Annotations), "finalizers": nonNil(p.Finalizers), "spec": spec, "now": p.UpdatedAt,
	}).Scan(&p.ID, &p.Version, &p.CreatedAt)
	if err := missing(err, "not found"); fault.KindOf(err) == fault.Missing {
		if _, err := t.Project(ctx, p.Name); err != nil {
			return hub.Project{}, err
		}
		return hub.Project{}, stale("project " + p.Name)
	}
	if err != nil {
		return hub.Project{}, fmt.Errorf("update project %q: %w", p.Name, err)
	}
	if _, err := exec(ctx, t.tx, "end tokens of roles", endRoleTokens, t.id, p.ID); err != nil {
		return hub.Project{}, err
	}
	return p, t.projectChanged(ctx, p)
}

// projectChanged invalidates rights, because projects have roles, and lets the
// project's applications be checked again.
func (t *Tenant) projectChanged(ctx context.Context, p hub.Project) error {
	if err := t.RefreshProject(ctx, p.Name); err != nil {
		return err
	}
	if err := t.wakeSets(ctx, setsOfProject, t.id, p.Name); err != nil {
		return err
	}
	t.changed(changeProject, string(p.ID))
	return t.bumpPolicy(ctx)
}

// DeleteProject removes a project. The error is fault.Conflict while
// applications use it.
func (t *Tenant) DeleteProject(ctx context.Context, name string) error {
	var id string
	if err := t.tx.QueryRow(ctx, lockProject, t.id, name).Scan(&id); err != nil {
		return missing(err, "there is no project %q", name)
	}
	var apps int
	if err := t.tx.QueryRow(ctx, projectUsers, t.id, name).Scan(&apps); err != nil {
		return fmt.Errorf("count applications of project %q: %w", name, err)
	}
	if apps > 0 {
		return fault.With(fault.New(fault.Conflict, "%d applications use it", apps), "project "+name, "move or delete them first")
	}
	if _, err := exec(ctx, t.tx, "delete project", deleteProject, t.id, id); err != nil {
		return err
	}
	t.removed(changeProject, id)
	return t.bumpPolicy(ctx)
}

// rawJSON reads a json column that was cast to text, byte for byte.
type rawJSON json.RawMessage

// Scan decodes the text.
func (r *rawJSON) Scan(src any) error {
	switch v := src.(type) {
	case nil:
		*r = nil
	case string:
		*r = rawJSON(v)
	case []byte:
		*r = append(rawJSON(nil), v...)
	default:
		return fmt.Errorf("json column holds %T", src)
	}
	return nil
}

// givenSpec checks a spec before the database would.
func givenSpec(spec json.RawMessage) (string, error) {
	if len(spec) == 0 {
		return "{}", nil
	}
	if !json.Valid(spec) {
		return "", fault.New(fault.Invalid, "spec is no valid JSON")
	}
	return string(spec), nil
}
