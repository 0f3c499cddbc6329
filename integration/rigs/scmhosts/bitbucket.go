package scmhosts

import (
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// bitbucket serves the API of Bitbucket Cloud below /2.0.
func (s *Server) bitbucket(w http.ResponseWriter, r *http.Request) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /2.0/repositories/{owner}", func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("owner") != Owner {
			s.fail(w, http.StatusNotFound, "No workspace with identifier '"+r.PathValue("owner")+"'.", "")
			return
		}
		s.reply(w, r, s.inBody(r, convert(s.all(), bitbucketRepository)))
	})
	mux.HandleFunc("GET /2.0/repositories/{owner}/{repo}/refs/branches/{branch...}", s.onRepository(func(w http.ResponseWriter, r *http.Request, repo Repository) {
		b, ok := repo.branch(r.PathValue("branch"))
		if !ok {
			s.fail(w, http.StatusNotFound, "Branch \""+r.PathValue("branch")+"\" not found", "")
			return
		}
		s.reply(w, r, bitbucketBranch(b))
	}))
	mux.HandleFunc("GET /2.0/repositories/{owner}/{repo}/refs/branches", s.onRepository(func(w http.ResponseWriter, r *http.Request, repo Repository) {
		s.reply(w, r, s.inBody(r, convert(repo.Branches, bitbucketBranch)))
	}))
	mux.HandleFunc("GET /2.0/repositories/{owner}/{repo}/src/{commit}/{path...}", s.onRepository(func(w http.ResponseWriter, r *http.Request, repo Repository) {
		b, _ := repo.branch(r.PathValue("commit"))
		if !b.has(r.PathValue("path")) {
			s.fail(w, http.StatusNotFound, "No such file or directory", "")
			return
		}
		s.reply(w, r, object{"type": "commit_file", "path": r.PathValue("path")})
	}))
	mux.HandleFunc("GET /2.0/repositories/{owner}/{repo}/pullrequests", s.onRepository(func(w http.ResponseWriter, r *http.Request, repo Repository) {
		s.reply(w, r, s.inBody(r, convert(repo.Pulls, func(p Pull) object {
			return object{
				"id": p.Number, "title": p.Title, "state": "OPEN", "author": object{"nickname": p.Author},
				"source":      object{"branch": object{"name": p.Source}, "commit": object{"hash": p.SHA[:12]}},
				"destination": object{"branch": object{"name": p.Target}},
			}
		})))
	}))
	mux.ServeHTTP(w, r)
}

// inBody is the page that is asked for, with the address of the next one.
func (s *Server) inBody(r *http.Request, items []object) object {
	query := r.URL.Query()
	most, _ := strconv.Atoi(query.Get("pagelen"))
	if s.Most > 0 {
		most = min(most, s.Most)
	}
	n, _ := strconv.Atoi(query.Get("page"))
	n = max(n, 1)
	first, last := min((n-1)*most, len(items)), min(n*most, len(items))
	out := object{"values": items[first:last], "pagelen": most, "page": n, "size": len(items)}
	if last < len(items) {
		query.Set("page", strconv.Itoa(n+1))
		out["next"] = fmt.Sprintf("https://%s%s?%s", r.Host, r.URL.Path, query.Encode())
	}
	return out
}

func bitbucketRepository(r Repository) object {
	out := object{
		"uuid": fmt.Sprintf("{%08d-0000-4000-8000-000000000000}", r.ID), "slug": r.Name, "name": r.Name, "updated_on": r.Pushed.UTC().Format(time.RFC3339Nano),
		"links": object{"clone": []object{
			{"name": "https", "href": "https://robot@bitbucket.example/" + Owner + "/" + r.Name + ".git"}, {"name": "ssh", "href": "git@bitbucket.example:" + Owner + "/" + r.Name + ".git"},
		}},
		"mainbranch": nil,
	}
	if len(r.Branches) > 0 {
		out["mainbranch"] = object{"type": "branch", "name": r.Default}
	}
	return out
}

func bitbucketBranch(b Branch) object {
	return object{"name": b.Name, "type": "branch", "target": object{"hash": b.SHA}}
}
