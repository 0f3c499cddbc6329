package render

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"github.com/capstan-cd/capstan/shared/logkey"
	"log/slog"
	"sync"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/repourl"
	"github.com/capstan-cd/capstan/shared/failpoint"
	"github.com/capstan-cd/capstan/shared/fault"
	loop "github.com/capstan-cd/capstan/shared/lifecycle"
)

// Work is where the stage finds applications to refresh.
type Work interface {
	// Claim leases up to limit applications and waits for the first one. It
	// skips the tenants that busy returns; freed is notified when these become
	// fewer.
	Claim(ctx context.Context, limit int, busy func() []hub.TenantID, freed <-chan struct{}) ([]hub.WorkItem, error)
	// Load reads all that is needed for applications of one tenant.
	Load(ctx context.Context, tenant hub.TenantID, ids []hub.ApplicationID) ([]hub.Refresh, error)
	// Done removes leased items as finished.
	Done(ctx context.Context, items []hub.WorkItem) error
	// Later releases leased items for another attempt at due.
	Later(ctx context.Context, items []hub.WorkItem, due time.Time) error
}

// Sources resolves revisions and serves trees. The source stage provides it.
type Sources interface {
	// Resolve returns the commit that a target revision names.
	Resolve(ctx context.Context, tenant hub.TenantID, repo hub.Repository, refs []hub.Ref, revision, tagPrefix string) (commit string, err error)
	// Tree opens the files of a commit for one goroutine.
	Tree(ctx context.Context, tenant hub.TenantID, repo hub.Repository, commit string) (hub.Tree, error)
}

// Sink stores the results of the stage. Each call is one transaction.
type Sink interface {
	Unchanged(ctx context.Context, tenant hub.TenantID, apps []hub.Unchanged) error
	Rendered(ctx context.Context, tenant hub.TenantID, results []hub.Rendered) error
	Failed(ctx context.Context, tenant hub.TenantID, failures []hub.RefreshFailure) error
	// Skipped records that applications are not to be changed.
	Skipped(ctx context.Context, tenant hub.TenantID, apps []hub.ApplicationID) error
	// AcknowledgeRefresh records that requested refreshes are done.
	AcknowledgeRefresh(ctx context.Context, tenant hub.TenantID, done []hub.RefreshAck) error
}

// Renderer is the pool, as the stage needs it.
type Renderer interface {
	Render(ctx context.Context, r Request) (Result, error)
}

// Permits checks an application against its project before anything is
// fetched or rendered; the error is the sentence of an InvalidSpecError.
type Permits func(r hub.Refresh, spec hub.ApplicationSpec) error

// StageConfig sets the stage's sizes.
type StageConfig struct {
	Batch    int // applications claimed at once; default 256
	Parallel int // renders in flight for one tenant; default 2
	Flush    int // results stored in one transaction at most; default 256
	// PauseAfter is how often a render may fail with the same inputs until its
	// error is cached; default 3. Pause is for how long; default one hour.
	PauseAfter int
	Pause      time.Duration
	// Poll is how often applications are refreshed whose bases of other
	// repositories may change; zero: never by themselves.
	Poll time.Duration
}

// An application with a transient failure is refreshed again after
// passingFirst, and then less and less often.
const (
	passingFirst = 15 * time.Second
	passingMax   = 10 * time.Minute
)

// loopLimit is how long the stage may show no sign of life.
const loopLimit = 90 * time.Second

// maxTenantsAtOnce is how many tenants' applications are loaded and compared with what
// is recorded at one time: that costs memory and the database. Renders wait in
// the pool instead.
const maxTenantsAtOnce = 2

// batches of one tenant run in parallel, so that quick refreshes do not wait
// for slow renders of the same tenant.
const batches = 4

// batchDelay is how long the next work waits while some is being done: what comes
// one by one, such as applications that are being created, is cheaper in one
// batch.
const batchDelay = 40 * time.Millisecond

// A Stage turns applications whose sources may have moved into snapshots. It
// looks up recorded inputs first and renders only what they do not answer.
// Each tenant's applications are refreshed separately, so that slow renders of
// one delay no other. Many replicas may run one each.
type Stage struct {
	cfg      StageConfig
	work     Work
	sources  Sources
	sink     Sink
	renderer Renderer
	permits  Permits
	log      *slog.Logger
	counters Counters
	remote   Downloads
	charts   Charts
	plugins  Plugins
	uploads  Uploads
	bases    Bases

	signatures Signatures

	permitsRepository func(r hub.Refresh, repository string) error

	tenantSlots chan struct{} // a token for each tenant that is being refreshed
	freed       chan struct{} // capacity 1: a tenant is no longer busy
	failing     *failing
	folders     validFolders
	mu          sync.Mutex
	previews    previews
	busy        map[hub.TenantID]int     // batches in work
	shares      map[hub.TenantID]*shared // of those
}

