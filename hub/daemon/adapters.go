package daemon

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/batch"
	"github.com/capstan-cd/capstan/hub/catalog/transact"
	"github.com/capstan-cd/capstan/hub/daemon/storeports"
	"github.com/capstan-cd/capstan/hub/dispatch"
	"github.com/capstan-cd/capstan/hub/dispatch/stream"
	"github.com/capstan-cd/capstan/hub/metrics"
	"github.com/capstan-cd/capstan/hub/pacing"
	"github.com/capstan-cd/capstan/hub/render"
	"github.com/capstan-cd/capstan/hub/source"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/shared/encryption"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/logkey"
	"github.com/capstan-cd/capstan/shared/trace"
	"github.com/capstan-cd/capstan/shared/tunnel"
)

// The types of this file introduce the store to the stages. They hold no
// logic beyond giving hints after a commit.

// dispatchStore is the store as dispatch sees it.
type dispatchStore struct {
	db    *store.DB
	queue *queue
}

func (s dispatchStore) InTenant(ctx context.Context, tenant hub.TenantID, do func(context.Context, dispatch.Tx) error) error {
	return s.inTenant(ctx, tenant, func(ctx context.Context, t *store.Tenant) error { return do(ctx, storeports.Dispatch(t)) })
}

// inTenant runs a transaction and then gives hints for the work that it has
// enqueued.
func (s dispatchStore) inTenant(ctx context.Context, tenant hub.TenantID, do func(context.Context, *store.Tenant) error) error {
	var due []string
	err := s.db.InTenant(ctx, tenant, func(ctx context.Context, t *store.Tenant) error {
		err := do(ctx, t)
		s.queue.continued(ctx, t)
		due = kindsOf(t)
		return err
	})
	if err == nil {
		s.queue.notify(due...)
	}
	return err
}

// kindsOf returns the kinds of work that a transaction has enqueued so far. Most
// enqueue nothing, and a look at the queue is not free.
func kindsOf(t *store.Tenant) (kinds []string) {
	t.Enqueued(func(kind, _ string) {
		if !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	})
	return kinds
}

func (s dispatchStore) Keys(ctx context.Context, tenant hub.TenantID) (dispatch.Keys, error) {
	k, err := s.db.Keys(ctx, tenant)
	return dispatch.Keys{Digest: k.Digest, Object: k.Object}, err
}

// streamStore is the store as dispatch/stream sees it.
type streamStore struct{ dispatchStore }

func (s streamStore) InTenant(ctx context.Context, tenant hub.TenantID, do func(context.Context, stream.Tx) error) error {
	return s.inTenant(ctx, tenant, func(ctx context.Context, t *store.Tenant) error { return do(ctx, storeports.Stream(t)) })
}

func (s streamStore) ReadTenant(ctx context.Context, tenant hub.TenantID, do func(context.Context, stream.Tx) error) error {
	return s.db.ReadTenant(ctx, tenant, func(ctx context.Context, t *store.Tenant) error { return do(ctx, storeports.Stream(t)) })
}

func (s streamStore) DigestKey(ctx context.Context, tenant hub.TenantID) ([32]byte, error) {
	k, err := s.db.Keys(ctx, tenant)
	return k.Digest, err
}

// refreshWork is the queue of applications to look at, as render sees it.
type refreshWork struct {
	*queue
	db *store.DB
}

func (w refreshWork) Claim(ctx context.Context, limit int, busy func() []hub.TenantID, freed <-chan struct{}) ([]hub.WorkItem, error) {
	return w.queue.ClaimWithin(ctx, hub.WorkRefresh, func() (int, []hub.TenantID) {
		return limit, append(w.queue.pacer.Held(pacing.Refresh), busy()...)
	}, freed)
}

// recentSnapshots is how far back a commit may go without a render. All of them
// are read for each application that a commit may concern, so they are few:
// going back farther costs one render, which applications share.
const recentSnapshots = 3

