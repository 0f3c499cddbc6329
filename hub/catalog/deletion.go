package catalog

import (
	"context"
	"fmt"
	"strings"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/access"
	"github.com/capstan-cd/capstan/hub/catalog/transact"
	"github.com/capstan-cd/capstan/hub/catalog/validation"
)

// A DeletionPlan is what a deletion would do.
type DeletionPlan struct {
	Applications int      // that use it, those too that the caller may not see
	Effects      []string // one sentence each
}

// mostNamed is how many applications a plan names.
const mostNamed = 10

// PlanClusterDeletion says what would happen if a cluster were deleted.
func (c *Catalog) PlanClusterDeletion(ctx context.Context, by hub.Caller, name string) (DeletionPlan, error) {
	var out DeletionPlan
	err := c.read(ctx, by, func(ctx context.Context, r *reader) error {
		cl, err := r.Tx.Cluster(ctx, name)
		if err != nil {
			return transact.Hide(err, access.Clusters, validation.Shorten(name))
		}
		if !r.seesCluster(cl) {
			return transact.Missing(access.Clusters, validation.Shorten(name))
		}
		if !r.Rights.CheckAny(access.Clusters, access.Delete, validation.ClusterNames(cl)...) {
			return transact.Denied(access.Rule{Resource: access.Clusters, Action: access.Delete, Object: cl.Name})
		}
		out = DeletionPlan{Effects: []string{
			"The agent of the cluster is revoked and disconnected. It goes on enforcing the last state until somebody uninstalls it.",
			"Nothing in the cluster is deleted.",
		}}
		return r.using(ctx, &out, hub.ApplicationFilter{All: true, Clusters: []hub.ClusterID{cl.ID}},
			"%s on it %s no cluster any longer and wait for another destination: %s. Those that are being deleted are removed from the hub; their objects stay.", "has", "have")
	})
	return out, err
}

// PlanRepositoryDeletion says what would happen if a repository's registration
// and credential were deleted.
func (c *Catalog) PlanRepositoryDeletion(ctx context.Context, by hub.Caller, id hub.RepositoryID) (DeletionPlan, error) {
	var out DeletionPlan
	err := c.read(ctx, by, func(ctx context.Context, r *reader) error {
		repo, err := r.Tx.Repository(ctx, id)
		if err != nil {
			return transact.Hide(err, access.Repositories, validation.Shorten(string(id)))
		}
		object := repoObject(repo.Project, repo.URL)
		if !r.seesRepo(repo.Project, repo.URL) {
			return transact.Missing(access.Repositories, validation.Shorten(string(id)))
		}
		if !r.Rights.Check(access.Repositories, access.Delete, object) {
			return transact.Denied(access.Rule{Resource: access.Repositories, Action: access.Delete, Object: object})
		}
		out = DeletionPlan{Effects: []string{"Nothing in any cluster is deleted."}}
		if repo.HasCredential {
			out.Effects = append(out.Effects, "Its credential is deleted; only a credential template can open it then.")
		}
		url, _, _ := strings.Cut(repo.URL, "#")
		return r.using(ctx, &out, hub.ApplicationFilter{All: true, Repositories: []string{url}},
			"%s that %s it stay as deployed, and show an error if it cannot be read any longer: %s.", "uses", "use")
	})
	return out, err
}

// using adds which applications a deletion concerns.
func (r *reader) using(ctx context.Context, out *DeletionPlan, f hub.ApplicationFilter, sentence, one, many string) error {
	var names []string
	f.Limit = 500
	for {
		page, err := r.Tx.Applications(ctx, f)
		if err != nil {
			return err
		}
		for _, a := range page {
			f.After = hub.ApplicationKey{Namespace: a.Namespace, Name: a.Name}
			out.Applications++
			if len(names) < mostNamed && r.Rights.Check(access.Applications, access.Get, objectOf(a)) {
				names = append(names, a.Name)
			}
		}
		if len(page) < f.Limit {
			break
		}
	}
	if out.Applications == 0 {
		return nil
	}
	what, verb := "1 application", one
	if out.Applications > 1 {
		what, verb = fmt.Sprintf("%d applications", out.Applications), many
	}
	if rest := out.Applications - len(names); rest > 0 {
		names = append(names, fmt.Sprintf("%d more", rest))
	}
	out.Effects = append(out.Effects, fmt.Sprintf(sentence, what, verb, strings.Join(names, ", ")))
	return nil
}
