package webhook

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/capstan-cd/capstan/hub"
)

// A sender is a kind of Git host, and how its events are read.
type sender struct {
	event    func(http.Header) string
	delivery string // the header with the id of a delivery
	pushes   func(event string) bool
	read     func(payload []byte) (saying, error)
	// secret is the key of what it sends as Authorization; empty: it proves
	// itself otherwise.
	secret string
	pulls  *pulls // its events about pull requests, where they have a word of their own; nil: none
}

// A pulls is how events about pull requests are read.
type pulls struct {
	event func(event string) bool
	read  func(payload []byte) (saying, error)
}

// A saying is the description of a push in an event.
type saying struct {
	urls    []string
	changes []change
	nothing bool // it is nothing to act on after all
	pull    bool // it is about a pull request
}

// A change is a branch or tag that was moved. Without a ref the event does not
// describe it completely.
type change struct{ ref, commit string }

// isUsable reports whether a change can be fetched by its name.
func (c change) isUsable() bool {
	return c.ref != "" && len(c.ref) <= maxRef && len(c.commit) <= maxRef && strings.Trim(c.commit, "0") != ""
}

// eventHeader marks an event in Capstan's own form.
const eventHeader = "X-Capstan-Event"

// inHeader reads the event's word from a header.
func inHeader(name string) func(http.Header) string {
	return func(h http.Header) string { return h.Get(name) }
}

func oneOf(events ...string) func(string) bool {
	return func(event string) bool { return slices.Contains(events, event) }
}

// isAzure reports whether a request is an event of Azure DevOps, which has no
// header of its own for the kind of its events.
func isAzure(h http.Header) bool {
	return h.Get("X-Vss-Activityid") != "" || h.Get("X-Vss-Subscriptionid") != ""
}

// senderOf finds the sender by the headers that no other sender has. Gogs and
// Gitea send those of GitHub as well, with the same body. What has none of them
// may come from a registry.
func senderOf(h http.Header, body []byte) *sender {
	switch {
	case h.Get(eventHeader) != "":
		return &sender{inHeader(eventHeader), "X-Capstan-Delivery", oneOf("push"), readGeneric, hub.WebhookGeneric, nil}
	case oneOf("package", "registry_package")(h.Get("X-GitHub-Event")):
		return &sender{inHeader("X-GitHub-Event"), "X-GitHub-Delivery", always, readPackage, "", nil}
	case h.Get("X-GitHub-Event") != "":
		return &sender{inHeader("X-GitHub-Event"), "X-GitHub-Delivery", oneOf("push"), readGitHub, "", &pulls{oneOf("pull_request"), readGitHubPull}}
	case h.Get("X-Gogs-Event") != "":
		return &sender{inHeader("X-Gogs-Event"), "X-Gogs-Delivery", oneOf("push"), readGitHub, "", nil}
	case h.Get("X-Gitlab-Event") != "":
		return &sender{inHeader("X-Gitlab-Event"), "X-Gitlab-Event-UUID", oneOf("Push Hook", "Tag Push Hook", "System Hook"), readGitLab, "", &pulls{oneOf("Merge Request Hook"), readGitLab}}
	case h.Get("X-Event-Key") != "" && h.Get("X-Hook-UUID") != "":
		return &sender{inHeader("X-Event-Key"), "X-Request-UUID", oneOf("repo:push"), readBitbucket, "", nil}
	case h.Get("X-Event-Key") != "":
		return &sender{inHeader("X-Event-Key"), "X-Request-Id", oneOf("repo:refs_changed"), readBitbucketServer, "", nil}
	case isAzure(h):
		return &sender{fixed("azure"), "X-Vss-Activityid", always, readAzure, "", nil}
	}
	return registryOf(h, body)
}

func readGitHub(payload []byte) (saying, error) {
	e, err := into[struct {
		Ref        string `json:"ref"`
		After      string `json:"after"`
		Repository struct {
			HTML  string `json:"html_url"`
			Clone string `json:"clone_url"`
			Git   string `json:"git_url"`
			SSH   string `json:"ssh_url"`
			URL   string `json:"url"`
		} `json:"repository"`
	}](payload)
	r := e.Repository
	return saying{urls: []string{r.Clone, r.HTML, r.SSH, r.Git, r.URL}, changes: []change{{e.Ref, e.After}}}, err
}

// readGitHubPull reads an event about a pull request of the repository, also
// those of Gitea. Reviews and assignments change nothing that is listed.
func readGitHubPull(payload []byte) (saying, error) {
	e, err := into[struct {
		Action string `json:"action"`
	}](payload)
	if err != nil {
		return saying{}, err
	}
	lists := oneOf("opened", "closed", "reopened", "synchronize", "synchronized", "edited", "labeled", "unlabeled", "label_updated", "label_cleared")
	if !lists(e.Action) {
		return saying{nothing: true}, nil
	}
	event, err := readGitHub(payload)
	event.changes = nil
	return event, err
}