// NewStage makes a stage; Run starts it.
func NewStage(cfg StageConfig, work Work, sources Sources, sink Sink, renderer Renderer, permits Permits, log *slog.Logger) *Stage {
	if cfg.Batch == 0 {
		cfg.Batch = 256
	}
	if cfg.Parallel == 0 {
		cfg.Parallel = 2
	}
	if cfg.Flush == 0 {
		cfg.Flush = 256
	}
	cfg.PauseAfter, cfg.Pause = cmp.Or(cfg.PauseAfter, 3), cmp.Or(cfg.Pause, time.Hour)
	return &Stage{
		cfg: cfg, work: work, sources: sources, sink: sink, renderer: renderer, permits: permits, log: log,
		tenantSlots: make(chan struct{}, maxTenantsAtOnce), freed: make(chan struct{}, 1), busy: map[hub.TenantID]int{}, shares: map[hub.TenantID]*shared{},
		failing: newFailing(cfg.PauseAfter, cfg.Pause), folders: newValidFolders(),
	}
}

// Downloads reads files by their address for the applications of a tenant.
type Downloads interface {
	Get(ctx context.Context, tenant hub.TenantID, address string, schemes []string, most int64) ([]byte, error)
}

// Reads lets applications name files by their address. It comes before Run.
func (s *Stage) Reads(remote Downloads) { s.remote = remote }

// Charts serves charts of chart repositories and registries.
type Charts interface {
	// Locate returns the address of the repository that a ref names.
	Locate(ctx context.Context, tenant hub.TenantID, project string, ref hub.ChartRef) (url string, err error)
	// Chart returns the archive of a chart, whose Repository is an address. It
	// comes without Data if it is the one with the digest known.
	Chart(ctx context.Context, tenant hub.TenantID, project string, ref hub.ChartRef, known string) (hub.ChartArchive, error)
}

// Serves lets charts and kustomizations use charts from repositories that
// permits admits. It comes before Run.
func (s *Stage) Serves(charts Charts, permits func(r hub.Refresh, repository string) error) {
	s.charts, s.permitsRepository = charts, permits
}

// Signatures checks who signed the commits of a repository.
type Signatures interface {
	// Verified reports whether a demand was found fulfilled before. It is quick.
	Verified(tenant hub.TenantID, repo hub.RepositoryID, d hub.SignatureDemand) bool
	// Verify checks it. The error says what is wrong, for people.
	Verify(ctx context.Context, tenant hub.TenantID, repo hub.Repository, d hub.SignatureDemand) error
}

// Verifies has commits checked where a project demands signatures. It comes
// before Run; without it such projects render nothing.
func (s *Stage) Verifies(signatures Signatures) { s.signatures = signatures }

// connected lets the request of a job read what is not in its trees.
func (r *round) connected(ctx context.Context, j *job, req Request) Request {
	req = r.plugging(ctx, j, r.fetching(ctx, req))
	if r.charts == nil {
		return req
	}
	req.Chart = func(ref hub.ChartRef, known string) (hub.ChartArchive, error) {
		loop.Beat(ctx)
		defer loop.Beat(ctx)
		url, err := r.charts.Locate(ctx, req.Tenant, req.Project, ref)
		if err == nil {
			err = r.permitsRepository(j.refresh, url)
		}
		if err != nil {
			return hub.ChartArchive{}, fmt.Errorf("chart %q: %w", ref.Name, err)
		}
		ref.Repository = url
		return r.charts.Chart(ctx, req.Tenant, req.Project, ref, known)
	}
	return req
}

// fetching lets one request read files by their address.
func (r *round) fetching(ctx context.Context, req Request) Request {
	if r.remote == nil {
		return req
	}
	req.Fetch = func(address string, schemes []string, most int64) ([]byte, error) {
		loop.Beat(ctx)
		data, err := r.remote.Get(ctx, req.Tenant, address, schemes, most)
		loop.Beat(ctx)
		if err != nil {
			return nil, fmt.Errorf("read by address: %w", err)
		}
		return data, nil
	}
	return req
}

// Counters returns the stage's exact counts so far.
func (s *Stage) Counters() *Counters { return &s.counters }

