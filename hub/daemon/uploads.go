package daemon

import (
	"context"
	"io"
	"path/filepath"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/settings"
	"github.com/capstan-cd/capstan/hub/source/archives"
	"github.com/capstan-cd/capstan/hub/store"
)

// addUploads lets callers have their own files rendered.
func (p *parts) addUploads() error {
	unpacked, err := archives.NewUploads(filepath.Join(p.cfg.StateDir, "uploads"))
	if err != nil {
		return err
	}
	p.stage.Receives(uploads{p.db, unpacked})
	return nil
}

// uploads receives archives within the limits of their tenant.
type uploads struct {
	db       *store.DB
	unpacked *archives.Uploads
}

// Receive reads an archive to its end.
func (u uploads) Receive(ctx context.Context, tenant hub.TenantID, from io.Reader) (t hub.Tree, end func(), err error) {
	var values map[string]string
	err = u.db.ReadTenant(ctx, tenant, func(ctx context.Context, t *store.Tenant) error {
		values, err = t.SettingValues(ctx, hub.ParamsMap, []string{hub.UploadSizeKey, hub.UploadExtractedKey})
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	return u.unpacked.Receive(ctx, from, archives.UploadLimits{
		Packed: settings.Size(values[hub.UploadSizeKey]), Bytes: settings.Size(values[hub.UploadExtractedKey]),
	})
}
