package store

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/capstan-cd/capstan/hub"
)

const selectResources = `
	SELECT cluster_id, application_id, uid, parent, api_group, version, kind, namespace, name, managed, sync, health, message,
	       requires_prune, hook, wave, diff, info, born_at, updated_at, links, confirm
	FROM   resource
	WHERE  tenant_id = $1 AND application_id = $2
	ORDER  BY kind, api_group, namespace, name, cluster_id`

// fingerprint returns the columns of a resource as text and a hash of all that
// users see of it; equal hashes cost no write.
func fingerprint(r hub.Resource) (info *string, hash []byte, err error) {
	if len(r.Info) > 0 {
		text, err := jsonText(r.Info)
		if err != nil {
			return nil, nil, err
		}
		info = &text
	}
	r.UpdatedAt, r.Stamp = time.Time{}, nil
	all, err := json.Marshal(r)
	if err != nil {
		return nil, nil, fmt.Errorf("hash resource: %w", err)
	}
	sum := sha256.Sum256(all)
	return info, sum[:16], nil
}

// listText writes a list as JSON; nil if it is empty.
func listText(list []string) (*string, error) {
	if len(list) == 0 {
		return nil, nil
	}
	text, err := jsonText(list)
	return &text, err
}

// Resources returns the tree of an application as its agents last saw it.
func (t *Tenant) Resources(ctx context.Context, app hub.ApplicationID) ([]hub.Resource, error) {
	if !hub.ValidID(string(app)) {
		return nil, noApp()
	}
	return list(ctx, t.tx, "resources", func(row pgx.CollectableRow) (r hub.Resource, err error) {
		var info, links []byte
		err = row.Scan(&r.Cluster, &r.Application, &r.UID, &r.Parent, &r.Group, &r.Version, &r.Kind, &r.Namespace, &r.Name, &r.Managed,
			&r.Sync, &r.Health, &r.Message, &r.RequiresPrune, &r.Hook, &r.Wave, &r.DiffSummary, &info, &r.CreatedAt, &r.UpdatedAt, &links, &r.Confirm)
		r.Orphan = !r.Managed && r.Parent == "" && !r.Hook // what is neither managed nor owned by anything
		if err == nil && info != nil {
			err = json.Unmarshal(info, &r.Info)
		}
		if err == nil && links != nil {
			err = json.Unmarshal(links, &r.Links)
		}
		return r, err
	}, selectResources, t.id, app)
}
