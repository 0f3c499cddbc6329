package webhook_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/source/webhook"
	"github.com/capstan-cd/capstan/shared/fault"
)

const (
	githubPull = `{"action":"opened","number":7,"pull_request":{"number":7,"head":{"ref":"feature","sha":"89abcdef0123456789abcdef0123456789abcdef",
 "repo":{"clone_url":"https://git.example.com/fork/App.git"}},"base":{"ref":"main"}},
 "repository":{"full_name":"Team/App","html_url":"https://git.example.com/Team/App","clone_url":"https://git.example.com/Team/App.git",
 "git_url":"git://git.example.com/Team/App.git","ssh_url":"git@git.example.com:Team/App.git","url":"https://api.git.example.com/repos/Team/App"}}`
	gitlabMerge = `{"object_kind":"merge_request","event_type":"merge_request","project":{"id":15,"web_url":"https://git.example.com/Team/App",
 "git_ssh_url":"git@git.example.com:Team/App.git","git_http_url":"https://git.example.com/Team/App.git","http_url":"https://git.example.com/Team/App.git"},
 "repository":{"name":"App","homepage":"https://git.example.com/Team/App"},
 "object_attributes":{"iid":7,"source_branch":"feature","target_branch":"main","action":"open","source":{"git_http_url":"https://git.example.com/fork/App.git"}}}`
	azurePull = `{"subscriptionId":"0","eventType":"git.pullrequest.created","publisherId":"tfs","resource":{"pullRequestId":7,"status":"active",
 "sourceRefName":"refs/heads/feature","targetRefName":"refs/heads/main","repository":{"id":"278d5cd2","name":"app","remoteUrl":"https://dev.azure.com/team/project/_git/app"}}}`
)

// pulled are events about pull requests as the hosts document them.
func pulled() map[string]sending {
	return map[string]sending{
		"GitHub": {
			"pull_request", headers("X-GitHub-Event", "pull_request", "X-GitHub-Delivery", "5f6e", "X-Hub-Signature-256", sign(githubPull, "s3cret")), githubPull,
			map[string]string{hub.WebhookGitHub: "s3cret"},
			webhook.Push{Event: "pull_request", Delivery: "5f6e", Pull: true, URLs: slices.Sorted(slices.Values(append(both("api.git.example.com/repos/Team/App"), addresses...)))},
		},
		"GitLab": {
			"Merge Request Hook", headers("X-Gitlab-Event", "Merge Request Hook", "X-Gitlab-Event-UUID", "5f6e", "X-Gitlab-Token", "s3cret"), gitlabMerge,
			map[string]string{hub.WebhookGitLab: "s3cret"},
			webhook.Push{Event: "Merge Request Hook", Delivery: "5f6e", Pull: true, URLs: addresses},
		},
		"GitLab's whole server": {
			"System Hook", headers("X-Gitlab-Event", "System Hook", "X-Gitlab-Token", "s3cret"), gitlabMerge,
			map[string]string{hub.WebhookGitLab: "s3cret"},
			webhook.Push{Event: "System Hook", Pull: true, URLs: addresses},
		},
		"Azure DevOps": {
			"azure", headers("X-Vss-Activityid", "5f6e", "Authorization", basic("capstan", "s3cret")), azurePull,
			map[string]string{hub.WebhookAzureUser: "capstan", hub.WebhookAzurePassword: "s3cret"},
			webhook.Push{Event: "azure", Delivery: "5f6e", Pull: true, URLs: append(both("dev.azure.com/team/project/_git/app"), "ssh://ssh.dev.azure.com/v3/team/project/app")},
		},
	}
}

func TestPullRequests(t *testing.T) {
	t.Parallel()
	for name, s := range pulled() {
		t.Run("AGEN-17 "+name+" tells of a pull request: its repository, and no branch to fetch (part)", func(t *testing.T) {
			t.Parallel()
			got, err := webhook.Parse(s.header, []byte(s.body))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(s.want, got, cmpopts.IgnoreUnexported(webhook.Push{})); diff != "" {
				t.Error(diff)
			}
			if !got.SignedBy(s.secrets) || got.SignedBy(map[string]string{hub.WebhookGitHub: "other", hub.WebhookGitLab: "other", hub.WebhookAzureUser: "capstan", hub.WebhookAzurePassword: "other"}) {
				t.Error("HOOKW-03 it is signed by its secret alone")
			}
		})
	}
}

func TestPullRequestActions(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		header http.Header
		body   string
		want   bool
	}{
		"GitHub: new commits":    {header("pull_request", "application/json", ""), strings.Replace(githubPull, "opened", "synchronize", 1), true},
		"GitHub: a label":        {header("pull_request", "application/json", ""), strings.Replace(githubPull, "opened", "unlabeled", 1), true},
		"GitHub: closed":         {header("pull_request", "application/json", ""), strings.Replace(githubPull, "opened", "closed", 1), true},
		"GitHub: a reviewer":     {header("pull_request", "application/json", ""), strings.Replace(githubPull, "opened", "review_requested", 1), false},
		"GitHub: a review":       {header("pull_request_review", "application/json", ""), githubPull, false},
		"Gitea: new commits":     {header("pull_request", "application/json", ""), strings.Replace(githubPull, "opened", "synchronized", 1), true},
		"GitLab: merged":         {headers("X-Gitlab-Event", "Merge Request Hook"), strings.Replace(gitlabMerge, `"action":"open"`, `"action":"merge"`, 1), true},
		"GitLab: approved":       {headers("X-Gitlab-Event", "Merge Request Hook"), strings.Replace(gitlabMerge, `"action":"open"`, `"action":"approved"`, 1), false},
		"GitLab: another object": {headers("X-Gitlab-Event", "Merge Request Hook"), strings.Replace(gitlabMerge, `"merge_request"`, `"note"`, 1), false},
		"Azure: updated":         {headers("X-Vss-Activityid", "1"), strings.Replace(azurePull, "created", "updated", 1), true},
		"Azure: a comment":       {headers("X-Vss-Activityid", "1"), strings.Replace(azurePull, "git.pullrequest.created", "ms.vss-code.git-pullrequest-comment-event", 1), false},
	} {
		if got, err := webhook.Parse(c.header, []byte(c.body)); err != nil || got.Pull != c.want || (len(got.URLs) > 0) != c.want {
			t.Errorf("AGEN-17 %s: %+v, %v", name, got, err)
		}
	}
}

func TestMalformedPullRequests(t *testing.T) {
	t.Parallel()
	for name, s := range pulled() {
		for _, body := range []string{
			"", "null", "[]", "{}", `{"action":"opened","object_kind":"merge_request","object_attributes":{"action":"open"},"eventType":"git.pullrequest.created"}`,
			`{"action":[1],"object_attributes":[1],"resource":[]}`, `{"action":"opened","repository":[1],"project":[1],"object_kind":"merge_request","eventType":1}`,
		} {
			got, err := webhook.Parse(s.header, []byte(body))
			if fault.KindOf(err) != fault.Invalid && (err != nil || got.URLs != nil || got.Pull) {
				t.Errorf("SEC-I1 %s: %s gives %v, %v", name, body, got, err)
			}
		}
	}
}
