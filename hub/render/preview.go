package render

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
	loop "github.com/capstan-cd/capstan/shared/lifecycle"
)

// maxPreviews is how many previews of one tenant are rendered at once.
const maxPreviews = 2

// previews counts the previews of tenants.
type previews struct {
	mu   sync.Mutex
	open map[hub.TenantID]int
}

func (p *previews) begin(tenant hub.TenantID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open == nil {
		p.open = map[hub.TenantID]int{}
	}
	if p.open[tenant] >= maxPreviews {
		return false
	}
	p.open[tenant]++
	return true
}

func (p *previews) end(tenant hub.TenantID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open[tenant]--; p.open[tenant] == 0 {
		delete(p.open, tenant)
	}
}

// Uploads unpacks what callers send.
type Uploads interface {
	// Receive reads an archive to its end. End deletes the files.
	Receive(ctx context.Context, tenant hub.TenantID, from io.Reader) (t hub.Tree, end func(), err error)
}

// Receives lets callers send files. It comes before Run.
func (s *Stage) Receives(uploads Uploads) { s.uploads = uploads }

// Preview renders an application at other revisions, under the rules of its
// project, and stores nothing. It is a render of the tenant's quota.
func (s *Stage) Preview(ctx context.Context, tenant hub.TenantID, app hub.ApplicationID, o hub.Override) (hub.Preview, error) {
	return s.alone(ctx, tenant, func(ctx context.Context) (hub.Preview, error) {
		refresh, err := s.loaded(ctx, tenant, app)
		if err != nil {
			return hub.Preview{}, err
		}
		return s.preview(ctx, tenant, refresh, o, nil)
	})
}

// PreviewUpload is Preview with the files of an upload in the place of one
// source. They are deleted before it returns.
func (s *Stage) PreviewUpload(ctx context.Context, tenant hub.TenantID, app hub.ApplicationID, u hub.Upload) (hub.Preview, error) {
	return s.alone(ctx, tenant, func(ctx context.Context) (hub.Preview, error) {
		refresh, err := s.loaded(ctx, tenant, app)
		if err != nil {
			return hub.Preview{}, err
		}
		return s.preview(ctx, tenant, refresh, hub.Override{}, &uploaded{at: max(u.Position, 1) - 1, archive: u.Archive})
	})
}

// PreviewUnsaved renders an application as somebody would write it, in the same
// way. The application may be in no store.
func (s *Stage) PreviewUnsaved(ctx context.Context, tenant hub.TenantID, r hub.Refresh) (hub.Preview, error) {
	return s.alone(ctx, tenant, func(ctx context.Context) (hub.Preview, error) {
		return s.preview(ctx, tenant, r, hub.Override{}, nil)
	})
}

// loaded is an application as renders see it.
func (s *Stage) loaded(ctx context.Context, tenant hub.TenantID, app hub.ApplicationID) (hub.Refresh, error) {
	found, err := s.work.Load(ctx, tenant, []hub.ApplicationID{app})
	if err != nil {
		return hub.Refresh{}, fmt.Errorf("load application %s: %w", app, err)
	}
	if len(found) != 1 {
		return hub.Refresh{}, fault.New(fault.Missing, "the application is being deleted")
	}
	return found[0], nil
}

// alone runs one preview, if the tenant has not too many.
func (s *Stage) alone(ctx context.Context, tenant hub.TenantID, run func(context.Context) (hub.Preview, error)) (out hub.Preview, err error) {
	if !s.previews.begin(tenant) {
		return out, fault.With(fault.New(fault.Exceeded, "%d previews of the tenant are being rendered", maxPreviews), "", "try again when they have ended")
	}
	defer s.previews.end(tenant)
	ctx, done := loop.Watch(ctx, "preview", loopLimit)
	defer done()
	err = loop.Safely(ctx, "preview", func(ctx context.Context) error {
		out, err = run(ctx)
		return err
	})
	return out, err
}

// uploaded is what stands in the place of one source of a job.
type uploaded struct {
	at      int // index of the source
	archive io.Reader
	tree    hub.Tree
}

func (s *Stage) preview(ctx context.Context, tenant hub.TenantID, refresh hub.Refresh, o hub.Override, sent *uploaded) (hub.Preview, error) {
	r := &round{
		Stage: s, tenant: tenant, leases: map[hub.ApplicationID]int64{}, postponed: newPostponed(),
		commits: map[resolveKey]resolved{}, now: time.Now(), shared: newShared(),
	}
	var err error
	j := &job{refresh: refresh}
	if j.spec, err = hub.DecodeSpec(j.refresh.Application.Spec); err != nil {
		return hub.Preview{}, err
	}
	if j.spec, err = o.Apply(j.spec); err != nil {
		return hub.Preview{}, err
	}
	if err := r.permits(j.refresh, j.spec); err != nil {
		return hub.Preview{}, err
	}
	if sent != nil {
		end, err := r.receive(ctx, j, sent)
		if err != nil {
			return hub.Preview{}, err
		}
		defer end()
	}
	return r.previewed(ctx, j)
}

// receive unpacks an upload for a job. What its project wants signed cannot be
// uploaded.
func (r *round) receive(ctx context.Context, j *job, sent *uploaded) (end func(), err error) {
	sources := j.spec.EffectiveSources()
	if sent.at >= len(sources) {
		return nil, fault.With(fault.New(fault.Invalid, "the application has %d sources, and the upload is for number %d", len(sources), sent.at+1), "", "count from 1")
	}
	if r.uploads == nil {
		return nil, fault.New(fault.Invalid, "this hub renders no uploads")
	}
	if j.refresh.Project != nil {
		project, err := j.refresh.Project.Effective()
		if err != nil {
			return nil, err
		}
		if _, demanded := project.Of(sources[sent.at].RepoURL); demanded && sources[sent.at].Kind() == hub.GitRepository {
			return nil, fault.With(fault.New(fault.Denied, "project %s wants commits signed, and an upload has no signature", j.refresh.Application.Project),
				"", "push the files, and preview the revision")
		}
	}
	tree, end, err := r.uploads.Receive(ctx, r.tenant, beating{ctx, sent.archive})
	if err != nil {
		return nil, err
	}
	sent.tree, j.upload = tree, sent
	return end, nil
}

// beating shows that a caller still sends.
type beating struct {
	ctx  context.Context //nolint:containedctx // lives for one upload
	from io.Reader
}

func (b beating) Read(p []byte) (int, error) {
	loop.Beat(b.ctx)
	return b.from.Read(p)
}

func (r *round) previewed(ctx context.Context, j *job) (out hub.Preview, err error) {
	if j.commits, err = r.resolve(ctx, j.refresh, j.spec, j.upload); err != nil {
		return out, err
	}
	loop.Beat(ctx)
	if err := r.demand(j); err != nil {
		return out, err
	}
	if err := r.verify(ctx, j); err != nil {
		return out, err
	}
	opened, err := r.trees.open(ctx, r.Stage, r.tenant, j)
	if err != nil {
		return out, err
	}
	res, err := r.renderOrShare(ctx, j, opened)
	if err != nil {
		return out, err
	}
	out.Revisions, out.Warnings = j.commits, res.Warnings
	for _, made := range res.Objects {
		out.Objects, out.Bodies = append(out.Objects, made.Ref), append(out.Bodies, made.JSON)
	}
	return out, nil
}
