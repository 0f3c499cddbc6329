package api

import (
	"context"
	"slices"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/catalog"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/logkey"
)

// How long a read with a refresh waits for it: until it is done, or, if the
// sources cannot be used, until it would have shown that they can. A refresh
// that changes nothing is no event, so the application is read again and again.
const (
	refreshWait   = 60 * time.Second
	refreshBroken = 5 * time.Second
	refreshPoll   = 100 * time.Millisecond
)

// refreshed refreshes an application and waits until that is done (API-05).
func (s *Server) refreshed(ctx context.Context, namespace, name string, hard bool) error {
	before, err := s.askRefresh(ctx, namespace, name, hard)
	var cluster hub.Meta
	if before.On != nil {
		cluster = before.On.Meta
	}
	if err != nil || hub.Skipped(before.Meta, cluster) != "" {
		return err
	}
	began := time.Now()
	for {
		v, err := s.Catalog.Application(ctx, callerOf(ctx), namespace, name)
		switch {
		case err != nil:
			return err
		case later(v.Status.RefreshedAt, before.Status.RefreshedAt), unusable(v.Application) && time.Since(began) > refreshBroken:
			return nil
		case time.Since(began) > refreshWait:
			return fault.With(fault.New(fault.Offline, "the refresh is not done after %s, and continues", refreshWait), "application "+name, "read the application again; its conditions say what is wrong with its sources")
		}
		if err := lifecycle.Sleep(ctx, lifecycle.System{}, refreshPoll); err != nil {
			return err
		}
	}
}

// askRefresh has an application refreshed, and its agent compare it. It returns
// the application as it was.
func (s *Server) askRefresh(ctx context.Context, namespace, name string, hard bool) (catalog.View, error) {
	v, err := s.Catalog.Refresh(ctx, callerOf(ctx), namespace, name, hard)
	if err != nil {
		return v, err
	}
	if v.On != nil {
		if err := s.Relay.Refresh(ctx, *v.On, v.ID); err != nil {
			s.Log.DebugContext(ctx, "agent not asked to compare", logkey.Cluster, v.On.ID, logkey.Error, err)
		}
	}
	return v, nil
}

func later(now, before *time.Time) bool {
	return now != nil && (before == nil || now.After(*before))
}

// unusable reports whether the sources of an application are known to be broken.
func unusable(a hub.Application) bool {
	return slices.ContainsFunc(a.Status.Conditions, func(c hub.Condition) bool { return c.Type == hub.ComparisonError || c.Type == hub.InvalidSpecError })
}
