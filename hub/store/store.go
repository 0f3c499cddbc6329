// Package store is the hub's only access to its database, and the only package
// with SQL. It decides nothing: stages and the API pass what is to be written,
// and the store guarantees transactions, order and separation of tenants. The
// daemon opens it once and passes it to the packages that need it.
//
// A tenant's rows are reached only through a Tenant, which exists only inside a
// transaction bound to that tenant. Every statement contains the tenant, and
// forced row security applies independently. The changes of one transaction,
// its audit records, its feed entries and its enqueued work become visible
// together or not at all.
//
// Statements are constants beside the methods that run them. A test prepares
// each of them against the migrated schema, and another fails on a table
// without row security.
package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store/slots"
	"github.com/capstan-cd/capstan/shared/failpoint"
	"github.com/capstan-cd/capstan/shared/fault"
)

// Keys wraps what must not lie in the database in the clear. The master key
// of package secret does it.
type Keys interface {
	Wrap(plain []byte) ([]byte, error)
	Unwrap(wrapped []byte) ([]byte, error)
}

// Config has the addresses of the database. Both URLs name the same database,
// each with its own role.
type Config struct {
	AppURL    string // role capstan_app: tenants' data, one tenant at a time
	SystemURL string // role capstan_system: directory and work queue
	// MaxConns is how many connections tenants' transactions share; 0 means
	// 8. The system role has a quarter of it, at least 2.
	MaxConns int32
	// Idle is after how long an idle connection is closed; 0 means 1 min. Each
	// costs the database a process of several MiB.
	Idle time.Duration
	// HomeWait is how long an item of work waits for the replica that it
	// belongs to, before it is anybody's. 0 means 5 s.
	HomeWait time.Duration
	// Quotas limit what each tenant may have that has no limits of its own.
	Quotas hub.Quotas
	// Sleep is after how long the database ends an idle transaction: a process
	// that was frozen inside one would block all others with its locks. 0 means
	// 15 s.
	Sleep time.Duration
}

const (
	defaultConns     = 8
	maxAttempts      = 16 // more than the connections of a pool, which may all be closed
	statementTimeout = 30 * time.Second
	defaultSleep     = 15 * time.Second
	defaultIdle      = time.Minute
	defaultHomeWait  = 5 * time.Second
	rollbackTimeout  = 5 * time.Second
)

// Validate reports every problem at once.
func (c Config) Validate() error {
	var errs []error
	for name, url := range map[string]string{"app": c.AppURL, "system": c.SystemURL} {
		if url == "" {
			errs = append(errs, fault.New(fault.Invalid, "the database URL of the %s role is not set", name))
		} else if _, err := pgxpool.ParseConfig(url); err != nil {
			// The parser's text may hold the password.
			errs = append(errs, fault.New(fault.Invalid, "the database URL of the %s role cannot be read; it must have the form postgres://user@host:5432/capstan", name))
		}
	}
	if c.MaxConns < 0 {
		errs = append(errs, fault.New(fault.Invalid, "the number of database connections cannot be %d", c.MaxConns))
	}
	if c.Idle < 0 {
		errs = append(errs, fault.New(fault.Invalid, "idle connections cannot be kept for %s", c.Idle))
	}
	return errors.Join(errs...)
}

// A DB is the database. It is safe for use by many goroutines.
type DB struct {
	app    *pgxpool.Pool
	slots  *slots.Slots // of app, shared among tenants
	system *pgxpool.Pool
	keys   Keys
	log    *slog.Logger

	homeWait time.Duration // of an item of work with its own replica
	quotas   hub.Quotas    // of tenants without own ones

	inputs, objects *snapshots // that were used last

	mu    sync.Mutex
	known map[hub.TenantID]hub.TenantKeys
}

