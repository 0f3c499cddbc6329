package api

import (
	"cmp"
	"context"
	"io"
	"net/http"
	"strings"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/api/badge"
	"github.com/capstan-cd/capstan/hub/api/gen"
	"github.com/capstan-cd/capstan/hub/catalog"
	"github.com/capstan-cd/capstan/hub/catalog/validation"
	"github.com/capstan-cd/capstan/shared/fault"
)

// shownRevision is how many characters of a revision a badge has.
const shownRevision = 7

// GetBadge answers a picture of the status of an application or of projects.
// Whatever a stranger may not know looks like an unknown status.
func (s *Server) GetBadge(ctx context.Context, r gen.GetBadgeRequestObject) (gen.GetBadgeResponseObject, error) {
	p := r.Params
	picture := badge.Badge{Width: p.Width}
	tenant, err := s.Catalog.BadgeTenant(ctx, cmp.Or(p.Tenant, defaultTenant))
	if fault.KindOf(err) == fault.Missing {
		return badgeAnswer(picture), nil
	}
	if err != nil {
		return nil, err
	}
	// All strangers share the rate of one caller, so that they take nothing from
	// the people of the tenant.
	if !s.limits.Caller.Allow("badge " + string(tenant.ID)) {
		return nil, errTooFast()
	}
	key := hub.ApplicationKey{Namespace: cmp.Or(p.Namespace, validation.DefaultNamespace), Name: p.Name}
	got, err := s.Catalog.Badge(ctx, tenant, catalog.BadgeQuestion{ApplicationKey: key, Projects: p.Project})
	if err != nil {
		return nil, err
	}
	picture.Health, picture.Sync = got.Health, got.Sync
	if p.ShowAppName {
		picture.Name = got.Name
	}
	if p.Revision {
		picture.Revision = got.Revision
		if !p.KeepFullRevision && len(picture.Revision) > shownRevision {
			picture.Revision = picture.Revision[:shownRevision]
		}
	}
	return badgeAnswer(picture), nil
}

// A badgeAnswer is a picture that nobody stores: those who embed it ask again.
type badgeAnswer badge.Badge

// VisitGetBadgeResponse writes the answer.
func (b badgeAnswer) VisitGetBadgeResponse(w http.ResponseWriter) error {
	w.Header().Set("Content-Type", "image/svg+xml")
	w.Header().Set("Cache-Control", "private, no-store")
	// Pages of others may show it, unlike everything else of the hub.
	w.Header().Set("Cross-Origin-Resource-Policy", "cross-origin")
	_, err := io.Copy(w, strings.NewReader(badge.Badge(b).SVG()))
	return err
}
