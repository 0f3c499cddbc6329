package providers

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// A GitLab follows docs.gitlab.com: "OAuth 2.0 identity provider API", "GitLab
// as an OpenID Connect identity provider" (userinfo), "Users API" (current
// user), "Groups API" (list groups) and "Group members API" (with inherited
// and invited members). It serves hosts that begin with "gitlab.".
type GitLab struct {
	ID       int64
	Username string
	Name     string
	Email    string
	State    string // active, blocked, …
	// Groups are the full paths of direct memberships; Owner, Maintainer and
	// Developer those of them, or above them, with this role.
	Groups, Owner, Maintainer, Developer []string
	// Inherited are groups of the API with the level of access in them.
	Inherited []GitLabGroup
}

// A GitLabGroup is a group of the API.
type GitLabGroup struct {
	ID    int64
	Path  string
	Level int // 0: GitLab does not say
}

func (s *Server) serveGitLab(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/oauth/authorize":
		s.authorize(w, r)
		return
	case "/oauth/token":
		if _, ok := s.exchange(w, r); ok {
			reply(w, http.StatusOK, map[string]any{"access_token": s.token(), "token_type": "Bearer", "expires_in": 7200})
		}
		return
	}
	if !s.authorized(w, r) {
		return
	}
	g := s.GitLab
	switch path := r.URL.Path; {
	case path == "/api/v4/user":
		reply(w, http.StatusOK, map[string]any{
			"id": g.ID, "username": g.Username, "name": g.Name, "email": g.Email, "state": g.State, "confirmed_at": "2026-01-01T00:00:00Z",
		})
	case path == "/oauth/userinfo":
		reply(w, http.StatusOK, map[string]any{
			"sub": strconv.FormatInt(g.ID, 10), "groups": g.Groups,
			"https://gitlab.org/claims/groups/owner":      g.Owner,
			"https://gitlab.org/claims/groups/maintainer": g.Maintainer,
			"https://gitlab.org/claims/groups/developer":  g.Developer,
		})
	case path == "/api/v4/groups":
		var groups []map[string]any
		for _, i := range g.Inherited {
			groups = append(groups, map[string]any{"id": i.ID, "full_path": i.Path})
		}
		page(w, r, groups)
	case strings.HasPrefix(path, "/api/v4/groups/"):
		for _, i := range g.Inherited {
			if i.Level > 0 && path == fmt.Sprintf("/api/v4/groups/%d/members/all/%d", i.ID, g.ID) {
				reply(w, http.StatusOK, map[string]any{"access_level": i.Level})
				return
			}
		}
		reply(w, http.StatusNotFound, map[string]string{"message": "404 Not found"})
	default:
		http.NotFound(w, r)
	}
}
