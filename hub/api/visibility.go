package api

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/access"
	"github.com/capstan-cd/capstan/hub/catalog"
)

// policyAge is how long all streams of a tenant take the version of its policy for
// current before one of them asks again.
const policyAge = 250 * time.Millisecond

// maxVersions bounds the tenants whose version is remembered.
const maxVersions = 1024

// policyVersions are the versions of policies that were read a moment ago.
type policyVersions struct {
	mu   sync.Mutex
	seen map[hub.TenantID]policyVersion
}

type policyVersion struct {
	version int64
	at      time.Time
}

func (s *Server) policyVersion(ctx context.Context, tenant hub.TenantID) (int64, error) {
	s.versions.mu.Lock()
	known, ok := s.versions.seen[tenant]
	s.versions.mu.Unlock()
	if ok && time.Since(known.at) < policyAge {
		return known.version, nil
	}
	at := time.Now()
	version, err := s.Catalog.PolicyVersion(ctx, tenant)
	if err != nil {
		return 0, err
	}
	s.versions.mu.Lock()
	defer s.versions.mu.Unlock()
	if s.versions.seen == nil || len(s.versions.seen) >= maxVersions {
		s.versions.seen = map[hub.TenantID]policyVersion{}
	}
	s.versions.seen[tenant] = policyVersion{version, at}
	return version, nil
}

// A visibility is what the caller of a stream may see, and since when.
type visibility struct {
	rights  *access.Index
	version int64 // of the policy
	subject hub.Caller
}

// maxVisible is how many objects may become visible or invisible at once;
// with more the client lists again.
const maxVisible = 1000

// followRights finds out whether what the caller may see has changed since the last
// call, and returns what became visible or invisible. With again the client
// has to list again.
func (l *listener) followRights(ctx context.Context, cursor string) (changes []hub.Change, again bool, err error) {
	version, err := l.s.policyVersion(ctx, l.who.Tenant)
	if err != nil {
		return nil, false, err
	}
	if l.visibility.rights != nil && version == l.visibility.version && sameSubject(l.who, l.visibility.subject) {
		return nil, false, nil
	}
	if l.visibility.rights == nil {
		l.visibility.rights, err = l.s.Catalog.Rights(ctx, l.who)
	} else {
		l.visibility.rights, changes, err = l.s.Catalog.VisibilityChanges(ctx, l.who, l.visibility.rights)
	}
	if err != nil {
		return nil, false, err
	}
	l.visibility.version, l.visibility.subject = version, l.who
	for i := range changes {
		changes[i].Cursor = cursor
	}
	return changes, len(changes) > maxVisible, nil
}

// sameSubject reports whether rules mean the same by two callers.
func sameSubject(a, b hub.Caller) bool {
	return a.Username == b.Username && a.ProjectRole == b.ProjectRole && slices.Equal(a.Roles, b.Roles) && slices.Equal(a.Groups, b.Groups)
}

// at is the id of an event: where a stream goes on that is interrupted.
func (l *listener) at(cursor string) string {
	return catalog.JoinCursor(cursor, l.visibility.rights.Visibility())
}