func (w refreshWork) Load(ctx context.Context, tenant hub.TenantID, ids []hub.ApplicationID) ([]hub.Refresh, error) {
	var out []hub.Refresh
	err := w.db.ReadTenant(ctx, tenant, func(ctx context.Context, t *store.Tenant) error {
		var err error
		if out, err = t.Refreshes(ctx, ids, recentSnapshots); err != nil {
			return err
		}
		return withSettings(ctx, t, out)
	})
	return out, err
}

// previews renders what is not saved with the settings of its tenant.
type previews struct {
	*render.Stage

	db *store.DB
}

func (p previews) PreviewUnsaved(ctx context.Context, tenant hub.TenantID, r hub.Refresh) (hub.Preview, error) {
	all := []hub.Refresh{r}
	if err := p.db.ReadTenant(ctx, tenant, func(ctx context.Context, t *store.Tenant) error { return withSettings(ctx, t, all) }); err != nil {
		return hub.Preview{}, err
	}
	return p.Stage.PreviewUnsaved(ctx, tenant, all[0])
}

// withSettings gives applications what the tenant's settings say about renders.
func withSettings(ctx context.Context, t *store.Tenant, all []hub.Refresh) error {
	settings, params := hub.RenderKeys()
	found, err := t.SettingsOf(ctx, []string{hub.SettingsMap, hub.ParamsMap}, slices.Concat(settings, params), hub.KustomizeOptionsKey)
	if err != nil {
		return fmt.Errorf("read what is set about renders: %w", err)
	}
	values := map[string]string{}
	for _, s := range found {
		if hub.Renders(s.Map, s.Key) {
			values[s.Key] = s.Value
		}
	}
	keys, err := publicKeys(ctx, t, all)
	if err != nil {
		return err
	}
	for i := range all {
		all[i].Settings, all[i].PublicKeys = values, keys
	}
	return nil
}

// publicKeys are those of the tenant, if a project of the applications demands
// signatures of commits.
func publicKeys(ctx context.Context, t *store.Tenant, all []hub.Refresh) ([]string, error) {
	demanded := slices.ContainsFunc(all, func(r hub.Refresh) bool {
		if r.Project == nil {
			return false
		}
		spec, err := r.Project.Effective()
		return err == nil && spec.Demands()
	})
	if !demanded {
		return nil, nil
	}
	found, err := t.SettingsOf(ctx, []string{hub.GPGKeysMap}, nil, "")
	if err != nil {
		return nil, fmt.Errorf("read public keys: %w", err)
	}
	keys := make([]string, len(found))
	for i, s := range found {
		keys[i] = s.Value
	}
	return keys, nil
}

// observations is the store as observe sees it. Reports that come at the same
// time are stored in one transaction; those that only tell of live state may
// be lost with the database and come again, so they are apart from the others.
type observations struct {
	lasting, passing *batch.Batcher[hub.ClusterObservation, hub.Observed]
	queue            *queue
	metrics          *metrics.Metrics
}

// first is the first application that a report tells of.
func first(r hub.ClusterObservation) (id hub.ApplicationID) {
	for _, a := range r.Applications {
		if id == "" || a.Application < id {
			id = a.Application
		}
	}
	return id
}

func newObservations(db *store.DB, q *queue, m *metrics.Metrics) observations {
	put := func(ctx context.Context, tenant string, reports []hub.ClusterObservation) ([]hub.Observed, error) {
		// In the order in which others lock applications, so that no two
		// transactions wait for each other.
		order := make([]int, len(reports))
		for i := range order {
			order[i] = i
		}
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(first(reports[a]), first(reports[b])) })
		sorted := make([]hub.ClusterObservation, len(reports))
		for n, i := range order {
			sorted[n] = reports[i]
		}
		var done []hub.Observed
		err := db.InTenant(ctx, hub.TenantID(tenant), func(ctx context.Context, t *store.Tenant) (err error) {
			done, err = t.PutObservations(ctx, sorted)
			return err
		})
		if err != nil {
			return nil, err
		}
		out := make([]hub.Observed, len(reports))
		for n, i := range order {
			out[i] = done[n]
		}
		return out, nil
	}
	// What a change brings back waits until the change has gone to everyone.
	sent := func(ctx context.Context) { q.pacer.Wait(ctx, "") }
	return observations{lasting: batch.New(put).After(sent), passing: batch.New(put).After(sent), queue: q, metrics: m}
}

