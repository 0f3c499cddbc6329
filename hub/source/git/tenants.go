package git

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/capstan-cd/capstan/hub"
)

// Tenants returns whose mirrors there are, on disk or in memory.
func (m *Mirrors) Tenants() ([]hub.TenantID, error) {
	entries, err := os.ReadDir(m.cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("list the mirrors: %w", err)
	}
	var out []hub.TenantID
	for _, e := range entries {
		if e.IsDir() && hub.ValidID(e.Name()) {
			out = append(out, hub.TenantID(e.Name()))
		}
	}
	return out, nil
}

// RemoveTenant deletes all mirrors of a tenant. Fetches that run are waited
// for.
func (m *Mirrors) RemoveTenant(ctx context.Context, tenant hub.TenantID) error {
	if !hub.ValidID(string(tenant)) {
		return fmt.Errorf("%q is not the id of a tenant", tenant)
	}
	dir := filepath.Join(m.cfg.Dir, string(tenant))
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("list the mirrors of a tenant: %w", err)
	}
	repositories := map[hub.RepositoryID]bool{}
	for _, e := range entries {
		if hub.ValidID(e.Name()) {
			repositories[hub.RepositoryID(e.Name())] = true
		}
	}
	m.mu.Lock()
	for key := range m.all {
		if key.tenant == tenant {
			repositories[key.repo] = true
		}
	}
	m.mu.Unlock()
	for repo := range repositories {
		if err := m.Remove(ctx, tenant, repo); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove the folder of a tenant's mirrors: %w", err)
	}
	return nil
}
