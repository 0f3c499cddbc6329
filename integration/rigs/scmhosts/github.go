package scmhosts

import (
	"net/http"
	"time"
)

// gitHub serves the API of Enterprise servers, below /api/v3.
func (s *Server) gitHub(w http.ResponseWriter, r *http.Request) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v3/orgs/{org}/repos", func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("org") != Owner {
			s.fail(w, http.StatusNotFound, "Not Found", "")
			return
		}
		s.reply(w, r, convert(page(s, w, r, "per_page", "", s.all()), s.gitHubRepository))
	})
	mux.HandleFunc("GET /api/v3/repos/{owner}/{repo}/branches/{branch}", s.onRepository(func(w http.ResponseWriter, r *http.Request, repo Repository) {
		b, ok := repo.branch(r.PathValue("branch"))
		if !ok {
			s.fail(w, http.StatusNotFound, "Branch not found", "")
			return
		}
		s.reply(w, r, gitHubBranch(b))
	}))
	mux.HandleFunc("GET /api/v3/repos/{owner}/{repo}/branches", s.onRepository(func(w http.ResponseWriter, r *http.Request, repo Repository) {
		s.reply(w, r, convert(page(s, w, r, "per_page", "", repo.Branches), gitHubBranch))
	}))
	mux.HandleFunc("GET /api/v3/repos/{owner}/{repo}/contents/{path...}", s.onRepository(s.contents))
	mux.HandleFunc("GET /api/v3/repos/{owner}/{repo}/pulls", s.onRepository(func(w http.ResponseWriter, r *http.Request, repo Repository) {
		s.reply(w, r, convert(page(s, w, r, "per_page", "", repo.Pulls), gitHubPull))
	}))
	mux.ServeHTTP(w, r)
}

// onRepository finds the repository of a path.
func (s *Server) onRepository(serve func(http.ResponseWriter, *http.Request, Repository)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		repo, ok := s.find(func(o Repository) bool { return o.Name == r.PathValue("repo") && r.PathValue("owner") == Owner })
		if !ok {
			s.fail(w, http.StatusNotFound, "Not Found", "")
			return
		}
		serve(w, r, repo)
	}
}

// contents answers for a file or a folder of a commit.
func (s *Server) contents(w http.ResponseWriter, r *http.Request, repo Repository) {
	path := r.PathValue("path")
	b, ok := repo.branch(r.URL.Query().Get("ref"))
	if !ok || !b.has(path) {
		s.fail(w, http.StatusNotFound, "Not Found", "")
		return
	}
	s.reply(w, r, []object{{"name": path, "type": "file"}})
}

func (s *Server) gitHubRepository(r Repository) object {
	return object{
		"id": r.ID, "name": r.Name, "full_name": Owner + "/" + r.Name, "owner": object{"login": Owner}, "default_branch": r.Default, "archived": r.Archived,
		"ssh_url": "git@" + s.Kind + ".example:" + Owner + "/" + r.Name + ".git", "clone_url": "https://" + s.Kind + ".example/" + Owner + "/" + r.Name + ".git",
		"topics": append([]string{}, r.Topics...), "pushed_at": r.Pushed.UTC().Format(time.RFC3339),
	}
}

func gitHubBranch(b Branch) object {
	return object{"name": b.Name, "protected": false, "commit": object{"sha": b.SHA, "url": "https://github.example/commit"}}
}

func gitHubPull(p Pull) object {
	return object{
		"number": p.Number, "title": p.Title, "state": "open", "head": object{"ref": p.Source, "sha": p.SHA}, "base": object{"ref": p.Target},
		"user": object{"login": p.Author}, "labels": convert(p.Labels, func(l string) object { return object{"name": l} }),
	}
}
