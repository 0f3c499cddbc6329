package inventory

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"go.etcd.io/bbolt"

	"github.com/capstan-cd/capstan/shared/diff"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// A Record says that an object of the cluster is ours: which application
// applied it, and what the API server stored.
type Record struct {
	App     string       `json:"-"`
	Key     manifest.Key `json:"-"`
	Version string       `json:"v"`
	Wave    int32        `json:"w,omitempty"`
	Owned   diff.Owned   `json:"o"`
	Hook    string       `json:"h,omitempty"` // id of the operation that made this hook; empty: an ordinary object
	Options []string     `json:"p,omitempty"` // the object's own sync options, such as "Prune=false"
	Merged  bool         `json:"m,omitempty"` // written by a merge against Applied instead of a server-side apply
	Marks   string       `json:"k,omitempty"` // Argo CD's marks that were written; empty: none
	Secret  *Secrets     `json:"s,omitempty"` // what was resolved in it; nil: nothing
	Resolve bool         `json:"r,omitempty"` // the application's placeholders were resolved when it was written
	From    string       `json:"f,omitempty"` // application, as in tracking ids, that has released the object and whose content is live; empty: App has written it
}

// Secrets says which fields of an object were resolved, without their values.
type Secrets struct {
	Hash  string     `json:"h"` // keyed hash of the values
	Paths [][]string `json:"p"`
}

// Owned returns the records of one application, in order of key.
func (s *Store) Owned(app string) []Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Record, 0, len(s.owned[app]))
	for _, r := range s.owned[app] {
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b Record) int { return strings.Compare(a.Key.String(), b.Key.String()) })
	return out
}

// Owners returns the applications that own objects.
func (s *Store) Owners() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]string, 0, len(s.owned))
	for app := range s.owned {
		out = append(out, app)
	}
	slices.Sort(out)
	return out
}

// Own records that an application owns an object. It replaces the record of the
// same application and key.
func (s *Store) Own(r Record) (*Commit, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.Owned.Fields = s.share(r.Owned.Fields)
	raw, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("write the record of %s: %w", r.Key, err)
	}
	of := s.owned[r.App]
	if of == nil {
		of = map[manifest.Key]Record{}
		s.owned[r.App] = of
	}
	of[r.Key] = r
	s.littered = true
	id := ownedID(r.App, r.Key)
	return s.put(func(tx *bbolt.Tx) error { return putIn(tx, bucketOwned, id, raw) }), nil
}

// Transfer moves the record of an object from one application to another in one
// write, so that on disk exactly one has it.
func (s *Store) Transfer(from string, r Record) (*Commit, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	raw, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("write the record of %s: %w", r.Key, err)
	}
	delete(s.owned[from], r.Key)
	if len(s.owned[from]) == 0 {
		delete(s.owned, from)
	}
	if s.owned[r.App] == nil {
		s.owned[r.App] = map[manifest.Key]Record{}
	}
	s.owned[r.App][r.Key] = r
	s.littered = true
	was, is := ownedID(from, r.Key), ownedID(r.App, r.Key)
	return s.put(func(tx *bbolt.Tx) error {
		if err := deleteIn(tx, bucketOwned, was); err != nil {
			return err
		}
		return putIn(tx, bucketOwned, is, raw)
	}), nil
}

// Disown deletes the record of an object.
func (s *Store) Disown(app string, key manifest.Key) *Commit {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.owned[app], key)
	s.littered = true
	if len(s.owned[app]) == 0 {
		delete(s.owned, app)
	}
	return s.put(func(tx *bbolt.Tx) error { return deleteIn(tx, bucketOwned, ownedID(app, key)) })
}

// ownedID is the key of a record on disk: application and object, with one
// prefix per application.
func ownedID(app string, key manifest.Key) string { return app + "\x00" + key.String() }

func deleteOwnedOf(tx *bbolt.Tx, app string) error {
	b := tx.Bucket([]byte(bucketOwned))
	prefix := []byte(app + "\x00")
	var stale [][]byte
	c := b.Cursor()
	for k, _ := c.Seek(prefix); k != nil && bytes.HasPrefix(k, prefix); k, _ = c.Next() {
		stale = append(stale, bytes.Clone(k))
	}
	for _, k := range stale {
		if err := b.Delete(k); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) loadOwned(tx *bbolt.Tx) error {
	return tx.Bucket([]byte(bucketOwned)).ForEach(func(k, v []byte) error {
		app, text, ok := strings.Cut(string(k), "\x00")
		if !ok {
			return fmt.Errorf("ownership record %q has no application", k)
		}
		key, err := manifest.ParseKey(text)
		if err != nil {
			return fmt.Errorf("ownership record %q: %w", k, err)
		}
		r := Record{App: app, Key: key}
		if err := json.Unmarshal(v, &r); err != nil {
			return fmt.Errorf("ownership record %q: %w", k, err)
		}
		r.Owned.Fields = s.share(r.Owned.Fields)
		if s.owned[app] == nil {
			s.owned[app] = map[manifest.Key]Record{}
		}
		s.owned[app][key] = r
		return nil
	})
}

// maxShared bounds the table of field sets; beyond it, a new one is started.
const maxShared = 4096

// share returns one copy of equal field sets: a cluster has thousands of
// objects and few distinct sets.
func (s *Store) share(fields []byte) []byte {
	if len(fields) == 0 {
		return nil
	}
	if held, ok := s.fields[string(fields)]; ok {
		return held
	}
	if len(s.fields) >= maxShared {
		s.fields = map[string][]byte{}
	}
	s.fields[string(fields)] = fields
	return fields
}