// Open connects and checks that the roles are the bounded ones and that the
// schema is not older than this program. The error is fault.Offline when the
// database cannot be reached.
func Open(ctx context.Context, cfg Config, keys Keys, log *slog.Logger) (*DB, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	conns := cfg.MaxConns
	if conns == 0 {
		conns = defaultConns
	}
	db := &DB{keys: keys, log: log, homeWait: cmp.Or(cfg.HomeWait, defaultHomeWait), quotas: cfg.Quotas, known: map[hub.TenantID]hub.TenantKeys{}, inputs: newSnapshots(), objects: newSnapshots()}
	cfg.Sleep, cfg.Idle = cmp.Or(cfg.Sleep, defaultSleep), cmp.Or(cfg.Idle, defaultIdle)
	var err error
	if db.app, err = openPool(ctx, cfg, cfg.AppURL, conns, nil); err != nil {
		return nil, err
	}
	db.slots = slots.New(int(conns))
	// This role's statements use keys. A plan made while the queue is empty
	// would scan it, and be reused when it is full.
	byKey := map[string]string{"enable_seqscan": "off"}
	if db.system, err = openPool(ctx, cfg, cfg.SystemURL, max(2, conns/4), byKey); err != nil {
		db.Close()
		return nil, err
	}
	if err := db.check(ctx); err != nil {
		db.Close()
		return nil, err
	}
	return db, nil
}

// openPool opens connections to the database with the hub's settings and own
// ones. Idle ones are closed: the most recently used one is used first, so that
// the others become idle.
func openPool(ctx context.Context, c Config, url string, conns int32, own map[string]string) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fault.New(fault.Invalid, "the database URL cannot be read")
	}
	cfg.MaxConns = conns
	cfg.MinConns = 0
	cfg.MaxConnIdleTime = c.Idle
	cfg.HealthCheckPeriod = max(c.Idle/4, time.Millisecond)
	cfg.MaxConnLifetime = time.Hour
	cfg.MaxConnLifetimeJitter = 10 * time.Minute
	cfg.ConnConfig.StatementCacheCapacity = 256
	if cfg.ConnConfig.ConnectTimeout == 0 {
		cfg.ConnConfig.ConnectTimeout = 5 * time.Second
	}
	params := cfg.ConnConfig.RuntimeParams
	params["application_name"] = "capstan-hub"
	params["statement_timeout"] = fmt.Sprint(statementTimeout.Milliseconds())
	params["idle_in_transaction_session_timeout"] = fmt.Sprint(c.Sleep.Milliseconds())
	params["timezone"] = "UTC"
	// Statements are short: to compile one needs more time than to run it.
	// Their data is usually in memory, where a random page costs no more than
	// the next one.
	params["jit"], params["random_page_cost"] = "off", "1.1"
	maps.Copy(params, own)
	cfg.AfterConnect = knowTypes
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, classify(fmt.Errorf("open database pool: %w", err))
	}
	return pool, nil
}

// Close ends all connections. It waits for those in use.
func (db *DB) Close() {
	for _, pool := range []*pgxpool.Pool{db.app, db.system} {
		if pool != nil {
			pool.Close()
		}
	}
}

// Ping checks the connection to the database.
func (db *DB) Ping(ctx context.Context) error {
	if err := db.app.Ping(ctx); err != nil {
		return classify(fmt.Errorf("ping database: %w", err))
	}
	return nil
}

// A Tenant is the database as one tenant sees it, for the length of one
// transaction. Every query that it runs has the tenant as a parameter. It
// belongs to one goroutine.
type Tenant struct {
	tx            pgx.Tx
	db            *DB
	id            hub.TenantID
	policyVersion int64

	touched  map[touch]bool
	enqueued map[enqueue]request
	audits   []hub.AuditRecord
	grown    map[hub.Quota]bool            // what the transaction adds
	heads    map[hub.ClusterID]hub.LogHead // of the logs that this transaction has locked
}

// ID is the tenant that the transaction is bound to.
func (t *Tenant) ID() hub.TenantID { return t.id }