func (o observations) PutObservation(ctx context.Context, tenant hub.TenantID, cluster hub.ClusterID, seen hub.Observation) (hub.Observed, error) {
	began := time.Now()
	to := o.lasting
	if seen.Passing() {
		to = o.passing
	}
	ends := o.resume(ctx, tenant, seen)
	out, err := to.Do(ctx, string(tenant), hub.ClusterObservation{Cluster: cluster, Observation: seen})
	for _, end := range ends {
		end(err)
	}
	o.metrics.Stored(err, out.Repeated, time.Since(began), map[string]int{
		"application": len(seen.Applications), "resource": len(seen.Resources), "gone": len(seen.Gone),
		"tombstone": len(seen.Closed), "operation": len(seen.Operations),
	})
	o.count(tenant, seen, out)
	return out, err
}

// resume makes a span of each operation that a report ends, and lets what
// follows from it continue the trace.
func (o observations) resume(ctx context.Context, tenant hub.TenantID, seen hub.Observation) []func(error) {
	if !trace.Enabled(ctx) {
		return nil
	}
	var ends []func(error)
	for _, op := range seen.Operations {
		if !op.Phase.Over() || op.Trace == "" {
			continue
		}
		own, end := trace.Start(trace.Resume(ctx, op.Trace), "report", logkey.Operation, string(op.Operation), logkey.Phase, string(op.Phase))
		ends = append(ends, end)
		o.queue.follow(trace.Parent(own), hub.WorkOutcome, tenant, string(op.Operation))
	}
	return ends
}

// count counts the operations that became over with a report.
func (o observations) count(tenant hub.TenantID, seen hub.Observation, out hub.Observed) {
	for _, op := range seen.Operations {
		if !slices.Contains(out.Over, op.Operation) {
			continue
		}
		var took time.Duration
		if op.StartedAt != nil && op.FinishedAt != nil {
			took = max(0, op.FinishedAt.Sub(*op.StartedAt))
		}
		o.metrics.Ended(string(tenant), string(op.Application), string(op.Phase), took)
	}
}

// linkKeys are what Hello gives to an agent.
type linkKeys struct{ db *store.DB }

func (k linkKeys) LinkKeys(ctx context.Context, tenant hub.TenantID, cluster hub.ClusterID) (object, mask [32]byte, err error) {
	keys, err := k.db.Keys(ctx, tenant)
	if err != nil {
		return object, mask, err
	}
	return keys.Object, encryption.Derive(keys.Digest, "capstan mask key v1"+string(cluster)), nil
}

// attached are the agents of this replica, as the others see them.
type attached struct{ p *parts }

func (a attached) Holds(cluster hub.ClusterID) (grpc.ClientConnInterface, hub.TenantID, string, bool) {
	return a.p.fleet.Holds(cluster)
}

// caller says which cluster an agent's call comes from: its certificate does.
func caller(ctx context.Context) (hub.TenantID, hub.ClusterID, error) {
	peer, ok := tunnel.PeerFrom(ctx)
	if !ok {
		return "", "", fault.New(fault.Unknown, "the connection brought no valid certificate")
	}
	return hub.TenantID(peer.Tenant), hub.ClusterID(peer.Cluster), nil
}

var (
	_ dispatch.Store = dispatchStore{}
	_ stream.Store   = streamStore{}
	_ render.Work    = refreshWork{}
	_ render.Sources = (*source.Registry)(nil)
)

// feedLog is the store as the feed sees it.
type feedLog struct{ db *store.DB }

func (l feedLog) Changes(ctx context.Context, tenant hub.TenantID, after string, limit int) (changes []hub.Change, next string, err error) {
	err = l.db.ReadTenant(ctx, tenant, func(ctx context.Context, t *store.Tenant) error {
		changes, next, err = t.Changes(ctx, after, limit)
		return err
	})
	return changes, next, err
}

