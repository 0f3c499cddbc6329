package inventory

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/capstan-cd/capstan/shared/failpoint"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/logkey"
)

// SecretName is the name of the Secret that survives a lost state directory.
const SecretName = "capstan-agent-state"

// maxSecret is the largest Secret that an API server stores, in bytes.
const maxSecret = 1 << 20

// secretPause is the least time between two writes of the Secret.
const secretPause = time.Second

// A Vault stores the data that must survive the loss of the state directory.
// The cluster provides it as a Secret.
type Vault interface {
	// Read returns the data; fault.Missing when there is none yet.
	Read(ctx context.Context) (map[string][]byte, error)
	// Write replaces the data. It is durable when it returns.
	Write(ctx context.Context, data map[string][]byte) error
}

// The entries of the Secret.
const (
	entryIdentity  = "identity"
	entryKeys      = "keys"
	entryCursor    = "cursor"
	entryApps      = "applications"
	entryLedgers   = "ledgers"
	entryRecordKey = "recordKey"
	entryRevoked   = "revoked"
)

// Keys are the keys of the tenant and the cluster, from the hub.
type Keys struct {
	Object []byte `json:"object"` // decrypts blobs
	Mask   []byte `json:"mask"`   // computes the keyed hashes of Secret values
}

// A Secret is the agent's part of its own Secret: identity, keys, cursor,
// generations and the open steps of operations. Changes are written at most
// once a second, in one write.
type Secret struct {
	vault Vault
	log   *slog.Logger
	wake  chan struct{}

	mu        sync.Mutex
	identity  []byte
	recordKey []byte
	keys      Keys
	cursor    Cursor
	apps      map[string]watermark
	ledgers   map[string]json.RawMessage
	revoked   []Revoked
	written   map[string][]byte
	version   uint64   // counts changes
	flushed   uint64   // newest change that is stored
	waiters   []waiter // of Flush
}

// A watermark is what must be known of an application even if the directory is
// lost: older states are refused, and ended operations do not run again.
type watermark struct {
	Generation uint64 `json:"g"`
	Ended      string `json:"o,omitempty"` // newest operation that ended
	Phase      string `json:"p,omitempty"` // how
}

// Revoked is a revoked agent, as signed by the hub. It is stored in case the
// hub is restored from a backup.
type Revoked struct {
	AgentID string `json:"a"`
	Until   int64  `json:"u"`
	Proof   []byte `json:"p"`
}

type waiter struct {
	version uint64
	done    chan struct{}
}

// OpenSecret reads the Secret. A missing one is empty.
func OpenSecret(ctx context.Context, vault Vault, log *slog.Logger) (*Secret, error) {
	s := &Secret{
		vault: vault, log: log, wake: make(chan struct{}, 1),
		apps: map[string]watermark{}, ledgers: map[string]json.RawMessage{},
	}
	data, err := vault.Read(ctx)
	if fault.KindOf(err) == fault.Missing {
		return s, s.ownKey()
	}
	if err != nil {
		return nil, fmt.Errorf("read the agent's Secret %q: %w", SecretName, err)
	}
	s.written = data
	s.identity, s.recordKey = data[entryIdentity], data[entryRecordKey]
	for name, into := range map[string]any{
		entryKeys: &s.keys, entryCursor: &s.cursor, entryApps: &s.apps, entryLedgers: &s.ledgers, entryRevoked: &s.revoked,
	} {
		if len(data[name]) == 0 {
			continue
		}
		if err := json.Unmarshal(data[name], into); err != nil {
			// The value may contain keys: neither it nor the decoder's text is
			// shown.
			return nil, fault.New(fault.Invalid, "entry %q of Secret %q is not readable; remove that entry", name, SecretName)
		}
	}
	return s, s.ownKey()
}

// ownKey makes the key of the ownership records once.
func (s *Secret) ownKey() error {
	if len(s.recordKey) == 32 {
		return nil
	}
	key := make([]byte, 32)
	if _, err := rand.Read(key); err != nil {
		return fmt.Errorf("create the key of ownership records: %w", err)
	}
	s.change(func() { s.recordKey = key })
	return nil
}