// readGitLab reads push and tag events of a project or a group, those about merge
// requests, and those of a whole server, which include other events.
func readGitLab(payload []byte) (saying, error) {
	e, err := into[struct {
		Object     string `json:"object_kind"`
		Event      string `json:"event_name"`
		Attributes struct {
			Action string `json:"action"`
		} `json:"object_attributes"`
		Ref     string `json:"ref"`
		After   string `json:"after"`
		Project struct {
			Web     string `json:"web_url"`
			HTTP    string `json:"http_url"`
			SSH     string `json:"ssh_url"`
			GitHTTP string `json:"git_http_url"`
			GitSSH  string `json:"git_ssh_url"`
		} `json:"project"`
		Repository struct {
			Homepage string `json:"homepage"`
			GitHTTP  string `json:"git_http_url"`
			GitSSH   string `json:"git_ssh_url"`
		} `json:"repository"`
	}](payload)
	p, r := e.Project, e.Repository
	event := saying{
		urls:    []string{p.GitHTTP, p.GitSSH, p.HTTP, p.SSH, p.Web, r.GitHTTP, r.GitSSH, r.Homepage},
		changes: []change{{e.Ref, e.After}},
	}
	pushes := oneOf("push", "tag_push", "repository_update")
	if event.pull = e.Object == "merge_request"; event.pull {
		event.changes = nil
		event.nothing = !oneOf("open", "reopen", "update", "close", "merge")(e.Attributes.Action)
		return event, err
	}
	event.nothing = err == nil && !pushes(e.Object) && !pushes(e.Event)
	return event, err
}

func readBitbucket(payload []byte) (saying, error) {
	e, err := into[struct {
		Repository struct {
			Links struct {
				HTML struct {
					Href string `json:"href"`
				} `json:"html"`
			} `json:"links"`
		} `json:"repository"`
		Push struct {
			Changes []struct {
				New *struct {
					Type   string `json:"type"`
					Name   string `json:"name"`
					Target struct {
						Hash string `json:"hash"`
					} `json:"target"`
				} `json:"new"`
			} `json:"changes"`
		} `json:"push"`
	}](payload)
	event := saying{urls: []string{e.Repository.Links.HTML.Href}}
	for _, c := range e.Push.Changes {
		// The hash of a tag is that of its commit, which need not be its own.
		if c.New != nil && c.New.Type == "branch" {
			event.changes = append(event.changes, change{"refs/heads/" + c.New.Name, c.New.Target.Hash})
		} else {
			event.changes = append(event.changes, change{})
		}
	}
	return event, err
}

func readBitbucketServer(payload []byte) (saying, error) {
	e, err := into[struct {
		Repository struct {
			Links struct {
				Clone []struct {
					Href string `json:"href"`
				} `json:"clone"`
			} `json:"links"`
		} `json:"repository"`
		Changes []struct {
			Ref struct {
				ID string `json:"id"`
			} `json:"ref"`
			To string `json:"toHash"`
		} `json:"changes"`
	}](payload)
	var event saying
	for _, l := range e.Repository.Links.Clone {
		event.urls = append(event.urls, l.Href)
	}
	for _, c := range e.Changes {
		event.changes = append(event.changes, change{c.Ref.ID, c.To})
	}
	return event, err
}

func readAzure(payload []byte) (saying, error) {
	e, err := into[struct {
		Event    string `json:"eventType"`
		Resource struct {
			Updates []struct {
				Name string `json:"name"`
				New  string `json:"newObjectId"`
			} `json:"refUpdates"`
			Repository struct {
				Remote string `json:"remoteUrl"`
			} `json:"repository"`
		} `json:"resource"`
	}](payload)
	remote := e.Resource.Repository.Remote
	event := saying{urls: []string{remote, azureSSH(remote)}, pull: strings.HasPrefix(e.Event, "git.pullrequest.")}
	event.nothing = err == nil && !event.pull && e.Event != "git.push"
	for _, u := range e.Resource.Updates {
		event.changes = append(event.changes, change{u.Name, u.New})
	}
	return event, err
}

// azureSSH is where a repository of dev.azure.com is reached over SSH, which
// its events do not contain; empty: it is none.
func azureSSH(remote string) string {
	u, err := url.Parse(remote)
	if err != nil || !strings.EqualFold(u.Host, "dev.azure.com") {
		return ""
	}
	place, name, found := strings.Cut(strings.Trim(u.EscapedPath(), "/"), "/_git/")
	if !found {
		return ""
	}
	return "ssh://git@ssh.dev.azure.com/v3/" + place + "/" + name
}
