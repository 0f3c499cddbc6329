package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/capstan-cd/capstan/hub"
)

const (
	lockRepository = `SELECT error, error_at, error_since FROM repository WHERE tenant_id = $1 AND id = $2 FOR NO KEY UPDATE`
	failFetch      = `UPDATE repository SET error = $3, error_at = $4, error_since = coalesce(error_since, $4) WHERE tenant_id = $1 AND id = $2`
	finishFetch    = `UPDATE repository SET fetched_at = $3, error = '', error_at = NULL, error_since = NULL WHERE tenant_id = $1 AND id = $2`
	deleteRefs     = `DELETE FROM ref WHERE tenant_id = $1 AND repository_id = $2 AND NOT name = ANY ($3)`
	upsertRefs     = `
		INSERT INTO ref AS r (tenant_id, repository_id, name, commit)
		SELECT $1, $2, u.name, u.commit FROM unnest($3::text[], $4::text[]) AS u (name, commit)
		ON CONFLICT (tenant_id, repository_id, name) DO UPDATE SET commit = excluded.commit
		WHERE r.commit <> excluded.commit`
	// What the version is follows from the next fetch.
	acceptContents = `
		UPDATE ref SET commit = split_part(commit, ' ', 1) || ' ' || $4
		WHERE  tenant_id = $1 AND repository_id = $2 AND name = ANY ($3)`
	selectRefs = `
		SELECT name, commit
		FROM   ref
		WHERE  tenant_id = $1 AND repository_id = $2
		ORDER  BY name`
	// Applications whose annotation requested a refresh wait for the end of the
	// fetch, whatever its result.
	selectAskingApps = `
		SELECT DISTINCT s.application_id
		FROM   app_source s
		JOIN   application a ON a.tenant_id = s.tenant_id AND a.id = s.application_id
		WHERE  s.tenant_id = $1 AND s.repository_id = $2 AND a.annotations ?| $3`
	selectRepositoryApps = `SELECT DISTINCT application_id FROM app_source WHERE tenant_id = $1 AND repository_id = $2`
)

// Fetched stores the result of a fetch: refs, or an error, which leaves the
// refs as they were. When a ref changed, and when an error began or ended,
// every application that uses the repository is refreshed. If asked is set, it
// is refreshed in any case. It reports whether a ref changed.
func (t *Tenant) Fetched(ctx context.Context, id hub.RepositoryID, refs []hub.Ref, at time.Time, sentence string, asked bool) (bool, error) {
	if !hub.ValidID(string(id)) {
		return false, noRepository()
	}
	var before fetchError
	if err := t.tx.QueryRow(ctx, lockRepository, t.id, id).Scan(&before.sentence, &before.last, &before.since); err != nil {
		return false, missing(err, "there is no such repository")
	}
	if sentence = clean(sentence); sentence != "" {
		return false, t.fetchFailed(ctx, id, before, sentence, at, asked)
	}
	changed, asking, err := t.replaceRefs(ctx, id, refs, at)
	if err != nil {
		return false, err
	}
	if !changed && before.sentence == "" && !asked {
		for _, app := range asking {
			t.enqueue(hub.WorkRefresh, app, at, false)
		}
		return false, nil
	}
	// Other commits show in an application once it has been refreshed.
	return changed, t.repositoryMoved(ctx, id, at, before.sentence != "" || !changed)
}

// A fetchError is the error that fetches of a repository end with.
type fetchError struct {
	sentence    string     // empty: they do not
	last, since *time.Time // when it was seen last and first
}

// outgrows reports whether the error has lasted for hub.ErrorGrace now, and had
// not when it was seen last.
func (e fetchError) outgrows(at time.Time) bool {
	if e.since == nil || e.last == nil {
		return false
	}
	end := e.since.Add(hub.ErrorGrace)
	return e.last.Before(end) && !at.Before(end)
}

func (t *Tenant) fetchFailed(ctx context.Context, id hub.RepositoryID, before fetchError, sentence string, at time.Time, asked bool) error {
	if _, err := exec(ctx, t.tx, "store fetch error", failFetch, t.id, id, sentence, micro(at)); err != nil {
		return err
	}
	if before.sentence == sentence && !asked && !before.outgrows(at) {
		return t.askedAgain(ctx, id, at)
	}
	return t.repositoryMoved(ctx, id, at, true) // its applications say so from now on
}

// replaceRefs stores the refs of a fetch, and that it was done at that time. It
// reports whether a ref changed, and returns the applications whose annotation
// requests a refresh.
func (t *Tenant) replaceRefs(ctx context.Context, id hub.RepositoryID, refs []hub.Ref, at time.Time) (changed bool, asking []string, err error) {
	byName := make(map[string]string, len(refs))
	for _, r := range refs {
		byName[r.Name] = r.Commit
	}
	names, commits := make([]string, 0, len(byName)), make([]string, 0, len(byName))
	for name, commit := range byName {
		names, commits = append(names, name), append(commits, commit)
	}
	count := func(tag pgconn.CommandTag) error {
		changed = changed || tag.RowsAffected() > 0
		return nil
	}
	b := &pgx.Batch{}
	b.Queue(deleteRefs, t.id, id, names).Exec(count)
	b.Queue(upsertRefs, t.id, id, names, commits).Exec(count)
	b.Queue(finishFetch, t.id, id, micro(at))
	queueList(b, "applications that ask for a look", pgx.RowTo[string], &asking, selectAskingApps, t.id, id, hub.RefreshAnnotations())
	err = send(ctx, t.tx, fmt.Sprintf("replace refs of %q", id), b)
	return changed, asking, err
}

// repositoryMoved refreshes the applications that use the repository. Shown
// means that users can see a change in them before that.
func (t *Tenant) repositoryMoved(ctx context.Context, id hub.RepositoryID, at time.Time, shown bool) error {
	apps, err := list(ctx, t.tx, "applications of repository", pgx.RowTo[string], selectRepositoryApps, t.id, id)
	if err != nil {
		return err
	}
	for _, app := range apps {
		t.enqueue(hub.WorkRefresh, app, at, false)
		if shown {
			t.changed(changeApplication, app)
		}
	}
	t.changed(changeRepository, string(id))
	return t.wakeSets(ctx, setsOfRepository, t.id, id)
}

// askedAgain refreshes the applications of the repository whose annotation
// requests it.
func (t *Tenant) askedAgain(ctx context.Context, id hub.RepositoryID, at time.Time) error {
	apps, err := list(ctx, t.tx, "applications that ask for a look", pgx.RowTo[string], selectAskingApps, t.id, id, hub.RefreshAnnotations())
	for _, app := range apps {
		t.enqueue(hub.WorkRefresh, app, at, false)
	}
	return err
}

// Refs returns the refs of a repository in order of name.
func (t *Tenant) Refs(ctx context.Context, id hub.RepositoryID) ([]hub.Ref, error) {
	if !hub.ValidID(string(id)) {
		return nil, noRepository()
	}
	return list(ctx, t.tx, "refs", pgx.RowToStructByName[hub.Ref], selectRefs, t.id, id)
}

// AcceptContents has the next fetch of a repository take whatever contents the
// versions have that some refs stand for (decision 0096).
func (t *Tenant) AcceptContents(ctx context.Context, id hub.RepositoryID, refs []string) error {
	if !hub.ValidID(string(id)) {
		return noRepository()
	}
	_, err := exec(ctx, t.tx, "accept contents", acceptContents, t.id, id, nonNil(refs), hub.AcceptedContents)
	return err
}
