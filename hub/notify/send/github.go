package send

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/notify"
	"github.com/capstan-cd/capstan/shared/fault"
)

type gitHubOptions struct {
	AppID              json.Number `json:"appID"`
	InstallationID     json.Number `json:"installationID"`
	PrivateKey         string      `json:"privateKey"`
	EnterpriseBaseURL  string      `json:"enterpriseBaseURL"`
	InsecureSkipVerify bool        `json:"insecureSkipVerify"`
}

type gitHubPart struct {
	RepoURL    string `json:"repoURLPath"`
	Revision   string `json:"revisionPath"`
	Status     *struct{ State, Label, TargetURL string }
	Deployment *struct {
		State, Environment, EnvironmentURL, LogURL, Reference string
		RequiredContexts                                      []string
		AutoMerge, TransientEnvironment                       *bool
	}
	PullRequestComment *struct{ Content, CommentTag string }
	CheckRun           *struct {
		Name, Status, Conclusion string
		DetailsURL               string `json:"details_url"`
		StartedAt                string `json:"started_at"`
		CompletedAt              string `json:"completed_at"`
		Output                   *struct {
			Title   string `json:"title"`
			Summary string `json:"summary"`
			Text    string `json:"text"`
		}
	}
	RepositoryDispatch *struct {
		EventType     string `json:"event_type"`
		ClientPayload string `json:"client_payload"`
	}
}

const (
	longestDescription = 140
	longestComment     = 65_536
)

// A gitHubCall is a letter to a repository of GitHub.
type gitHubCall struct {
	*call
	o     gitHubOptions
	part  gitHubPart
	api   string // of the repository
	token string
}

// github writes a status, a deployment, comments or a check run of the revision,
// as an app that the tenant has installed.
func (c *call) github() error {
	g := &gitHubCall{call: c}
	if err := c.options(&g.o); err != nil {
		return err
	}
	if found, err := c.part(&g.part); err != nil || !found {
		return errors.Join(err, invalid("the template has no part github"))
	}
	name, err := notify.RepositoryName(g.part.RepoURL)
	if err != nil {
		return err
	}
	owner, repo, ok := strings.Cut(name, "/")
	if !ok || repo == "" {
		return invalid("the repository %q has no owner and name", name)
	}
	server := base(g.o.EnterpriseBaseURL, "https://api.github.com")
	if g.o.EnterpriseBaseURL != "" && !strings.HasSuffix(server, "/api/v3") {
		server += "/api/v3"
	}
	g.api = server + "/repos/" + url.PathEscape(owner) + "/" + url.PathEscape(repo)
	if err := g.signIn(server, repo); err != nil {
		return err
	}
	for _, do := range []func() error{g.status, g.deployment, g.comments, g.checkRun, g.dispatch} {
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}

// signIn exchanges the key of the app for a token that may use the repository.
func (g *gitHubCall) signIn(server, repo string) error {
	key, err := hub.ReadRSAKey("privateKey", g.o.PrivateKey)
	if err != nil {
		return err
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: key}, (&jose.SignerOptions{}).WithType("JWT"))
	if err != nil {
		return fmt.Errorf("sign a token: %w", err)
	}
	now := time.Now()
	proof, err := jwt.Signed(signer).Claims(jwt.Claims{
		Issuer: g.o.AppID.String(), IssuedAt: jwt.NewNumericDate(now.Add(-time.Minute)), Expiry: jwt.NewNumericDate(now.Add(9 * time.Minute)),
	}).Serialize()
	if err != nil {
		return fmt.Errorf("sign a token: %w", err)
	}
	res, err := g.do(request{
		method: http.MethodPost, url: server + "/app/installations/" + url.PathEscape(g.o.InstallationID.String()) + "/access_tokens",
		header: map[string]string{"Authorization": "Bearer " + proof, "Accept": "application/vnd.github+json"},
		body:   map[string]any{"repositories": []string{repo}}, insecure: g.o.InsecureSkipVerify,
	})
	g.attempt.Answer = "" // it has the token
	if err != nil {
		return err
	}
	var out struct {
		Token string `json:"token"`
	}
	if err := json.Unmarshal(res.body, &out); err != nil || out.Token == "" {
		return fault.New(fault.Offline, "the answer is none of GitHub")
	}
	g.token = out.Token
	return nil
}

func (g *gitHubCall) ask(method, path string, body, into any) error {
	res, err := g.do(request{
		method: method, url: g.api + path, body: body, insecure: g.o.InsecureSkipVerify,
		header: map[string]string{"Authorization": "Bearer " + g.token, "Accept": "application/vnd.github+json"},
	})
	if err != nil || into == nil {
		return err
	}
	if err := json.Unmarshal(res.body, into); err != nil {
		return fault.New(fault.Offline, "the answer is none of GitHub")
	}
	return nil
}