// RecordKey is the key for hashes of owned values. It is stored apart from the
// hashes.
func (s *Secret) RecordKey() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.recordKey
}

// secretRetry is the longest pause after writes that failed.
const secretRetry = 30 * time.Second

// Run writes changes until ctx ends, then writes the last ones and returns nil.
// After failures it backs off, and logs each cause once and then at growing
// intervals.
func (s *Secret) Run(ctx context.Context) error {
	wait, reminder := secretPause, lifecycle.Reminder{}
	for {
		select {
		case <-s.wake:
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
			defer cancel()
			s.reportFailure(ctx, &reminder, 0, s.store(last))
			return nil
		}
		err := s.store(ctx)
		if wait = min(2*wait, secretRetry); err == nil {
			wait = secretPause
		}
		s.reportFailure(ctx, &reminder, wait, err)
		pause := time.NewTimer(wait)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
		}
	}
}

// reportFailure logs why the Secret is not written, and what waits for it.
func (s *Secret) reportFailure(ctx context.Context, reminder *lifecycle.Reminder, wait time.Duration, err error) {
	if err == nil {
		if _, before := reminder.Due(time.Now(), ""); before {
			s.log.InfoContext(ctx, "agent secret written again")
		}
		return
	}
	if due, _ := reminder.Due(time.Now(), err.Error()); !due || ctx.Err() != nil {
		return
	}
	s.mu.Lock()
	enrolled := len(s.written[entryIdentity]) > 0
	s.mu.Unlock()
	hub := "the hub is not contacted before it is written, because the agent's key must not be lost"
	if enrolled {
		hub = "the agent continues with its hub"
	}
	s.log.WarnContext(ctx, "agent secret not written, will retry", logkey.Error, sentence(err), logkey.Wait, wait, logkey.Reason, hub)
}

// sentence is the text of an error for users.
func sentence(err error) string {
	if f, ok := fault.As(err); ok && f.Kind != fault.Internal {
		return fault.Sentence(err)
	}
	return err.Error()
}

// store writes what changed, if anything did.
func (s *Secret) store(ctx context.Context) error {
	s.mu.Lock()
	data, err := s.encode()
	version, same := s.version, maps.EqualFunc(data, s.written, bytes.Equal)
	s.mu.Unlock()
	if err == nil && !same {
		failpoint.Here(failpoint.AgentSecretBefore)
		err = s.vault.Write(ctx, data)
		failpoint.Here(failpoint.AgentSecretAfter)
	}
	if err != nil {
		s.touch()
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.written, s.flushed = data, version
	rest := s.waiters[:0]
	for _, w := range s.waiters {
		if w.version > version {
			rest = append(rest, w)
			continue
		}
		close(w.done)
	}
	s.waiters = rest
	return nil
}

func (s *Secret) encode() (map[string][]byte, error) {
	data := map[string][]byte{entryRecordKey: s.recordKey}
	if len(s.identity) > 0 {
		data[entryIdentity] = s.identity
	}
	size := len(s.identity)
	for name, v := range map[string]any{
		entryKeys: s.keys, entryCursor: s.cursor, entryApps: s.apps, entryLedgers: s.ledgers, entryRevoked: s.revoked,
	} {
		raw, err := json.Marshal(v)
		if err != nil {
			return nil, fmt.Errorf("write entry %q: %w", name, err)
		}
		data[name] = raw
		size += len(raw)
	}
	if size > maxSecret*9/10 {
		// These marks are the only part that grows with the number of
		// applications. Without them, the hub still checks generations.
		delete(data, entryApps)
	}
	return data, nil
}

func (s *Secret) touch() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *Secret) change(f func()) {
	s.mu.Lock()
	f()
	s.version++
	s.mu.Unlock()
	s.touch()
}

