package scmhosts

import (
	"net/http"
	"strconv"
	"strings"
)

// bitbucketServer serves the API of Bitbucket Data Center below /rest/api/1.0.
func (s *Server) bitbucketServer(w http.ResponseWriter, r *http.Request) {
	mux := http.NewServeMux()
	const repos = "GET /rest/api/1.0/projects/{project}/repos"
	mux.HandleFunc(repos, func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("project") != Owner {
			s.fail(w, http.StatusNotFound, "Project "+r.PathValue("project")+" does not exist.", "project.NoSuchProjectException")
			return
		}
		s.reply(w, r, s.started(r, convert(s.all(), serverRepository)))
	})
	mux.HandleFunc(repos+"/{repo}/branches/default", s.onSlug(func(w http.ResponseWriter, r *http.Request, repo Repository) {
		b, ok := repo.branch(repo.Default)
		switch {
		case len(repo.Branches) == 0:
			w.WriteHeader(http.StatusNoContent)
		case !ok:
			s.fail(w, http.StatusNotFound, "The default branch does not exist.", "repository.NoDefaultBranchException")
		default:
			s.reply(w, r, serverBranch(b))
		}
	}))
	mux.HandleFunc(repos+"/{repo}/branches", s.onSlug(func(w http.ResponseWriter, r *http.Request, repo Repository) {
		s.reply(w, r, s.started(r, convert(repo.Branches, serverBranch)))
	}))
	mux.HandleFunc(repos+"/{repo}/browse/{path...}", s.onSlug(func(w http.ResponseWriter, r *http.Request, repo Repository) {
		b, _ := repo.branch(r.URL.Query().Get("at"))
		if !b.has(r.PathValue("path")) {
			s.fail(w, http.StatusNotFound, "The path does not exist.", "content.NoSuchPathException")
			return
		}
		s.reply(w, r, object{"type": "FILE"})
	}))
	mux.HandleFunc(repos+"/{repo}/pull-requests", s.onSlug(func(w http.ResponseWriter, r *http.Request, repo Repository) {
		s.reply(w, r, s.started(r, convert(repo.Pulls, func(p Pull) object {
			return object{
				"id": p.Number, "title": p.Title, "state": "OPEN", "author": object{"user": object{"name": p.Author}},
				"fromRef": object{"id": "refs/heads/" + p.Source, "displayId": p.Source, "latestCommit": p.SHA},
				"toRef":   object{"id": "refs/heads/" + p.Target, "displayId": p.Target},
			}
		})))
	}))
	mux.ServeHTTP(w, r)
}

// onSlug finds a repository by its slug.
func (s *Server) onSlug(serve func(http.ResponseWriter, *http.Request, Repository)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		repo, ok := s.find(func(o Repository) bool { return o.slug() == r.PathValue("repo") && r.PathValue("project") == Owner })
		if !ok {
			s.fail(w, http.StatusNotFound, "Repository does not exist.", "repository.NoSuchRepositoryException")
			return
		}
		serve(w, r, repo)
	}
}

// slug is the name in URLs.
func (r Repository) slug() string { return strings.ToLower(strings.ReplaceAll(r.Name, " ", "-")) }

// started is the page that begins at a number of items.
func (s *Server) started(r *http.Request, items []object) object {
	query := r.URL.Query()
	most, _ := strconv.Atoi(query.Get("limit"))
	if s.Most > 0 {
		most = min(most, s.Most)
	}
	start, _ := strconv.Atoi(query.Get("start"))
	first, last := min(start, len(items)), min(start+most, len(items))
	out := object{"values": items[first:last], "limit": most, "size": last - first, "start": first, "isLastPage": last == len(items)}
	if last < len(items) {
		out["nextPageStart"] = last
	}
	return out
}

func serverRepository(r Repository) object {
	return object{
		"id": r.ID, "slug": r.slug(), "name": r.Name, "project": object{"key": Owner}, "links": object{"clone": []object{
			{"name": "http", "href": "https://bitbucket.example/scm/" + Owner + "/" + r.slug() + ".git"}, {"name": "ssh", "href": "ssh://git@bitbucket.example:7999/" + Owner + "/" + r.slug() + ".git"},
		}},
	}
}

func serverBranch(b Branch) object {
	return object{"id": "refs/heads/" + b.Name, "displayId": b.Name, "latestCommit": b.SHA, "type": "BRANCH"}
}
