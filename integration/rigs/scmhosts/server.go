// Package scmhosts has small servers that answer as Git hosts do when their
// repositories and pull requests are listed. They check tokens, have pages,
// answer conditional requests, and limit requests. They speak these parts of the
// published protocols:
//
//   - docs.github.com, REST API 2022-11-28: list organization repositories, get
//     a branch, list branches, get repository content, list pull requests;
//     headers Link, ETag, X-RateLimit-* and Retry-After, status 304, 403 and 429.
//   - docs.gitlab.com, REST API v4: list a group's projects, single repository
//     branch, list repository branches, get file from repository, list
//     repository tree, list project merge requests; X-Total, Link, RateLimit-*.
//   - docs.gitea.com, API v1: list an organization's and a user's repositories,
//     labels, branches, contents, pull requests; X-Total-Count and Link.
//   - developer.atlassian.com, Bitbucket Cloud REST API 2.0: repositories of a
//     workspace, branches, source with format=meta, pull requests; next and size.
//   - developer.atlassian.com, Bitbucket Data Center REST API 1.0: repositories
//     of a project, default branch, branches, browse with type, pull requests;
//     isLastPage and nextPageStart.
//   - learn.microsoft.com, Azure DevOps REST API 7.1: Git repositories, refs,
//     items, pull requests; count and x-ms-continuationtoken; the sign-in page
//     with status 203 for a token that is not valid.
package scmhosts

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// The kinds of hosts, as the generators name them.
const (
	GitHub          = "github"
	GitLab          = "gitlab"
	Gitea           = "gitea"
	Bitbucket       = "bitbucket"
	BitbucketServer = "bitbucketServer"
	AzureDevOps     = "azureDevOps"
)

// Kinds are all of them.
func Kinds() []string {
	return []string{GitHub, GitLab, Gitea, Bitbucket, BitbucketServer, AzureDevOps}
}

// What every server has.
const (
	Owner   = "acme"  // the organisation, group, workspace or project
	Project = "team"  // of Azure DevOps, in the organisation
	User    = "robot" // of Basic
)

// A Branch is one of a repository.
type Branch struct {
	Name  string
	SHA   string
	Paths []string // files and folders of its commit
}

// A Pull is a pull request that is open.
type Pull struct {
	Number         int64
	Title          string
	Source, Target string
	SHA            string
	Labels         []string
	Author         string
}

// A Repository is one of the owner.
type Repository struct {
	ID       int64
	Name     string
	Group    string   // GitLab: the subgroup below the owner; empty: none
	Default  string   // branch
	Branches []Branch // none: it is empty
	Pulls    []Pull
	Topics   []string // or labels
	Archived bool
	Shared   bool // GitLab: of another group
	Pushed   time.Time
}

// A Server answers as one kind of host. Fields are set before it is used.
type Server struct {
	HTTP  *httptest.Server
	Kind  string
	Token string
	Most  int // items of a page; 0: as many as are asked for
	// Now is the host's time.
	Now func() time.Time
	// Valid reports whether a bearer token is one, besides Token; nil: none is.
	Valid func(token string) bool
	// Apps answers what GitHub Apps ask for; nil: nobody.
	Apps http.Handler
	// Override answers instead, if it returns true: for faults.
	Override func(w http.ResponseWriter, r *http.Request) bool

	mu    sync.Mutex
	repos []Repository
	calls []Call
	left  int // requests of the limit; negative: there is none
	reset time.Time
}

// A Call is a request and its status.
type Call struct {
	Path      string
	Query     string
	Status    int
	Authority string // what was sent to prove who asks
}

// New starts a server for one test.
func New(tb testing.TB, kind string) *Server {
	tb.Helper()
	s := &Server{Kind: kind, Token: "token-" + rand.Text(), Now: time.Now, left: -1}
	s.HTTP = httptest.NewUnstartedServer(http.HandlerFunc(s.serve))
	s.HTTP.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.HTTP.StartTLS()
	tb.Cleanup(s.HTTP.Close)
	return s
}

// CA is the certificate of the server in PEM.
func (s *Server) CA() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.HTTP.Certificate().Raw}))
}

// SHA is the id of a commit, made of a text.
func SHA(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:20])
}

// Put adds repositories, or replaces those of the same names.
func (s *Server) Put(repos ...Repository) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range repos {
		if i := slices.IndexFunc(s.repos, func(o Repository) bool { return o.Name == r.Name }); i >= 0 {
			s.repos[i] = r
			continue
		}
		s.repos = append(s.repos, r)
	}
}

// Remove deletes a repository.
func (s *Server) Remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.repos = slices.DeleteFunc(s.repos, func(r Repository) bool { return r.Name == name })
}

// Limit has the server refuse requests after some more, until a time.
func (s *Server) Limit(left int, reset time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left, s.reset = left, reset
}

// Calls are all requests so far.
func (s *Server) Calls() []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// Forget forgets the requests so far.
func (s *Server) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = nil
}

// find returns a repository.
func (s *Server) find(of func(Repository) bool) (Repository, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.repos, of)
	if i < 0 {
		return Repository{}, false
	}
	return s.repos[i], true
}

func (s *Server) all() []Repository {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.repos)
}

// branch returns a branch by its name or commit.
func (r Repository) branch(ref string) (Branch, bool) {
	i := slices.IndexFunc(r.Branches, func(b Branch) bool { return b.Name == ref || b.SHA == ref })
	if i < 0 {
		return Branch{}, false
	}
	return r.Branches[i], true
}

// has reports whether a commit has a file or folder.
func (b Branch) has(path string) bool {
	return slices.ContainsFunc(b.Paths, func(p string) bool { return p == path || strings.HasPrefix(p, path+"/") })
}

