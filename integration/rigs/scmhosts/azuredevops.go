package scmhosts

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// azure serves the Git API of a project.
func (s *Server) azure(w http.ResponseWriter, r *http.Request) {
	mux := http.NewServeMux()
	const repos = "GET /" + Owner + "/{project}/_apis/git/repositories"
	mux.HandleFunc(repos, func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("project") != Project {
			s.fail(w, http.StatusNotFound, "TF200016: The following project does not exist: "+r.PathValue("project"), "ProjectDoesNotExistWithNameException")
			return
		}
		s.reply(w, r, counted(convert(s.all(), azureRepository)))
	})
	mux.HandleFunc(repos+"/{repo}/refs", s.onID(func(w http.ResponseWriter, r *http.Request, repo Repository) {
		var found []object
		for _, b := range repo.Branches {
			if strings.HasPrefix("heads/"+b.Name, r.URL.Query().Get("filter")) {
				found = append(found, object{"name": "refs/heads/" + b.Name, "objectId": b.SHA})
			}
		}
		most, _ := strconv.Atoi(r.URL.Query().Get("$top"))
		if s.Most > 0 {
			most = min(most, s.Most)
		}
		start, _ := strconv.Atoi(r.URL.Query().Get("continuationToken"))
		last := min(start+most, len(found))
		if last < len(found) {
			w.Header().Set("X-Ms-Continuationtoken", strconv.Itoa(last))
		}
		s.reply(w, r, counted(found[start:last]))
	}))
	mux.HandleFunc(repos+"/{repo}/items", s.onID(func(w http.ResponseWriter, r *http.Request, repo Repository) {
		path := strings.Trim(r.URL.Query().Get("path"), "/")
		if b, _ := repo.branch(r.URL.Query().Get("versionDescriptor.version")); !b.has(path) {
			s.fail(w, http.StatusNotFound, "TF401174: The item could not be found", "GitItemNotFoundException")
			return
		}
		s.reply(w, r, object{"path": "/" + path, "gitObjectType": "blob"})
	}))
	mux.HandleFunc(repos+"/{repo}/pullrequests", s.onID(func(w http.ResponseWriter, r *http.Request, repo Repository) {
		most, _ := strconv.Atoi(r.URL.Query().Get("$top"))
		start, _ := strconv.Atoi(r.URL.Query().Get("$skip"))
		start = min(start, len(repo.Pulls))
		s.reply(w, r, counted(convert(repo.Pulls[start:min(start+most, len(repo.Pulls))], func(p Pull) object {
			return object{
				"pullRequestId": p.Number, "title": p.Title, "status": "active", "sourceRefName": "refs/heads/" + p.Source, "targetRefName": "refs/heads/" + p.Target,
				"lastMergeSourceCommit": object{"commitId": p.SHA}, "createdBy": object{"uniqueName": p.Author + "@acme.example"},
				"labels": convert(p.Labels, func(l string) object { return object{"name": l, "active": true} }), "repository": object{"name": repo.Name},
			}
		})))
	}))
	mux.ServeHTTP(w, r)
}

// onID finds a repository by its id or name.
func (s *Server) onID(serve func(http.ResponseWriter, *http.Request, Repository)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		repo, ok := s.find(func(o Repository) bool {
			return (o.uuid() == r.PathValue("repo") || o.Name == r.PathValue("repo")) && r.PathValue("project") == Project
		})
		if !ok {
			s.fail(w, http.StatusNotFound, "TF401019: The Git repository does not exist", "GitRepositoryNotFoundException")
			return
		}
		serve(w, r, repo)
	}
}

func (r Repository) uuid() string { return fmt.Sprintf("%08d-0000-4000-8000-000000000000", r.ID) }

func counted(items []object) object {
	return object{"count": len(items), "value": append([]object{}, items...)}
}

func azureRepository(r Repository) object {
	out := object{"id": r.uuid(), "name": r.Name, "remoteUrl": "https://acme@dev.azure.example/acme/team/_git/" + r.Name, "isDisabled": false}
	if len(r.Branches) > 0 {
		out["defaultBranch"] = "refs/heads/" + r.Default
	}
	return out
}