// Run works until ctx ends, then returns nil. An application that cannot be
// refreshed is recorded as such and never stops the loop.
func (s *Stage) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	claims, done := loop.Watch(ctx, "render", loopLimit)
	defer done()
	for ctx.Err() == nil {
		items, err := s.work.Claim(claims, s.cfg.Batch, s.busyTenants, s.freed)
		if err != nil {
			if ctx.Err() == nil {
				s.log.ErrorContext(ctx, "refresh work cannot be claimed", logkey.Error, err)
				pause(ctx, time.Second)
			}
			continue
		}
		for tenant, mine := range byTenant(items) {
			s.begin(tenant)
			wg.Go(func() {
				defer s.end(tenant)
				s.batch(ctx, tenant, mine)
			})
		}
		if len(items) < s.cfg.Batch { // else there is more
			s.pauseForBatch(ctx)
		}
	}
	return nil
}

// batch refreshes the leased applications of one tenant and releases them.
func (s *Stage) batch(ctx context.Context, tenant hub.TenantID, items []hub.WorkItem) {
	own, done := loop.Watch(ctx, "render", loopLimit)
	var later postponed
	err := loop.Safely(own, "render", func(ctx context.Context) (err error) {
		later, err = s.refresh(ctx, tenant, items)
		return err
	})
	done()
	// The lease is released even while the replica stops.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if err == nil {
		err = s.giveBack(ctx, items, later)
	} else if lost := s.work.Later(ctx, items, time.Now().Add(5*time.Second)); lost != nil {
		s.log.WarnContext(ctx, "refresh work not given back; its lease will run out", logkey.Error, lost)
	}
	if err != nil {
		s.log.ErrorContext(ctx, "refresh failed and will be tried again", logkey.Tenant, tenant, logkey.Applications, len(items), logkey.Error, err)
	}
}

// giveBack ends refreshed items, and schedules another refresh of those with a
// transient failure, or whose renders are paused: no commit would trigger one.
func (s *Stage) giveBack(ctx context.Context, items []hub.WorkItem, later postponed) error {
	var done []hub.WorkItem
	for _, item := range items {
		due := later.due(item, time.Now())
		if due.IsZero() {
			done = append(done, item)
			continue
		}
		if err := s.work.Later(ctx, []hub.WorkItem{item}, due); err != nil {
			return err
		}
	}
	if len(done) == 0 {
		return nil
	}
	failpoint.Here(failpoint.HubRenderStored)
	return s.work.Done(ctx, done)
}

// refresh refreshes applications, and returns which are refreshed again later.
func (s *Stage) refresh(ctx context.Context, tenant hub.TenantID, items []hub.WorkItem) (postponed, error) {
	r := &round{
		Stage: s, tenant: tenant, leases: map[hub.ApplicationID]int64{}, postponed: newPostponed(),
		commits: map[resolveKey]resolved{}, now: time.Now(), shared: s.sharing(tenant),
	}
	jobs, err := r.resolveApplications(ctx, items)
	if err != nil {
		return postponed{}, err
	}
	// What did not change is stored beside the renders, not before them: a
	// commit in a large repository must not wait for its neighbours.
	var wg sync.WaitGroup
	var aside error
	wg.Go(func() { aside = loop.Safely(ctx, "render", r.store) })
	err = r.renderAll(ctx, jobs)
	wg.Wait()
	if err == nil {
		err = aside
	}
	if err == nil && len(r.refreshed) > 0 {
		err = r.sink.AcknowledgeRefresh(ctx, tenant, r.refreshed)
	}
	return r.postponed, err
}

func (r *round) store(ctx context.Context) error {
	if len(r.unchanged) > 0 {
		if err := r.sink.Unchanged(ctx, r.tenant, r.unchanged); err != nil {
			return fmt.Errorf("store %d unchanged applications: %w", len(r.unchanged), err)
		}
	}
	// Before the failures, which some of them have as well.
	if len(r.skipped) > 0 {
		if err := r.sink.Skipped(ctx, r.tenant, r.skipped); err != nil {
			return fmt.Errorf("store %d applications that are skipped: %w", len(r.skipped), err)
		}
	}
	if len(r.failures) > 0 {
		if err := r.sink.Failed(ctx, r.tenant, r.failures); err != nil {
			return fmt.Errorf("store %d failures: %w", len(r.failures), err)
		}
	}
	return nil
}

