package catalog

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/access"
	"github.com/capstan-cd/capstan/hub/catalog/validation"
	"github.com/capstan-cd/capstan/shared/fault"
)

// An Unsaved is an application as a write would make it.
type Unsaved struct {
	// Refresh is what its render needs, but for the tenant's settings.
	Refresh hub.Refresh
	// Exists says that there is an application of that name.
	Exists bool
	// On is where its objects are compared; nil: Uncompared says why not.
	On         *hub.Cluster
	Uncompared string
	Warnings   []string
}

// Unsaved checks an application as PutApplication does, and says what a render
// of it needs. Its transaction is undone: nothing is stored.
func (c *Catalog) Unsaved(ctx context.Context, by hub.Caller, a hub.Application) (Unsaved, error) {
	spec, warnings, err := validation.CheckApplication(&a)
	if err != nil {
		return Unsaved{}, fault.With(err, "application "+title(a.Namespace, validation.Shorten(a.Name)), "")
	}
	out := Unsaved{Warnings: warnings}
	err = c.writeOr(ctx, by, true, func(ctx context.Context, w *writer) error {
		there, err := w.ForPut(ctx, hub.ApplicationKey{Namespace: a.Namespace, Name: a.Name}, a.Project, validation.DestinationName(spec.Destination))
		if err != nil {
			return err
		}
		stored, on, _, err := w.putApplication(ctx, there, a, spec, PutOptions{Create: true, Update: true})
		if err != nil {
			return err
		}
		found, err := w.Refreshes(ctx, []hub.ApplicationID{stored.ID}, 0)
		if err != nil {
			return err
		}
		if len(found) != 1 {
			return fmt.Errorf("application %s is not there after its write", stored.ID)
		}
		out.Refresh, out.Exists = found[0], there.Application != nil
		out.On, out.Uncompared, err = w.comparable(there.Application, spec, on)
		return err
	})
	if err != nil {
		return Unsaved{}, err
	}
	if err := c.parts.Permits(out.Refresh, spec); err != nil {
		return out, fault.With(fault.New(fault.Invalid, "the application cannot be delivered: %s", fault.Sentence(err)), "application "+title(a.Namespace, a.Name), "choose what project "+a.Project+" permits, or ask its admin")
	}
	return out, nil
}

// comparable is the cluster whose agent can compare an application with the
// objects that it has, or why there is none: the agent knows the application as
// it is stored, with its destination and project.
func (w *writer) comparable(old *hub.Application, spec hub.ApplicationSpec, on *hub.Cluster) (*hub.Cluster, string, error) {
	switch {
	case on == nil:
		return nil, "the destination stands for no cluster", nil
	case old == nil:
		return nil, "it has no objects in cluster " + on.Name + " yet: all of these would be created", nil
	case !w.Rights.Check(access.Applications, access.Get, objectOf(*old)):
		return nil, "you have no right to get the application", nil
	}
	before, err := hub.DecodeSpec(old.Spec)
	if err != nil {
		return nil, "", err
	}
	if old.Cluster != on.ID || before.Destination.Namespace != spec.Destination.Namespace || old.Project != projectOr(spec.Project) {
		return nil, "its destination or project changes, so that its objects are compared when that is saved", nil
	}
	return on, "", nil
}

// projectOr is the project that a spec means.
func projectOr(name string) string {
	if name == "" {
		return "default"
	}
	return name
}

// Masked returns rendered objects as people may see them: values of Secrets are
// masked as everywhere else for that cluster.
func (c *Catalog) Masked(ctx context.Context, by hub.Caller, cluster hub.ClusterID, bodies [][]byte) ([]json.RawMessage, error) {
	_, mask, err := c.masking(ctx, by.Tenant, cluster)
	if err != nil {
		return nil, err
	}
	out := make([]json.RawMessage, 0, len(bodies))
	for _, body := range bodies {
		text, err := mask.text(body)
		if err != nil {
			return nil, err
		}
		out = append(out, text)
	}
	return out, nil
}