// PolicyVersion is the version of the tenant's access policy when the
// transaction began. An index that was compiled from another one is stale.
func (t *Tenant) PolicyVersion() int64 { return t.policyVersion }

// InTenant runs fn in a transaction bound to the tenant, and commits it. When
// the database refuses a transaction because of concurrent ones, fn runs again,
// at most five times: it must set its results and not add to them. The error is
// fault.Missing if there is no such tenant, and fault.Offline if the database
// cannot be reached.
func (db *DB) InTenant(ctx context.Context, id hub.TenantID, fn func(context.Context, *Tenant) error) error {
	return db.inTenant(ctx, id, pgx.TxOptions{}, fn)
}

// ReadTenant is InTenant for a transaction that writes nothing and sees one
// moment of the database throughout.
func (db *DB) ReadTenant(ctx context.Context, id hub.TenantID, fn func(context.Context, *Tenant) error) error {
	return db.inTenant(ctx, id, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, fn)
}

func (db *DB) inTenant(ctx context.Context, id hub.TenantID, opts pgx.TxOptions, fn func(context.Context, *Tenant) error) error {
	if !hub.ValidID(string(id)) {
		return noTenant()
	}
	return retry(ctx, func() error {
		return db.attempt(ctx, id, opts, fn)
	})
}

func noTenant() error { return fault.New(fault.Missing, "there is no such tenant") }

// attempt is one try of a tenant's transaction.
func (db *DB) attempt(ctx context.Context, id hub.TenantID, opts pgx.TxOptions, fn func(context.Context, *Tenant) error) error {
	release, err := db.slot(ctx, id)
	if err != nil {
		return err
	}
	defer release()
	tx, err := db.app.BeginTx(ctx, opts)
	if err != nil {
		return &beginError{fmt.Errorf("begin transaction: %w", err)}
	}
	defer rollback(ctx, tx)
	t := &Tenant{tx: tx, db: db, id: id}
	if err := t.bind(ctx); err != nil {
		return err
	}
	if err := fn(ctx, t); err != nil {
		return err
	}
	failpoint.Here(failpoint.HubStoreBeforeFlush)
	if err := t.flush(ctx); err != nil {
		return err
	}
	failpoint.Here(failpoint.HubStoreBeforeCommit)
	if err := tx.Commit(ctx); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	failpoint.Here(failpoint.HubStoreAfterCommit)
	return nil
}

// slot waits for the right to take one of the tenants' connections.
func (db *DB) slot(ctx context.Context, id hub.TenantID) (release func(), err error) {
	release, err = db.slots.Acquire(ctx, id)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, fault.With(fault.Wrap(fault.Offline, fmt.Errorf("wait for a connection: %w", err), "the hub has more to do than its connections to the database allow"), "", "try again in a moment")
	}
	if err != nil {
		return nil, fmt.Errorf("wait for a connection: %w", err)
	}
	return release, nil
}

// once runs statements that do not depend on each other's results in a
// transaction bound to the tenant, in one round trip: a batch without a begin is
// one transaction. It runs again if the pool returned a connection that was
// closed, so the statements must bear that.
func (db *DB) once(ctx context.Context, id hub.TenantID, what string, queue func(*pgx.Batch)) error {
	if !hub.ValidID(string(id)) {
		return noTenant()
	}
	return retry(ctx, func() error {
		release, err := db.slot(ctx, id)
		if err != nil {
			return err
		}
		defer release()
		conn, err := db.app.Acquire(ctx)
		if err != nil {
			return &beginError{fmt.Errorf("acquire connection: %w", err)}
		}
		defer conn.Release()
		b := &pgx.Batch{}
		b.Queue(bindTenant, string(id))
		queue(b)
		if err := conn.SendBatch(ctx, b).Close(); err != nil {
			err = fmt.Errorf("%s: %w", what, err)
			if !refused(err) {
				return &beginError{err}
			}
			return err
		}
		return nil
	})
}

