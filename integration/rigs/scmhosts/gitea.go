package scmhosts

import (
	"net/http"
	"time"
)

// gitea serves API v1.
func (s *Server) gitea(w http.ResponseWriter, r *http.Request) {
	mux := http.NewServeMux()
	const total = "X-Total-Count"
	mux.HandleFunc("GET /api/v1/orgs/{org}/repos", func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("org") != Owner {
			s.fail(w, http.StatusNotFound, "user redirect does not exist", "")
			return
		}
		s.reply(w, r, convert(page(s, w, r, "limit", total, s.all()), giteaRepository))
	})
	mux.HandleFunc("GET /api/v1/users/{user}/repos", func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("user") != User {
			s.fail(w, http.StatusNotFound, "user does not exist", "")
			return
		}
		s.reply(w, r, convert(page(s, w, r, "limit", total, s.all()), giteaRepository))
	})
	mux.HandleFunc("GET /api/v1/repos/{owner}/{repo}/labels", s.onRepository(func(w http.ResponseWriter, r *http.Request, repo Repository) {
		s.reply(w, r, convert(page(s, w, r, "limit", total, repo.Topics), func(l string) object { return object{"id": 1, "name": l} }))
	}))
	mux.HandleFunc("GET /api/v1/repos/{owner}/{repo}/branches/{branch...}", s.onRepository(func(w http.ResponseWriter, r *http.Request, repo Repository) {
		b, ok := repo.branch(r.PathValue("branch"))
		if !ok {
			s.fail(w, http.StatusNotFound, "branch does not exist", "")
			return
		}
		s.reply(w, r, giteaBranch(b))
	}))
	mux.HandleFunc("GET /api/v1/repos/{owner}/{repo}/branches", s.onRepository(func(w http.ResponseWriter, r *http.Request, repo Repository) {
		s.reply(w, r, convert(page(s, w, r, "limit", total, repo.Branches), giteaBranch))
	}))
	mux.HandleFunc("GET /api/v1/repos/{owner}/{repo}/contents/{path...}", s.onRepository(s.contents))
	mux.HandleFunc("GET /api/v1/repos/{owner}/{repo}/pulls", s.onRepository(func(w http.ResponseWriter, r *http.Request, repo Repository) {
		s.reply(w, r, convert(page(s, w, r, "limit", total, repo.Pulls), gitHubPull))
	}))
	mux.ServeHTTP(w, r)
}

func giteaRepository(r Repository) object {
	return object{
		"id": r.ID, "name": r.Name, "default_branch": r.Default, "empty": len(r.Branches) == 0, "archived": r.Archived,
		"ssh_url": "git@gitea.example:" + Owner + "/" + r.Name + ".git", "html_url": "https://gitea.example/" + Owner + "/" + r.Name,
		"clone_url": "https://gitea.example/" + Owner + "/" + r.Name + ".git", "updated_at": r.Pushed.UTC().Format(time.RFC3339),
	}
}

func giteaBranch(b Branch) object {
	return object{"name": b.Name, "commit": object{"id": b.SHA, "message": "m"}}
}