// recorder notes the status of an answer.
type recorder struct {
	http.ResponseWriter
	status int
}

func (r *recorder) WriteHeader(status int) {
	r.status = status
	r.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

func (s *Server) serve(plain http.ResponseWriter, r *http.Request) {
	w := &recorder{plain, http.StatusOK}
	defer func() {
		s.mu.Lock()
		s.calls = append(s.calls, Call{r.URL.EscapedPath(), r.URL.RawQuery, w.status, r.Header.Get("Authorization") + r.Header.Get("PRIVATE-TOKEN")})
		s.mu.Unlock()
	}()
	w.Header().Set("Date", s.Now().UTC().Format(http.TimeFormat))
	if s.Override != nil && s.Override(w, r) {
		return
	}
	if s.Apps != nil && (strings.Contains(r.URL.Path, "/app/") || strings.HasSuffix(r.URL.Path, "/installation")) {
		s.Apps.ServeHTTP(w, r)
		return
	}
	if !s.permits(r) {
		s.deny(w)
		return
	}
	if s.limited(w) {
		return
	}
	routes := map[string]func(http.ResponseWriter, *http.Request){
		GitHub: s.gitHub, GitLab: s.gitLab, Gitea: s.gitea, Bitbucket: s.bitbucket, BitbucketServer: s.bitbucketServer, AzureDevOps: s.azure,
	}
	routes[s.Kind](w, r)
}

// permits checks the token in the way of the kind.
func (s *Server) permits(r *http.Request) bool {
	authority := r.Header.Get("Authorization")
	user, password, _ := r.BasicAuth()
	switch s.Kind {
	case GitLab:
		return r.Header.Get("PRIVATE-TOKEN") == s.Token
	case Gitea:
		return authority == "token "+s.Token
	case Bitbucket, BitbucketServer:
		return user == User && password == s.Token || authority == "Bearer "+s.Token
	case AzureDevOps:
		return user == "" && password == s.Token
	}
	token, ok := strings.CutPrefix(authority, "Bearer ")
	return ok && (token == s.Token || s.Valid != nil && s.Valid(token))
}

func (s *Server) deny(w http.ResponseWriter) {
	if s.Kind == AzureDevOps {
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(http.StatusNonAuthoritativeInfo)
		_, _ = w.Write([]byte("<html>Sign in</html>"))
		return
	}
	s.fail(w, http.StatusUnauthorized, "Bad credentials", "")
}

// limited counts a request, and refuses it beyond the limit.
func (s *Server) limited(w http.ResponseWriter) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left < 0 {
		return false
	}
	prefix := "X-RateLimit-"
	if s.Kind == GitLab {
		prefix = "RateLimit-"
	}
	w.Header().Set(prefix+"Limit", "5000")
	w.Header().Set(prefix+"Remaining", strconv.Itoa(max(s.left-1, 0)))
	w.Header().Set(prefix+"Reset", strconv.FormatInt(s.reset.Unix(), 10))
	w.Header().Set(prefix+"Resource", "core")
	if s.left > 0 {
		s.left--
		return false
	}
	status := http.StatusTooManyRequests
	if s.Kind == GitHub {
		status = http.StatusForbidden
	}
	s.fail(w, status, "API rate limit exceeded for user ID 1.", "")
	return true
}

// fail answers with an error in the way of the kind.
func (s *Server) fail(w http.ResponseWriter, status int, message, code string) {
	var v any
	switch s.Kind {
	case Bitbucket:
		v = map[string]any{"type": "error", "error": map[string]string{"message": message}}
	case BitbucketServer:
		v = map[string]any{"errors": []map[string]string{{"message": message, "exceptionName": "com.atlassian.bitbucket." + code}}}
	case AzureDevOps:
		v = map[string]any{"$id": "1", "message": message, "typeKey": code, "errorCode": 0}
	default:
		v = map[string]any{"message": message, "documentation_url": "https://docs.example/rest"}
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

// reply sends a document, or that it is as it was.
func (s *Server) reply(w http.ResponseWriter, r *http.Request, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	if s.Kind != Gitea && s.Kind != BitbucketServer {
		sum := sha256.Sum256(text)
		etag := `W/"` + hex.EncodeToString(sum[:16]) + `"`
		w.Header().Set("ETag", etag)
		if r.Header.Get("If-None-Match") == etag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	_, _ = w.Write(text)
}

// page returns the items of the page that is asked for, and sets the headers
// Link and of the total.
func page[T any](s *Server, w http.ResponseWriter, r *http.Request, size, total string, items []T) []T {
	query := r.URL.Query()
	most, err := strconv.Atoi(query.Get(size))
	if err != nil {
		most = 30
	}
	if s.Most > 0 {
		most = min(most, s.Most)
	}
	n, _ := strconv.Atoi(query.Get("page"))
	n = max(n, 1)
	if total != "" {
		w.Header().Set(total, strconv.Itoa(len(items)))
	}
	first, last := min((n-1)*most, len(items)), min(n*most, len(items))
	if last < len(items) {
		query.Set("page", strconv.Itoa(n+1))
		w.Header().Set("Link", fmt.Sprintf(`<https://%s%s?%s>; rel="next", <https://%s/last>; rel="last"`, r.Host, r.URL.Path, query.Encode(), r.Host))
	}
	return items[first:last]
}

// convert makes the answers of a kind.
func convert[T, U any](all []T, of func(T) U) []U {
	out := []U{}
	for _, v := range all {
		out = append(out, of(v))
	}
	return out
}

// An object is one of JSON.
type object = map[string]any