// Flush waits until everything set so far is stored.
func (s *Secret) Flush(ctx context.Context) error {
	s.mu.Lock()
	if s.flushed >= s.version {
		s.mu.Unlock()
		return nil
	}
	w := waiter{s.version, make(chan struct{})}
	s.waiters = append(s.waiters, w)
	s.mu.Unlock()
	select {
	case <-w.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the agent's Secret: %w", context.Cause(ctx))
	}
}

// Identity returns the stored identity; empty: there is none.
func (s *Secret) Identity() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.identity
}

// SetIdentity stores an identity and waits until it is durable.
func (s *Secret) SetIdentity(ctx context.Context, raw []byte) error {
	s.change(func() { s.identity = raw })
	return s.Flush(ctx)
}

// Keys returns the keys of the last session; empty before the first.
func (s *Secret) Keys() Keys {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keys
}

// SetKeys stores the keys of a session.
func (s *Secret) SetKeys(k Keys) {
	s.mu.Lock()
	same := bytes.Equal(k.Object, s.keys.Object) && bytes.Equal(k.Mask, s.keys.Mask)
	s.mu.Unlock()
	if !same {
		s.change(func() { s.keys = k })
	}
}

// Cursor returns the newest cursor that was stored.
func (s *Secret) Cursor() Cursor {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cursor
}

// SetCursor stores the cursor.
func (s *Secret) SetCursor(c Cursor) { s.change(func() { s.cursor = c }) }

// Revoked returns the newest revocations of the hub.
func (s *Secret) Revoked() []Revoked {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.revoked
}

// SetRevoked stores the hub's revocations. Earlier ones stay until they expire:
// a hub with fewer may have been restored.
func (s *Secret) SetRevoked(revoked []Revoked, now time.Time) {
	s.mu.Lock()
	merged := slices.Clone(revoked)
	for _, old := range s.revoked {
		known := slices.ContainsFunc(revoked, func(r Revoked) bool { return r.AgentID == old.AgentID })
		if !known && time.Unix(old.Until, 0).After(now) {
			merged = append(merged, old)
		}
	}
	if len(merged) > mostRevoked {
		merged = merged[:mostRevoked]
	}
	same := slices.EqualFunc(merged, s.revoked, func(a, b Revoked) bool { return a.AgentID == b.AgentID && a.Until == b.Until })
	s.mu.Unlock()
	if !same {
		s.change(func() { s.revoked = merged })
	}
}

// mostRevoked bounds what is stored, because a Secret is small.
const mostRevoked = 256

// Highest is the highest generation that was seen of any application.
func (s *Secret) Highest() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	var g uint64
	for _, m := range s.apps {
		g = max(g, m.Generation)
	}
	return g
}

// Generation is the highest generation that was seen of an application.
func (s *Secret) Generation(app string) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.apps[app].Generation
}

// Raise stores a generation if it is the highest so far.
func (s *Secret) Raise(app string, generation uint64) {
	s.mu.Lock()
	higher := generation > s.apps[app].Generation
	s.mu.Unlock()
	if higher {
		s.change(func() {
			m := s.apps[app]
			m.Generation = max(generation, m.Generation)
			s.apps[app] = m
		})
	}
}

// Ended is the newest operation of an application that ended, and how.
func (s *Secret) Ended(app string) (operation, phase string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.apps[app].Ended, s.apps[app].Phase
}

// SetEnded stores the newest operation of an application that ended.
func (s *Secret) SetEnded(app, operation, phase string) {
	s.change(func() {
		m := s.apps[app]
		m.Ended, m.Phase = operation, phase
		s.apps[app] = m
	})
}

// Forget deletes everything stored about an application.
func (s *Secret) Forget(app string) { s.change(func() { delete(s.apps, app) }) }

// Ledger returns the open steps of an operation.
func (s *Secret) Ledger(operation string) ([]byte, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, ok := s.ledgers[operation]
	return l, ok
}

// SetLedger stores the open steps of an operation; nil: it is over.
func (s *Secret) SetLedger(operation string, progress []byte) {
	s.change(func() {
		if progress == nil {
			delete(s.ledgers, operation)
			return
		}
		s.ledgers[operation] = progress
	})
}