func (g *gitHubCall) status() error {
	s := g.part.Status
	if s == nil {
		return nil
	}
	return g.ask(http.MethodPost, "/statuses/"+url.PathEscape(g.part.Revision), map[string]string{
		"state": s.State, "context": s.Label, "target_url": s.TargetURL, "description": clip(g.text(), longestDescription),
	}, nil)
}

func (g *gitHubCall) deployment() error {
	d := g.part.Deployment
	if d == nil {
		return nil
	}
	var found []struct {
		ID int64 `json:"id"`
	}
	query := url.Values{"ref": {g.part.Revision}, "environment": {d.Environment}}
	if err := g.ask(http.MethodGet, "/deployments?"+query.Encode(), nil, &found); err != nil {
		return err
	}
	if len(found) == 0 {
		contexts := d.RequiredContexts
		if contexts == nil {
			contexts = []string{}
		}
		var made struct {
			ID int64 `json:"id"`
		}
		err := g.ask(http.MethodPost, "/deployments", map[string]any{
			"ref": or(d.Reference, g.part.Revision), "environment": d.Environment, "required_contexts": contexts,
			"auto_merge": d.AutoMerge == nil || *d.AutoMerge, "transient_environment": d.TransientEnvironment != nil && *d.TransientEnvironment,
		}, &made)
		if err != nil {
			return err
		}
		found = append(found, made)
	}
	return g.ask(http.MethodPost, fmt.Sprintf("/deployments/%d/statuses", found[0].ID), map[string]string{
		"state": d.State, "log_url": d.LogURL, "environment": d.Environment, "environment_url": d.EnvironmentURL, "description": clip(g.text(), longestDescription),
	}, nil)
}

// comments writes to the pull requests of the revision. A comment with the same
// tag is replaced.
func (g *gitHubCall) comments() error {
	p := g.part.PullRequestComment
	if p == nil {
		return nil
	}
	// Later attempts of the same message find the comment by its mark.
	mark := "<!-- argocd-notifications " + or(p.CommentTag, string(g.ID)) + " -->"
	body := map[string]string{"body": clip(or(p.Content, g.text()), longestComment-len(mark)-1) + "\n" + mark}
	var pulls []struct {
		Number int `json:"number"`
	}
	if err := g.ask(http.MethodGet, "/commits/"+url.PathEscape(g.part.Revision)+"/pulls", nil, &pulls); err != nil {
		return err
	}
	for _, pull := range pulls {
		var all []struct {
			ID   int64  `json:"id"`
			Body string `json:"body"`
		}
		if err := g.ask(http.MethodGet, fmt.Sprintf("/issues/%d/comments?per_page=100", pull.Number), nil, &all); err != nil {
			return err
		}
		method, path := http.MethodPost, fmt.Sprintf("/issues/%d/comments", pull.Number)
		for _, c := range all {
			if strings.Contains(c.Body, mark) {
				method, path = http.MethodPatch, fmt.Sprintf("/issues/comments/%d", c.ID)
			}
		}
		if err := g.ask(method, path, body, nil); err != nil {
			return err
		}
	}
	return nil
}

func (g *gitHubCall) checkRun() error {
	r := g.part.CheckRun
	if r == nil {
		return nil
	}
	status := r.Status
	if r.Conclusion != "" && status == "" {
		status = "completed"
	}
	if (status == "completed" || r.CompletedAt != "") && r.Conclusion == "" {
		return invalid("a check run that is completed needs a conclusion")
	}
	run := map[string]any{"name": r.Name, "head_sha": g.part.Revision, "external_id": string(g.ID)}
	for name, value := range map[string]string{"status": status, "conclusion": r.Conclusion, "details_url": r.DetailsURL, "started_at": r.StartedAt, "completed_at": r.CompletedAt} {
		if value != "" {
			run[name] = value
		}
	}
	if r.Output != nil {
		run["output"] = r.Output
	}
	return g.ask(http.MethodPost, "/check-runs", run, nil)
}

func (g *gitHubCall) dispatch() error {
	d := g.part.RepositoryDispatch
	if d == nil {
		return nil
	}
	payload, err := raw("client_payload", or(d.ClientPayload, "{}"))
	if err != nil {
		return err
	}
	return g.ask(http.MethodPost, "/dispatches", map[string]any{"event_type": d.EventType, "client_payload": payload}, nil)
}