// A round is one batch of one tenant: revisions and trees are looked up once.
type round struct {
	*Stage
	tenant    hub.TenantID
	now       time.Time
	leases    map[hub.ApplicationID]int64 // of the work that is being done
	commits   map[resolveKey]resolved
	trees     treeSet // of the goroutine that refreshes
	shared    *shared
	unchanged []hub.Unchanged
	failures  []hub.RefreshFailure
	skipped   []hub.ApplicationID
	refreshed []hub.RefreshAck // by request
	postponed
}

type resolveKey struct {
	repo                       hub.RepositoryID
	chart, revision, tagPrefix string
}

type resolved struct {
	commit string
	err    error
}

// A job is one application that has to be rendered.
type job struct {
	refresh hub.Refresh
	spec    hub.ApplicationSpec
	asked   hub.OperationID // the operation that needs this render; empty: for the target
	commits []string        // by source
	params  [sha256.Size]byte
	old     *hub.Snapshot // reuse this one instead of rendering
	again   bool          // the last render failed with the same inputs
	trace   string        // that it continues; empty: none
	upload  *uploaded     // nil: all sources are repositories

	integrity  string     // what the project demands of the commits; empty: nothing
	unverified []unsigned // demands to check before anything comes of the job
}

// An unsigned is a demand whose answer is not known.
type unsigned struct {
	repo   hub.Repository
	demand hub.SignatureDemand
}

// resolveApplication resolves one application and answers it from recorded inputs if it
// can. Nil means that nothing has to be rendered.
func (r *round) resolveApplication(ctx context.Context, f hub.Refresh) *job {
	j := &job{refresh: f}
	if skipped(f) {
		r.skipped = append(r.skipped, f.Application.ID)
		return nil
	}
	if isRequestedRefresh(f) {
		r.refreshed = append(r.refreshed, hub.RefreshAck{Application: f.Application.ID, Version: f.Application.Version})
	}
	var err error
	if j.spec, err = hub.DecodeSpec(f.Application.Spec); err == nil {
		err = r.order(j)
	}
	spec := j.spec
	if err == nil {
		err = r.permits(f, spec)
	}
	if err != nil {
		r.refuse(j, err)
		return nil
	}
	if err := unresolvable(j, nil); err != nil {
		r.passing[f.Application.ID] = j.asked == ""
		r.fail(j, hub.ComparisonError, err)
		return nil
	}
	if j.commits, err = r.resolve(ctx, f, spec, nil); err != nil {
		r.fail(j, hub.ComparisonError, err)
		return nil
	}
	if err := r.demand(j); err != nil {
		r.refuse(j, err)
		return nil
	}
	j.params = j.parameters(r.tenant)
	if f.Forced {
		return j
	}
	old, err := r.answered(ctx, j)
	switch {
	case err != nil:
		r.passing[f.Application.ID] = passes(err) && j.asked == ""
		r.fail(j, hub.ComparisonError, err)
		return nil
	case old == nil:
		return r.unlessPaused(ctx, j)
	case j.asked == "" && len(j.unverified) == 0 && old.ID == f.Application.Status.Target && !hasProblem(f.Application) && !waits(f, spec, old.ID):
		r.count(func(c *Counters) { c.Reused++ })
		if until := r.polls(j, old.Inputs); !until.IsZero() {
			r.until[f.Application.ID] = until
		}
		// Also without a change: a requested refresh waits for this time.
		r.unchanged = append(r.unchanged, hub.Unchanged{
			Application: f.Application.ID, Revision: j.commits[0], Revisions: j.commits, RefreshedAt: r.now,
			Lease: r.leases[f.Application.ID],
		})
		return nil
	}
	j.old = old
	return j
}

// order selects the operation that waits for manifests of its own, if there is
// one. The target is refreshed again when these are there.
func (r *round) order(j *job) (err error) {
	if op := j.refresh.Application.Awaited(); op != nil {
		j.asked = op.ID
		j.spec, err = op.Options.Override.Apply(j.spec)
	}
	return err
}

// resolve finds the commits of all sources but the one that is uploaded, if any.
func (r *round) resolve(ctx context.Context, f hub.Refresh, spec hub.ApplicationSpec, sent *uploaded) ([]string, error) {
	sources := spec.EffectiveSources()
	if len(f.Sources) != len(sources) {
		return nil, fmt.Errorf("application %s has %d sources, %d repositories were loaded", f.Application.ID, len(sources), len(f.Sources))
	}
	commits := make([]string, len(sources))
	for i, source := range sources {
		if sent != nil && sent.at == i {
			commits[i] = sent.tree.Commit()
			continue
		}
		state := f.Sources[i]
		key := resolveKey{state.Repository.ID, source.Chart, source.TargetRevision, source.TagPrefix}
		got, ok := r.commits[key]
		if !ok {
			got = r.resolveOne(ctx, state, source)
			r.commits[key] = got
		}
		if got.err != nil {
			return nil, got.err
		}
		commits[i] = got.commit
	}
	return commits, nil
}

