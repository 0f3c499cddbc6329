package render

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
	loop "github.com/capstan-cd/capstan/shared/lifecycle"
)

// demand notes what the application's project demands of the commits, and what
// of it is not known to be fulfilled.
func (r *round) demand(j *job) error {
	if j.refresh.Project == nil {
		return nil
	}
	project, err := j.refresh.Project.Effective()
	if err != nil {
		return err
	}
	sources := j.spec.EffectiveSources()
	j.integrity = project.Integrity.Digest(sources)
	if j.integrity == "" {
		return nil
	}
	for i, s := range sources {
		policy, demanded := project.Of(s.RepoURL)
		if s.Kind() != hub.GitRepository || !demanded {
			continue
		}
		d := hub.SignatureDemand{
			Revision: s.TargetRevision, TagPrefix: s.TagPrefix, Commit: j.commits[i], Policy: policy, Keys: j.refresh.PublicKeys,
		}
		repo := j.refresh.Sources[i].Repository
		if r.signatures == nil || !r.signatures.Verified(r.tenant, repo.ID, d) {
			j.unverified = append(j.unverified, unsigned{repo, d})
		}
	}
	return nil
}

// verify checks what is not known yet. A history may be long, so this is no work
// for the goroutine that resolves the applications of a tenant.
func (r *round) verify(ctx context.Context, j *job) error {
	if len(j.unverified) > 0 && r.signatures == nil {
		return fault.New(fault.Internal, "signatures of commits cannot be checked here")
	}
	for _, u := range j.unverified {
		loop.Beat(ctx)
		if err := r.signatures.Verify(ctx, r.tenant, u.repo, u.demand); err != nil {
			return err
		}
	}
	return nil
}

// parameters is the hash of all that a result depends on besides its inputs.
// What was rendered under another demand of signatures is not used again: a
// snapshot says under which one its commits were verified.
func (j *job) parameters(tenant hub.TenantID) [sha256.Size]byte { return j.hashParams(tenant, Version) }

// rendering says what has made a result, so that a later one of other renderers
// can be told from one of other sources.
func (j *job) rendering(tenant hub.TenantID, inputs []hub.Input) *hub.Rendering {
	params, read := j.hashParams(tenant, ""), sha256.New()
	for _, in := range inputs {
		_, _ = fmt.Fprintf(read, "%d %q %q %q\n", in.Source, in.Kind, in.Path, in.Hash)
	}
	short := func(hash []byte) string { return base64.RawURLEncoding.EncodeToString(hash[:8]) }
	return &hub.Rendering{Version: Version, Params: short(params[:]), Inputs: short(read.Sum(nil))}
}

func (j *job) hashParams(tenant hub.TenantID, version string) [sha256.Size]byte {
	params := hashParams(version, j.request(tenant, nil))
	if j.integrity == "" {
		return params
	}
	return sha256.Sum256(append(params[:], j.integrity...))
}
