package providers

import (
	"net/http"
	"slices"
	"strings"
)

// A GitHub follows docs.github.com: "Authorizing OAuth apps", "REST API
// endpoints for users", "… for emails", "… for organization members" ("Check
// organization membership for a user") and "… for teams" ("List teams for the
// authenticated user"). It serves github.com, and GitHub Enterprise Server on
// hosts that begin with "ghe.".
type GitHub struct {
	ID     int64
	Login  string
	Name   string
	Emails []GitHubEmail
	Orgs   []string // that the person is a member of
	Teams  []GitHubTeam
	// Foreign are organizations that answer 302, because the asking person is
	// no member; Restricted are those that have not approved the OAuth app.
	Foreign, Restricted []string
}

// A GitHubEmail is an address of the person.
type GitHubEmail struct {
	Email    string `json:"email"`
	Primary  bool   `json:"primary"`
	Verified bool   `json:"verified"`
}

// A GitHubTeam is a team of the person.
type GitHubTeam struct{ Org, Name, Slug string }

func (s *Server) serveGitHub(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Path
	enterprise := strings.HasPrefix(r.Host, "ghe.")
	switch {
	case r.Host != "api.github.com" && path == "/login/oauth/authorize":
		s.authorize(w, r)
		return
	case r.Host != "api.github.com" && path == "/login/oauth/access_token":
		s.gitHubToken(w, r)
		return
	case enterprise && strings.HasPrefix(path, "/api/v3"):
		path = strings.TrimPrefix(path, "/api/v3")
	case r.Host != "api.github.com":
		http.NotFound(w, r)
		return
	}
	if !s.authorized(w, r) {
		return
	}
	if r.Header.Get("X-Github-Api-Version") == "" {
		reply(w, http.StatusBadRequest, map[string]string{"message": "no version"})
		return
	}
	s.gitHubAPI(w, r, path)
}

// gitHubToken answers errors with status 200, as GitHub does.
func (s *Server) gitHubToken(w http.ResponseWriter, r *http.Request) {
	record := &statusRecorder{ResponseWriter: w}
	g, ok := s.exchange(record, r)
	if !ok {
		return
	}
	reply(w, http.StatusOK, map[string]string{"access_token": s.token(), "token_type": "bearer", "scope": strings.Join(g.scopes, ",")})
}

// A statusRecorder answers 200 instead of an error.
type statusRecorder struct{ http.ResponseWriter }

func (r *statusRecorder) WriteHeader(int) { r.ResponseWriter.WriteHeader(http.StatusOK) }

func (s *Server) gitHubAPI(w http.ResponseWriter, r *http.Request, path string) {
	g := s.GitHub
	switch {
	case path == "/user":
		reply(w, http.StatusOK, map[string]any{"id": g.ID, "login": g.Login, "name": g.Name, "email": nil})
	case path == "/user/emails":
		page(w, r, g.Emails)
	case path == "/user/orgs":
		var orgs []map[string]string
		for _, o := range g.Orgs {
			orgs = append(orgs, map[string]string{"login": o})
		}
		page(w, r, orgs)
	case path == "/user/teams":
		var teams []map[string]any
		for _, t := range g.Teams {
			teams = append(teams, map[string]any{"name": t.Name, "slug": t.Slug, "organization": map[string]string{"login": t.Org}})
		}
		page(w, r, teams)
	case strings.HasPrefix(path, "/orgs/"):
		s.gitHubMember(w, r, strings.Split(path, "/"))
	default:
		http.NotFound(w, r)
	}
}

func (s *Server) gitHubMember(w http.ResponseWriter, r *http.Request, parts []string) {
	g := s.GitHub
	if len(parts) != 5 || parts[3] != "members" {
		http.NotFound(w, r)
		return
	}
	org, login := parts[2], parts[4]
	switch {
	case slices.Contains(g.Restricted, org):
		reply(w, http.StatusForbidden, map[string]string{"message": "Although you appear to have the correct authorization credentials, the `" + org + "` organization has enabled OAuth App access restrictions"})
	case slices.Contains(g.Foreign, org):
		http.Redirect(w, r, "https://"+r.Host+"/orgs/"+org+"/public_members/"+login, http.StatusFound)
	case login == g.Login && slices.ContainsFunc(g.Orgs, func(o string) bool { return strings.EqualFold(o, org) }):
		w.WriteHeader(http.StatusNoContent)
	default:
		reply(w, http.StatusNotFound, map[string]string{"message": "Not Found"})
	}
}
