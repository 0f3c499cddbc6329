// Package inventory is the agent's durable state: the received desired log,
// encrypted objects, ownership records of applied objects, and operations that
// are open or not yet acknowledged. It sends no requests to the cluster or the
// hub, and makes no decisions. The engine and the daemon call it. Acknowledged
// data is on disk, reads never wait for the disk, and writes are applied in
// order.
package inventory

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/failpoint"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// File is the name of the database inside the state directory.
const File = "inventory.db"

// lockWait is how long Open waits for another agent process of the same
// directory to end.
const lockWait = 5 * time.Second

// The buckets of the file.
const (
	bucketMeta  = "meta"
	bucketApps  = "apps"
	bucketBlobs = "blobs"
	bucketOwned = "owned"
	bucketOps   = "operations"
)

// A Store is the agent's durable state. Reads use a copy in memory; writes are
// queued for one writer, Run, which commits them in groups.
type Store struct {
	db       *bbolt.DB
	instance string
	wake     chan struct{}

	mu       sync.Mutex
	pending  []write
	broken   error // error of the first failed commit; nothing is accepted after it
	cursor   Cursor
	durable  Cursor // cursor of the last commit
	guard    Cursor // newest cursor from elsewhere; a hub whose log ends before it is rewound
	rewound  string // why no rows are accepted from the hub; empty: none
	held     string // the hub's reason to hold deletions; empty: none
	apps     map[string]*App
	settings *settings                          // nil: the log has no settings
	owned    map[string]map[manifest.Key]Record // by application
	ops      map[string]*Operation
	littered bool              // blobs may have lost their last reference since Collect
	fields   map[string][]byte // one copy of each distinct field set
	fresh    map[string][]byte // blobs queued for the disk, by digest: they are usable before they are durable
}

type write struct {
	apply func(tx *bbolt.Tx) error
	done  *Commit
	blobs []*linkv1.Blob // blobs of the commit
}

// A Commit is a queued write.
type Commit struct {
	done chan struct{}
	err  error
}

// Wait returns when the write is durable, or the error for which it never will
// be.
func (c *Commit) Wait(ctx context.Context) error {
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		return fmt.Errorf("wait for the inventory's disk: %w", context.Cause(ctx))
	}
}

// Open opens or creates the inventory in a directory. Only one process can open
// it; a second one gets an error.
func Open(dir string) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "the state directory %q cannot be made", dir)
	}
	path := filepath.Join(dir, File)
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{
		Timeout: lockWait, NoFreelistSync: true, FreelistType: bbolt.FreelistMapType,
	})
	if errors.Is(err, bbolterrors.ErrTimeout) {
		return nil, fault.New(fault.Conflict, "the state directory %q is in use by another agent process", dir)
	}
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "the inventory %q cannot be opened; delete it to have it rebuilt from the hub", path)
	}
	s := &Store{
		db:     db,
		wake:   make(chan struct{}, 1),
		apps:   map[string]*App{},
		owned:  map[string]map[manifest.Key]Record{},
		ops:    map[string]*Operation{},
		fields: map[string][]byte{}, littered: true,
		fresh: map[string][]byte{},
	}
	if err := s.load(); err != nil {
		return nil, errors.Join(fmt.Errorf("read inventory %q: %w", path, err), db.Close())
	}
	return s, nil
}

// load creates the buckets and fills the copy in memory.
func (s *Store) load() error {
	return s.db.Update(func(tx *bbolt.Tx) error {
		for _, name := range []string{bucketMeta, bucketApps, bucketBlobs, bucketOwned, bucketOps} {
			if _, err := tx.CreateBucketIfNotExists([]byte(name)); err != nil {
				return err
			}
		}
		return errors.Join(s.loadMeta(tx), s.loadSettings(tx), s.loadApps(tx), s.loadOwned(tx), s.loadOps(tx))
	})
}

const keyInstance = "instance"

func (s *Store) loadMeta(tx *bbolt.Tx) error {
	meta := tx.Bucket([]byte(bucketMeta))
	id := meta.Get([]byte(keyInstance))
	if id == nil {
		var raw [8]byte
		if _, err := rand.Read(raw[:]); err != nil {
			return fmt.Errorf("create an instance id: %w", err)
		}
		id = []byte(hex.EncodeToString(raw[:]))
		if err := meta.Put([]byte(keyInstance), id); err != nil {
			return err
		}
	}
	s.instance = string(id)
	if raw := meta.Get([]byte(keyCursor)); raw != nil {
		c, err := decodeCursor(raw)
		if err != nil {
			return err
		}
		s.cursor, s.durable = c, c
	}
	return nil
}

// Instance is the id of this directory. It is created once, so a restarted
// process is the same holder of a lease, and a process with a new directory is
// another one.
func (s *Store) Instance() string { return s.instance }

// Run commits queued writes until ctx ends, then commits the rest and returns
// nil. A failed commit ends it with an error: the memory would differ from what
// a restart reads.
func (s *Store) Run(ctx context.Context) error {
	for {
		if err := s.commit(); err != nil {
			return err
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
			err := s.commit()
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.broken == nil {
				s.broken = fault.New(fault.Offline, "the agent is stopping")
			}
			return err
		}
	}
}

// Close releases the file. Run must have returned.
func (s *Store) Close() error { return s.db.Close() }

// commit writes everything in the queue in one transaction.
func (s *Store) commit() error {
	s.mu.Lock()
	batch := s.pending
	s.pending = nil
	cursor := s.cursor
	s.mu.Unlock()
	if len(batch) == 0 {
		return nil
	}
	failpoint.Here(failpoint.AgentCommitBefore)
	err := s.db.Update(func(tx *bbolt.Tx) error {
		for _, w := range batch {
			if err := w.apply(tx); err != nil {
				return err
			}
		}
		return nil
	})
	failpoint.Here(failpoint.AgentCommitAfter)
	if err != nil {
		err = fault.Wrap(fault.Exceeded, err, "the agent's state cannot be written to its directory")
	}
	s.mu.Lock()
	if err != nil {
		s.broken = err
		batch = append(batch, s.pending...)
		s.pending = nil
	} else {
		s.durable = cursor
		for _, w := range batch {
			for _, b := range w.blobs {
				delete(s.fresh, string(b.GetDigest()))
			}
		}
	}
	s.mu.Unlock()
	for _, w := range batch {
		w.done.err = err
		close(w.done.done)
	}
	return err
}

// put queues a write. The caller holds mu, so the order in memory is the order
// on disk.
func (s *Store) put(apply func(tx *bbolt.Tx) error, blobs ...*linkv1.Blob) *Commit {
	c := &Commit{done: make(chan struct{})}
	if s.broken != nil {
		c.err = s.broken
		close(c.done)
		return c
	}
	for _, b := range blobs {
		s.fresh[string(b.GetDigest())] = b.GetSealed()
	}
	s.pending = append(s.pending, write{apply, c, blobs})
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return c
}

// Flush waits until everything written so far is durable.
func (s *Store) Flush(ctx context.Context) error {
	s.mu.Lock()
	c := s.put(func(*bbolt.Tx) error { return nil })
	s.mu.Unlock()
	return c.Wait(ctx)
}

func putIn(tx *bbolt.Tx, bucket, key string, value []byte) error {
	return tx.Bucket([]byte(bucket)).Put([]byte(key), value)
}

func deleteIn(tx *bbolt.Tx, bucket, key string) error {
	return tx.Bucket([]byte(bucket)).Delete([]byte(key))
}