func (r *round) resolveOne(ctx context.Context, state hub.SourceState, source hub.Source) resolved {
	if !source.Fits(state.Repository.Type) {
		return resolved{err: misfit(state.Repository, source)}
	}
	if state.Repository.FetchedAt == nil {
		if state.Repository.Error != "" {
			return resolved{err: fault.New(fault.Offline, "%s", state.Repository.Error)}
		}
		return resolved{err: errNotFetched}
	}
	commit, err := r.sources.Resolve(ctx, r.tenant, state.Repository.For(source, state.Refs), state.Refs, source.TargetRevision, source.TagPrefix)
	return resolved{commit, err}
}

// misfit is the error of a source that a repository of its kind cannot have.
func misfit(repo hub.Repository, source hub.Source) error {
	err := fault.New(fault.Invalid, "the repository %s is registered as one of type %s, and the source names one of type %s", repourl.Redact(repo.URL), repo.Type.OrDefault(), source.Kind())
	return fault.With(err, "", "set chart for a Helm repository and path for a Git repository, or register the repository with another type")
}

// errNotFetched means that a repository is still being fetched for the first
// time: no problem to show, the fetch enqueues the application again.
var errNotFetched = fault.New(fault.Offline, "the repository has not been fetched yet")

// answered finds a stored snapshot that the recorded inputs prove to be the
// result for the new commits.
func (r *round) answered(ctx context.Context, j *job) (*hub.Snapshot, error) {
	candidates := j.sameParameters()
	if len(candidates) == 0 {
		return nil, nil
	}
	trees, err := r.trees.open(ctx, r.Stage, r.tenant, j)
	if err != nil {
		return nil, err
	}
	for _, c := range candidates {
		fresh, err := r.folders.fresh(c.ID, c.Inputs, trees, r.connected(ctx, j, j.request(r.tenant, trees)))
		if err != nil {
			return nil, err
		}
		if fresh {
			old := *c // alone: the others need not be kept for it
			return &old, nil
		}
	}
	return nil, nil
}

// sameParameters returns the recent snapshots that were rendered with the
// parameters of the job, the current target first.
func (j *job) sameParameters() []*hub.Snapshot {
	var target, others []*hub.Snapshot
	for i := range j.refresh.Recent {
		s := &j.refresh.Recent[i]
		switch {
		case s.ParamsHash != j.params:
		case s.ID == j.refresh.Application.Status.Target:
			target = append(target, s)
		default:
			others = append(others, s)
		}
	}
	return append(target, others...)
}

func (j *job) request(tenant hub.TenantID, trees []hub.Tree) Request {
	app := j.refresh.Application
	req := Request{
		Tenant: tenant, Application: app.Name, Namespace: j.spec.Destination.Namespace, Project: app.Project,
		Revision: first(j.commits), Sources: j.spec.EffectiveSources(), Trees: trees, Settings: j.refresh.Settings,
		GeneratePaths: app.Annotations[hub.GeneratePathsAnnotation],
	}
	if c := j.refresh.Cluster; c != nil {
		req.KubeVersion, req.APIVersions = c.KubeVersion, c.APIVersions
	}
	return req
}

func (r *round) fail(j *job, condition string, err error) {
	f := j.refresh
	if errors.Is(err, errNotFetched) {
		return
	}
	if fault.KindOf(err) == fault.Internal {
		r.log.Error("application cannot be refreshed", logkey.Application, f.Application.ID, logkey.Error, err)
	}
	r.count(func(c *Counters) { c.Failed++ })
	r.failures = append(r.failures, hub.RefreshFailure{
		Application: f.Application.ID, Generation: f.Application.Generation,
		Condition: condition, Message: fault.Sentence(err), Operation: j.asked, Lease: r.leases[f.Application.ID],
	})
}

func byTenant(items []hub.WorkItem) map[hub.TenantID][]hub.WorkItem {
	out := map[hub.TenantID][]hub.WorkItem{}
	for _, item := range items {
		out[item.Tenant] = append(out[item.Tenant], item)
	}
	return out
}

func first(s []string) string {
	if len(s) == 0 {
		return ""
	}
	return s[0]
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
