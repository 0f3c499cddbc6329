package inventory

import (
	"fmt"

	"go.etcd.io/bbolt"
	"google.golang.org/protobuf/proto"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/hashchain"
)

const keySettings = "settings"

// settings are the newest of the desired log. Root and bucket hashes include
// them like the state of an application, with a fixed id.
type settings struct {
	id   string
	leaf [32]byte
	body *linkv1.Settings // never changed in place
}

// Settings returns the tenant's settings for agents; nil if the desired log has
// none. Callers must not change it.
func (s *Store) Settings() *linkv1.Settings {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.settings == nil {
		return nil
	}
	return s.settings.body
}

func (s *Store) loadSettings(tx *bbolt.Tx) error {
	raw := tx.Bucket([]byte(bucketMeta)).Get([]byte(keySettings))
	if raw == nil {
		return nil
	}
	var row linkv1.Row
	if err := proto.Unmarshal(raw, &row); err != nil {
		return fmt.Errorf("read the settings: %w", err)
	}
	held, err := newSettings(&row)
	s.settings = held
	return err
}

func newSettings(row *linkv1.Row) (*settings, error) {
	var body linkv1.Settings
	if err := proto.Unmarshal(row.GetBody(), &body); err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "row %d of the desired log has no valid settings", row.GetSeq())
	}
	return &settings{id: row.GetAppId(), leaf: hashchain.Leaf(row.GetAppId(), row.GetBody()), body: &body}, nil
}

// settings replaces the settings.
func (st *stage) settings(row *linkv1.Row) error {
	held, err := newSettings(row)
	if err != nil {
		return err
	}
	raw, err := proto.Marshal(&linkv1.Row{Seq: row.GetSeq(), AppId: row.GetAppId(), Body: row.GetBody()})
	if err != nil {
		return fmt.Errorf("write row %d: %w", row.GetSeq(), err)
	}
	st.then(func() { st.s.settings = held }, func(tx *bbolt.Tx) error { return putIn(tx, bucketMeta, keySettings, raw) })
	st.changes.Settings = true
	return nil
}

// forgetSettings restores the defaults.
func (st *stage) forgetSettings() {
	if st.s.settings == nil {
		return
	}
	st.then(func() { st.s.settings = nil }, func(tx *bbolt.Tx) error { return deleteIn(tx, bucketMeta, keySettings) })
	st.changes.Settings = true
}
