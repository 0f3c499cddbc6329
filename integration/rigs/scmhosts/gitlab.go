package scmhosts

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// gitLab serves API v4.
func (s *Server) gitLab(w http.ResponseWriter, r *http.Request) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v4/groups/{group}/projects", func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("group") != Owner {
			s.fail(w, http.StatusNotFound, "404 Group Not Found", "")
			return
		}
		query := r.URL.Query()
		all := slices.DeleteFunc(s.all(), func(p Repository) bool {
			return p.Group != "" && query.Get("include_subgroups") != "true" || p.Shared && query.Get("with_shared") != "true" ||
				query.Get("archived") != strconv.FormatBool(p.Archived) || query.Get("topic") != "" && !slices.Contains(p.Topics, query.Get("topic"))
		})
		s.reply(w, r, convert(page(s, w, r, "per_page", "X-Total", all), gitLabProject))
	})
	mux.HandleFunc("GET /api/v4/projects/{id}/repository/branches/{branch}", s.onProject(func(w http.ResponseWriter, r *http.Request, p Repository) {
		b, ok := p.branch(r.PathValue("branch"))
		if !ok {
			s.fail(w, http.StatusNotFound, "404 Branch Not Found", "")
			return
		}
		s.reply(w, r, gitLabBranch(b))
	}))
	mux.HandleFunc("GET /api/v4/projects/{id}/repository/branches", s.onProject(func(w http.ResponseWriter, r *http.Request, p Repository) {
		s.reply(w, r, convert(page(s, w, r, "per_page", "X-Total", p.Branches), gitLabBranch))
	}))
	mux.HandleFunc("GET /api/v4/projects/{id}/repository/files/{path}", s.onProject(func(w http.ResponseWriter, r *http.Request, p Repository) {
		b, _ := p.branch(r.URL.Query().Get("ref"))
		if !slices.Contains(b.Paths, r.PathValue("path")) {
			s.fail(w, http.StatusNotFound, "404 File Not Found", "")
			return
		}
		s.reply(w, r, object{"file_path": r.PathValue("path"), "content": "YQ=="})
	}))
	mux.HandleFunc("GET /api/v4/projects/{id}/repository/tree", s.onProject(func(w http.ResponseWriter, r *http.Request, p Repository) {
		b, _ := p.branch(r.URL.Query().Get("ref"))
		path := r.URL.Query().Get("path")
		var inside []object
		for _, f := range b.Paths {
			if below, ok := strings.CutPrefix(f, path+"/"); ok {
				inside = append(inside, object{"name": below, "type": "blob"})
			}
		}
		if inside == nil {
			s.fail(w, http.StatusNotFound, "404 invalid revision or path Not Found", "")
			return
		}
		s.reply(w, r, inside)
	}))
	mux.HandleFunc("GET /api/v4/projects/{id}/merge_requests", s.onProject(func(w http.ResponseWriter, r *http.Request, p Repository) {
		labels := strings.FieldsFunc(r.URL.Query().Get("labels"), func(c rune) bool { return c == ',' })
		all := slices.DeleteFunc(slices.Clone(p.Pulls), func(m Pull) bool {
			return slices.ContainsFunc(labels, func(l string) bool { return !slices.Contains(m.Labels, l) })
		})
		s.reply(w, r, convert(page(s, w, r, "per_page", "X-Total", all), func(m Pull) object {
			return object{
				"id": m.Number + 1000, "iid": m.Number, "title": m.Title, "source_branch": m.Source, "target_branch": m.Target, "sha": m.SHA,
				"author": object{"username": m.Author}, "labels": append([]string{}, m.Labels...),
			}
		}))
	}))
	mux.ServeHTTP(w, r)
}

// onProject finds a project by its id or full path.
func (s *Server) onProject(serve func(http.ResponseWriter, *http.Request, Repository)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		id := r.PathValue("id")
		p, ok := s.find(func(o Repository) bool { return strconv.FormatInt(o.ID, 10) == id || o.fullPath() == id })
		if !ok {
			s.fail(w, http.StatusNotFound, "404 Project Not Found", "")
			return
		}
		serve(w, r, p)
	}
}

func (r Repository) namespace() string {
	if r.Group == "" {
		return Owner
	}
	return Owner + "/" + r.Group
}

func (r Repository) fullPath() string { return r.namespace() + "/" + r.Name }

func gitLabProject(p Repository) object {
	return object{
		"id": p.ID, "name": strings.ToUpper(p.Name), "path": p.Name, "namespace": object{"full_path": p.namespace()}, "default_branch": p.Default, "archived": p.Archived,
		"ssh_url_to_repo": "git@gitlab.example:" + p.fullPath() + ".git", "http_url_to_repo": "https://gitlab.example/" + p.fullPath() + ".git",
		"topics": append([]string{}, p.Topics...), "last_activity_at": p.Pushed.UTC().Format(time.RFC3339Nano), "empty_repo": len(p.Branches) == 0,
		"repository_access_level": "enabled",
	}
}

func gitLabBranch(b Branch) object {
	return object{"name": b.Name, "commit": object{"id": b.SHA, "short_id": b.SHA[:8]}}
}