func (l feedLog) Cursor(ctx context.Context, tenant hub.TenantID) (cursor string, err error) {
	err = l.db.ReadTenant(ctx, tenant, func(ctx context.Context, t *store.Tenant) error {
		cursor, err = t.FeedCursor(ctx)
		return err
	})
	return cursor, err
}

// credentials open repositories for fetches that a reader needs at once.
type credentials struct{ db *store.DB }

func (c credentials) Credential(ctx context.Context, tenant hub.TenantID, repo hub.RepositoryID) (cred hub.Credential, err error) {
	err = c.db.ReadTenant(ctx, tenant, func(ctx context.Context, t *store.Tenant) error {
		cred, err = t.Credential(ctx, repo)
		return err
	})
	return cred, err
}

// HostKeys returns the keys of SSH servers that a tenant has stored.
func (c credentials) HostKeys(ctx context.Context, tenant hub.TenantID) ([]hub.HostKey, error) {
	return c.db.HostKeys(ctx, tenant)
}

// Authorities returns what a tenant has stored for servers of a host.
func (c credentials) Authorities(ctx context.Context, tenant hub.TenantID, host string) (pem string, err error) {
	values, err := c.db.SettingValues(ctx, tenant, hub.CertificatesMap, []string{host})
	return values[host], err
}

// AccessTo returns what opens a repository by its address, for applications of a
// project.
func (c credentials) AccessTo(ctx context.Context, tenant hub.TenantID, project, address string) (cred hub.Credential, insecure bool, err error) {
	err = c.db.ReadTenant(ctx, tenant, func(ctx context.Context, t *store.Tenant) error {
		cred, insecure, err = t.AccessTo(ctx, address, project)
		return err
	})
	return cred, insecure, err
}

// catalogStore is the store as the catalogue sees it.
type catalogStore struct{ db *store.DB }

func (s catalogStore) InTenant(ctx context.Context, tenant hub.TenantID, do func(context.Context, transact.Tx) error) error {
	return s.db.InTenant(ctx, tenant, func(ctx context.Context, t *store.Tenant) error { return do(ctx, storeports.Catalog(t)) })
}

func (s catalogStore) ReadTenant(ctx context.Context, tenant hub.TenantID, do func(context.Context, transact.Tx) error) error {
	return s.db.ReadTenant(ctx, tenant, func(ctx context.Context, t *store.Tenant) error { return do(ctx, storeports.Catalog(t)) })
}

func (s catalogStore) Keys(ctx context.Context, tenant hub.TenantID) (hub.TenantKeys, error) {
	return s.db.Keys(ctx, tenant)
}

// notifications carries the catalogue's hints to the parts of this replica.
type notifications struct{ p *parts }

func (h notifications) Wake(cluster hub.ClusterID)  { h.p.streams.Wake(cluster) }
func (h notifications) Changed(tenant hub.TenantID) { h.p.changed(tenant) }
func (h notifications) Due(kind string)             { h.p.due(kind) }
func (h notifications) Revoked()                    { h.p.revoked() }

func (h notifications) Credentials(tenant hub.TenantID) { h.p.credentials(tenant) }

func (h notifications) Arriving(tenant hub.TenantID) (arrived func()) {
	return h.p.queue.pacer.Arriving(tenant)
}

func (h notifications) Alone(tenant hub.TenantID) (through func(follows func())) {
	return h.p.queue.pacer.Alone(tenant)
}

// upgrades keeps the orders to exchange agents.
type upgrades struct {
	db      *store.DB
	changed func(hub.TenantID)
}

func (s upgrades) Cluster(ctx context.Context, tenant hub.TenantID, id hub.ClusterID) (c hub.Cluster, err error) {
	err = s.db.ReadTenant(ctx, tenant, func(ctx context.Context, t *store.Tenant) error {
		c, err = t.ClusterByID(ctx, id)
		return err
	})
	return c, err
}

func (s upgrades) PutUpgrade(ctx context.Context, tenant hub.TenantID, id hub.ClusterID, u hub.Upgrade) error {
	err := s.db.InTenant(ctx, tenant, func(ctx context.Context, t *store.Tenant) error { return t.PutUpgrade(ctx, id, u) })
	if err == nil {
		s.changed(tenant)
	}
	return err
}
