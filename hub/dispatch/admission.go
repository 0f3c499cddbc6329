package dispatch

import (
	"context"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

// skipped says why nothing is to be done to an application; empty: something
// is (APP-24).
func (c *change) skipped(a hub.Application) string {
	if why := hub.Skipped(a.Meta, c.clusters[a.Cluster].Meta); why != "" {
		return why
	}
	if err, off := fault.As(c.admitted(a)); off {
		return err.Cause
	}
	return ""
}

// admitted refuses an application on a cluster that is switched off as a
// destination (APP-05).
func (c *change) admitted(a hub.Application) error {
	on := c.clusters[a.Cluster]
	if !on.InClusterOff {
		return nil
	}
	spec, err := hub.DecodeSpec(a.Spec)
	if err != nil {
		return err
	}
	return on.Admits(spec.Destination)
}

// restricted says why nothing new may be deployed for the application's project.
func (c *change) restricted(a hub.Application) error {
	return c.projects[a.Project].Refusal(a.Project)
}

// verified refuses a snapshot whose commits were not verified as the project
// demands now (PROJ-15, PROJ-16). What is enforced already is left alone.
func (c *change) verified(a hub.Application, spec hub.ApplicationSpec, s hub.Snapshot) error {
	demanded := c.projects[a.Project].Integrity.Digest(spec.EffectiveSources())
	if demanded == "" || s.Commit.Integrity == demanded {
		return nil
	}
	return fault.With(fault.New(fault.Conflict, "the signatures of revision %s were not verified under the present rules of project %q", s.Revision, a.Project),
		"application "+a.Name, "refresh the application, or sync to that revision: both verify it")
}

// verifiedFor is verified for the sources that an operation overrides.
func (c *change) verifiedFor(a hub.Application, spec hub.ApplicationSpec, op hub.Operation, s hub.Snapshot) error {
	if op.Options.Override != nil {
		var err error
		if spec, err = op.Options.Override.Apply(spec); err != nil {
			return err
		}
	}
	return c.verified(a, spec, s)
}

// mayAct refuses what a person asks for while the application is left as it is.
func (c *change) mayAct(a hub.Application) error {
	why := c.skipped(a)
	if why == "" {
		if err, no := fault.As(c.restricted(a)); no {
			return fault.With(fault.New(fault.Conflict, "%s", err.Cause), "application "+a.Name, err.Fix)
		}
		return nil
	}
	if err, off := fault.As(c.admitted(a)); off {
		return fault.With(fault.New(fault.Conflict, "%s", why), "application "+a.Name, err.Fix)
	}
	return fault.With(fault.New(fault.Conflict, "%s", why), "application "+a.Name, "remove the annotation first")
}

// Skipped tells the clusters of applications that nothing is to be done to
// them by itself, once. What is desired stays as it was.
func (d *Dispatcher) Skipped(ctx context.Context, tenant hub.TenantID, ids []hub.ApplicationID) error {
	return d.commit(ctx, tenant, func(ctx context.Context, tx Tx) ([]hub.ClusterID, error) {
		c := &change{tx: tx, now: time.Now()}
		if err := c.load(ctx, ids); err != nil {
			return nil, err
		}
		for _, id := range ids {
			a, there := c.apps[id]
			if !there {
				continue
			}
			if err := c.leaveBe(ctx, a); err != nil {
				return nil, err
			}
		}
		if err := c.write(ctx); err != nil {
			return nil, err
		}
		return c.touched(), nil
	})
}

// leaveBe notes that an application is left as it is, if it is.
func (c *change) leaveBe(ctx context.Context, a hub.Application) error {
	why := c.skipped(a)
	_, permitted := c.projects[a.Project]
	if why == "" || a.DeletingAt != nil || a.Status.Target == "" || !permitted || a.Status.Hold == why && a.Status.PlannedGeneration == a.Generation {
		return nil
	}
	spec, err := hub.DecodeSpec(a.Spec)
	if err != nil {
		return err
	}
	return c.move(ctx, move{
		app: a, spec: spec, target: a.Status.Target, hold: why,
		revision: a.Status.Revision, revisions: a.Status.Revisions, sourceType: a.Status.SourceType,
	})
}
