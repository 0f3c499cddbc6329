package tenancy

import (
	"cmp"
	"context"
	"slices"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/access"
	"github.com/capstan-cd/capstan/hub/catalog/transact"
	"github.com/capstan-cd/capstan/hub/catalog/validation"
	"github.com/capstan-cd/capstan/hub/signature"
	"github.com/capstan-cd/capstan/shared/fault"
)

// PublicKeys lists the public keys that signatures of the tenant's commits are
// checked with, in order of their ids. What cannot be read is left out: nothing
// trusts it (CRED-19).
func (c *Tenancy) PublicKeys(ctx context.Context, by hub.Caller) ([]signature.Key, error) {
	var out []signature.Key
	err := c.read(ctx, by, func(ctx context.Context, r *reader) error {
		out = nil
		if err := r.May(access.GPGKeys, access.Get); err != nil {
			return err
		}
		all, _, err := r.Tx.Settings(ctx)
		for _, s := range all {
			if s.Map != hub.GPGKeysMap || !r.Rights.Check(access.GPGKeys, access.Get, s.Key) {
				continue
			}
			if keys, err := signature.ParseKeys(s.Value); err == nil {
				out = append(out, keys...)
			}
		}
		return err
	})
	slices.SortFunc(out, func(a, b signature.Key) int { return cmp.Compare(a.ID, b.ID) })
	return out, err
}

// PublicKey returns one key by its id or fingerprint.
func (c *Tenancy) PublicKey(ctx context.Context, by hub.Caller, id string) (signature.Key, error) {
	all, err := c.PublicKeys(ctx, by)
	if err != nil {
		return signature.Key{}, err
	}
	normal, _ := hub.NormalKeyID(id)
	for _, k := range all {
		if normal != "" && (k.ID == normal || k.Fingerprint == normal) {
			return k, nil
		}
	}
	return signature.Key{}, transact.Missing(access.GPGKeys, validation.Shorten(id))
}

// AddPublicKeys stores the keys of a text, and tells which of them were there
// before. Others of the same id are replaced only if upsert is set. All are
// stored, or none.
func (c *Tenancy) AddPublicKeys(ctx context.Context, by hub.Caller, text string, upsert bool) (added []signature.Key, skipped []string, err error) {
	keys, err := signature.ParseKeys(text)
	if err != nil {
		return nil, nil, err
	}
	err = c.write(ctx, by, func(ctx context.Context, w *writer) error {
		added, skipped = nil, nil
		if err := w.LockSettings(ctx); err != nil {
			return err
		}
		var changes []hub.SettingChange
		for i := range keys {
			old, err := w.SettingValues(ctx, hub.GPGKeysMap, []string{keys[i].ID})
			if err != nil {
				return err
			}
			before, there := old[keys[i].ID]
			change := hub.SettingChange{Map: hub.GPGKeysMap, Key: keys[i].ID, Value: &keys[i].Text}
			same := there && sameKey(before, keys[i])
			if err := w.needStored(access.GPGKeys, change, there && !same); err != nil {
				return err
			}
			switch {
			case same:
				skipped = append(skipped, keys[i].ID)
				continue
			case there && !upsert:
				return fault.With(fault.New(fault.Conflict, "another form of it is stored"), "key "+keys[i].ID, "if this one is to take its place, add it with --upsert")
			}
			changes = append(changes, change)
			added = append(added, keys[i])
		}
		if len(changes) == 0 {
			return nil
		}
		_, _, err := w.patchSettings(ctx, changes, 0)
		return err
	})
	return added, skipped, err
}

func sameKey(text string, k signature.Key) bool {
	old, err := signature.ParseKeys(text)
	return err == nil && len(old) == 1 && old[0].Text == k.Text
}

// DeletePublicKey deletes a key by its id. Commits that only it has signed are
// refused from then on where a project demands signatures.
func (c *Tenancy) DeletePublicKey(ctx context.Context, by hub.Caller, id string) error {
	normal, ok := hub.NormalKeyID(id)
	if !ok || len(normal) != 16 {
		return transact.Missing(access.GPGKeys, validation.Shorten(id))
	}
	return c.write(ctx, by, func(ctx context.Context, w *writer) error {
		if !w.Rights.Check(access.GPGKeys, access.Get, normal) {
			return w.Refuse(access.GPGKeys, access.Delete, normal, transact.Missing(access.GPGKeys, normal))
		}
		if err := w.Need(access.GPGKeys, access.Delete, normal); err != nil {
			return err
		}
		old, err := w.SettingValues(ctx, hub.GPGKeysMap, []string{normal})
		if err != nil {
			return err
		}
		if _, there := old[normal]; !there {
			return transact.Missing(access.GPGKeys, normal)
		}
		_, _, err = w.patchSettings(ctx, []hub.SettingChange{{Map: hub.GPGKeysMap, Key: normal}}, 0)
		return err
	})
}