// rollback ends what was not committed, also after a panic and after ctx
// ended. Without it the connection would not come back.
func rollback(ctx context.Context, tx pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
	defer cancel()
	_ = tx.Rollback(ctx)
}

const (
	bindTenant   = `SELECT set_config('app.tenant_id', $1, true)`
	selectPolicy = `SELECT policy_version FROM organisation WHERE tenant_id = $1`
)

// bind ties the transaction to the tenant. The setting ends with the
// transaction, whatever becomes of it.
func (t *Tenant) bind(ctx context.Context) error {
	b := &pgx.Batch{}
	b.Queue(bindTenant, string(t.id))
	b.Queue(selectPolicy, t.id)
	results := t.tx.SendBatch(ctx, b)
	defer results.Close()
	if _, err := results.Exec(); err != nil {
		return fmt.Errorf("bind tenant: %w", err)
	}
	err := results.QueryRow().Scan(&t.policyVersion)
	if errors.Is(err, pgx.ErrNoRows) {
		return noTenant()
	}
	if err != nil {
		return fmt.Errorf("read policy version: %w", err)
	}
	return results.Close()
}

// flush writes what methods left for the end of the transaction: work, feed
// entries and, last of all because they need the tenant's audit lock, audit
// records.
func (t *Tenant) flush(ctx context.Context) error {
	b := &pgx.Batch{}
	t.queueRollouts(b)
	t.queueWork(b)
	t.queueChanges(b)
	var head auditHead
	if len(t.audits) > 0 || len(t.grown) > 0 {
		t.queueAuditHead(b, &head)
	}
	if b.Len() > 0 {
		if err := send(ctx, t.tx, "write work and changes", b); err != nil {
			return err
		}
	}
	if len(t.grown) > 0 {
		if err := t.checkQuotas(ctx, head.quotas); err != nil {
			return err
		}
	}
	if len(t.audits) == 0 {
		return nil
	}
	return t.writeAudit(ctx, head)
}

// A System is the database for workers of all tenants: the directory and the
// work queue. It has ids and hashes. Methods that end in a tenant's rows open a
// transaction bound to that tenant themselves.
type System struct{ db *DB }

// System returns the view of all tenants.
func (db *DB) System() *System { return &System{db: db} }

// do runs fn in a transaction of the system role.
func (s *System) do(ctx context.Context, fn func(context.Context, pgx.Tx) error) error {
	return retry(ctx, func() error {
		tx, err := s.db.system.Begin(ctx)
		if err != nil {
			return &beginError{fmt.Errorf("begin transaction: %w", err)}
		}
		defer rollback(ctx, tx)
		if err := fn(ctx, tx); err != nil {
			return err
		}
		if err := tx.Commit(ctx); err != nil {
			return fmt.Errorf("commit: %w", err)
		}
		return nil
	})
}

// repeatable runs what changes nothing more when it is run again, without a
// transaction that begins and ends in round trips of its own. It is run again
// if the pool returned a connection that was closed.
func (s *System) repeatable(ctx context.Context, fn func(context.Context, *pgxpool.Conn) error) error {
	return retry(ctx, func() error {
		conn, err := s.db.system.Acquire(ctx)
		if err != nil {
			return &beginError{fmt.Errorf("acquire connection: %w", err)}
		}
		defer conn.Release()
		if err := fn(ctx, conn); err != nil && !refused(err) {
			return &beginError{err}
		} else if err != nil {
			return err
		}
		return nil
	})
}

// retry runs a whole transaction again while the database refuses it because
// of others, with a growing random wait, and classifies what remains.
func retry(ctx context.Context, try func() error) error {
	for attempt := 1; ; attempt++ {
		err := try()
		if !refused(err) || attempt == maxAttempts {
			return classify(err)
		}
		wait := time.NewTimer(time.Duration(rand.Int64N(int64(5*time.Millisecond) << min(attempt, 5))))
		select {
		case <-ctx.Done():
			wait.Stop()
			return ctx.Err()
		case <-wait.C:
		}
	}
}
