package webhook_test

import (
	"maps"
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

// A sending is an event as a sender's documentation shows it, with what proves
// it.
type sending struct {
	event   string // the sender's word
	header  http.Header
	body    string
	secrets map[string]string // that its proof is of
	want    webhook.Push
}

const (
	gitlabPush = `{"object_kind":"push","event_name":"push","before":"95790bf891e76fee5e1747ab589903a6a1f80f22","after":"89abcdef0123456789abcdef0123456789abcdef",
 "ref":"refs/heads/main","checkout_sha":"89abcdef0123456789abcdef0123456789abcdef","project_id":15,
 "project":{"id":15,"web_url":"https://git.example.com/Team/App","git_ssh_url":"git@git.example.com:Team/App.git","git_http_url":"https://git.example.com/Team/App.git",
 "homepage":"https://git.example.com/Team/App","url":"git@git.example.com:Team/App.git","ssh_url":"git@git.example.com:Team/App.git","http_url":"https://git.example.com/Team/App.git"},
 "repository":{"name":"App","url":"git@git.example.com:Team/App.git","homepage":"https://git.example.com/Team/App","git_http_url":"https://git.example.com/Team/App.git","git_ssh_url":"git@git.example.com:Team/App.git"},
 "commits":[],"total_commits_count":4}`
	bitbucketPush = `{"push":{"changes":[{"new":{"type":"branch","name":"main","target":{"type":"commit","hash":"89abcdef0123456789abcdef0123456789abcdef"}},
 "old":{"type":"branch","name":"main","target":{"hash":"1e65c05c1d5171631d92438a13901ca7dae9618c"}},"created":false,"forced":false,"closed":false}]},
 "repository":{"type":"repository","links":{"self":{"href":"https://api.bitbucket.org/2.0/repositories/team/app"},"html":{"href":"https://bitbucket.org/team/app"}},
 "full_name":"team/app","uuid":"{673a6070-3421-46c9-9d48-90745f7bfe8e}"},"actor":{}}`
	bitbucketServerPush = `{"eventKey":"repo:refs_changed","date":"2026-01-02T09:43:53+0100","actor":{"name":"admin"},
 "repository":{"slug":"app","id":84,"project":{"key":"TEAM"},"links":{"clone":[{"href":"ssh://git@git.example.com:7999/team/app.git","name":"ssh"},
 {"href":"https://git.example.com/scm/team/app.git","name":"http"}],"self":[{"href":"https://git.example.com/projects/TEAM/repos/app/browse"}]}},
 "changes":[{"ref":{"id":"refs/heads/main","displayId":"main","type":"BRANCH"},"refId":"refs/heads/main","fromHash":"ecddabb624f6f5ba43816f5926e580a5f680a932","toHash":"89abcdef0123456789abcdef0123456789abcdef","type":"UPDATE"}]}`
	azurePush = `{"subscriptionId":"00000000-0000-0000-0000-000000000000","notificationId":1,"id":"03c164c2-8912-4d5e-8009-3707d5f83734","eventType":"git.push","publisherId":"tfs",
 "resource":{"commits":[],"refUpdates":[{"name":"refs/heads/main","oldObjectId":"aad331d8d3b131fa9ae03cf5e53965b51942618a","newObjectId":"89abcdef0123456789abcdef0123456789abcdef"}],
 "repository":{"id":"278d5cd2-584d-4b63-824a-2ba458937249","name":"app","url":"https://dev.azure.com/team/_apis/git/repositories/278d5cd2","defaultBranch":"refs/heads/main",
 "remoteUrl":"https://dev.azure.com/team/project/_git/app"},"pushId":14},"resourceVersion":"1.0"}`
)

// headers makes headers of an event in JSON.
func headers(pairs ...string) http.Header {
	h := http.Header{}
	h.Set("Content-Type", "application/json")
	for i := 0; i < len(pairs); i += 2 {
		h.Set(pairs[i], pairs[i+1])
	}
	return h
}

// both are the addresses of places with and without TLS.
func both(places ...string) (out []string) {
	for _, p := range places {
		out = append(out, "http://"+p, "https://"+p)
	}
	return out
}

func basic(user, password string) string {
	r := &http.Request{Header: http.Header{}}
	r.SetBasicAuth(user, password)
	return r.Header.Get("Authorization")
}

func senders() map[string]sending {
	gogs := strings.Replace(push, `"ref":"refs/heads/main"`, `"ref":"refs/heads/main","after":"`+branchAt+`"`, 1)
	digits := func(body string) string { return strings.TrimPrefix(sign(body, "s3cret"), "sha256=") }
	all := registries()
	maps.Copy(all, map[string]sending{
		"GitLab": {
			"Push Hook", headers("X-Gitlab-Event", "Push Hook", "X-Gitlab-Event-UUID", "5f6e", "X-Gitlab-Token", "s3cret"), gitlabPush,
			map[string]string{hub.WebhookGitLab: "s3cret"},
			webhook.Push{Event: "Push Hook", Delivery: "5f6e", URLs: addresses, Ref: "refs/heads/main", Commit: branchAt},
		},
		"GitLab's whole server": {
			"System Hook", headers("X-Gitlab-Event", "System Hook", "X-Gitlab-Token", "s3cret"), strings.Replace(gitlabPush, `"object_kind":"push",`, "", 1),
			map[string]string{hub.WebhookGitLab: "s3cret"},
			webhook.Push{Event: "System Hook", URLs: addresses, Ref: "refs/heads/main", Commit: branchAt},
		},
		"Bitbucket Cloud": {
			"repo:push", headers("X-Event-Key", "repo:push", "X-Request-UUID", "5f6e", "X-Hook-UUID", "a0a1b2c3-d4e5-4f60-8718-293a4b5c6d7e"), bitbucketPush,
			map[string]string{hub.WebhookBitbucket: "{A0A1B2C3-d4e5-4f60-8718-293a4b5c6d7e}"},
			webhook.Push{Event: "repo:push", Delivery: "5f6e", URLs: both("bitbucket.org/team/app"), Ref: "refs/heads/main", Commit: branchAt},
		},
		"Bitbucket Server": {
			"repo:refs_changed", headers("X-Event-Key", "repo:refs_changed", "X-Request-Id", "5f6e", "X-Hub-Signature", sign(bitbucketServerPush, "s3cret")), bitbucketServerPush,
			map[string]string{hub.WebhookBitbucketServer: "s3cret"},
			webhook.Push{
				Event: "repo:refs_changed", Delivery: "5f6e", URLs: append(both("git.example.com/scm/team/app"), "ssh://git.example.com:7999/team/app"),
				Ref: "refs/heads/main", Commit: branchAt,
			},
		},
		"Azure DevOps": {
			"azure", headers("X-Vss-Activityid", "5f6e", "Authorization", basic("capstan", "s3cret")), azurePush,
			map[string]string{hub.WebhookAzureUser: "capstan", hub.WebhookAzurePassword: "s3cret"},
			webhook.Push{
				Event: "azure", Delivery: "5f6e", URLs: append(both("dev.azure.com/team/project/_git/app"), "ssh://ssh.dev.azure.com/v3/team/project/app"),
				Ref: "refs/heads/main", Commit: branchAt,
			},
		},
		"Gogs": {
			"push", headers("X-Gogs-Event", "push", "X-Gogs-Delivery", "5f6e", "X-Gogs-Signature", digits(gogs)), gogs,
			map[string]string{hub.WebhookGogs: "s3cret"},
			webhook.Push{Event: "push", Delivery: "5f6e", URLs: addresses, Ref: "refs/heads/main", Commit: branchAt},
		},
		"Gitea as Gogs": {
			"push", headers("X-Gogs-Event", "push", "X-GitHub-Event", "push", "X-GitHub-Delivery", "5f6e", "X-Gogs-Signature", digits(gogs), "X-Hub-Signature-256", "sha256="+digits(gogs)), gogs,
			map[string]string{hub.WebhookGogs: "s3cret"},
			webhook.Push{Event: "push", Delivery: "5f6e", URLs: addresses, Ref: "refs/heads/main", Commit: branchAt},
		},
		"Gitea as GitHub": {
			"push", headers("X-Gogs-Event", "push", "X-GitHub-Event", "push", "X-Gogs-Signature", digits(gogs), "X-Hub-Signature-256", "sha256="+digits(gogs)), gogs,
			map[string]string{hub.WebhookGitHub: "s3cret"},
			webhook.Push{Event: "push", URLs: addresses, Ref: "refs/heads/main", Commit: branchAt},
		},
	})
	return all
}

// headersOf are headers of each kind of sender, for any word of theirs.
func headersOf(event, contentType string) (out []http.Header) {
	for _, h := range []http.Header{
		headers("X-GitHub-Event", event), headers("X-Gogs-Event", event), headers("X-Gitlab-Event", event), headers("X-Event-Key", event, "X-Hook-UUID", "{}"),
		headers("X-Event-Key", event), headers("X-Vss-Activityid", event), headers("X-Gitlab-Event", "System Hook"), headers("X-Event-Key", "repo:push", "X-Hook-UUID", "1"),
		headers("X-Event-Key", "repo:refs_changed", "X-Hub-Signature", "sha256="), headers("X-GitHub-Event", "package"), headers("X-Capstan-Event", event), headers(),
	} {
		h.Set("Content-Type", contentType)
		out = append(out, h)
	}
	return out
}

func TestSenders(t *testing.T) {
	t.Parallel()
	for name, s := range senders() {
		t.Run("HOOKW-02 a push of "+name, func(t *testing.T) {
			t.Parallel()
			got, err := webhook.Parse(s.header, []byte(s.body))
			if err != nil {
				t.Fatal(err)
			}
			slices.Sort(s.want.URLs)
			if diff := cmp.Diff(s.want, got, cmpopts.IgnoreUnexported(webhook.Push{})); diff != "" {
				t.Error(diff)
			}
		})
		t.Run("HOOKW-03 who knows the secret of "+name+", and who does not", func(t *testing.T) {
			t.Parallel()
			got, err := webhook.Parse(s.header, []byte(s.body))
			if err != nil || !got.Signed() || !got.SignedBy(s.secrets) {
				t.Errorf("signed %v, by its secrets %v, %v", got.Signed(), got.SignedBy(s.secrets), err)
			}
			for key := range s.secrets {
				for what, value := range map[string]string{"another": "other", "an empty": "", "a longer": s.secrets[key] + "x"} {
					wrong := map[string]string{}
					for k, v := range s.secrets {
						wrong[k] = v
					}
					if wrong[key] = value; got.SignedBy(wrong) {
						t.Errorf("%s value of %s is as good", what, key)
					}
				}
			}
			foreign := map[string]string{}
			for _, other := range senders() {
				for k, v := range other.secrets {
					if _, own := s.secrets[k]; !own && !strings.HasPrefix(name, "Gitea") {
						foreign[k] = v
					}
				}
			}
			if got.SignedBy(foreign) {
				t.Error("secrets of other senders are as good")
			}
		})
		t.Run("HOOKW-03 "+name+" without a proof", func(t *testing.T) {
			t.Parallel()
			bare := s.header.Clone()
			for _, h := range []string{"X-Gitlab-Token", "X-Hub-Signature", "X-Hub-Signature-256", "X-Gogs-Signature", "X-Capstan-Signature-256", "Authorization"} {
				bare.Del(h)
			}
			if s.header.Get("X-Hook-UUID") != "" {
				bare.Set("X-Hook-UUID", "{}")
			}
			if got, err := webhook.Parse(bare, []byte(s.body)); err != nil || got.Signed() || got.SignedBy(s.secrets) {
				t.Errorf("signed %v, %v", got.Signed(), err)
			}
		})
	}
}

func TestSignedBodies(t *testing.T) {
	t.Parallel()
	for name, s := range senders() {
		if s.header.Get("X-Hub-Signature")+s.header.Get("X-Gogs-Signature") == "" {
			continue
		}
		other := strings.Replace(s.body, "main", "evil", 1)
		if got, err := webhook.Parse(s.header, []byte(other)); err != nil || got.SignedBy(s.secrets) {
			t.Errorf("HOOKW-03 %s: the signature is as good for another body, %v", name, err)
		}
	}
}

func TestWhatIsNoPush(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		header http.Header
		body   string
	}{
		"HOOKW-02 GitLab tells of an issue":            {headers("X-Gitlab-Event", "Issue Hook"), "{"},
		"HOOKW-02 GitLab's server tells of a project":  {headers("X-Gitlab-Event", "System Hook"), `{"event_name":"project_create"}`},
		"HOOKW-02 Bitbucket tells of a pull request":   {headers("X-Event-Key", "pullrequest:created", "X-Hook-UUID", "1"), "{"},
		"HOOKW-02 Bitbucket Server tries a connection": {headers("X-Event-Key", "diagnostics:ping"), `{"test":true}`},
		"HOOKW-02 Azure tells of a work item":          {headers("X-Vss-Activityid", "1"), `{"eventType":"workitem.created"}`},
		"HOOKW-02 Gogs tells of an issue":              {headers("X-Gogs-Event", "issues"), "{"},
	} {
		if got, err := webhook.Parse(c.header, []byte(c.body)); err != nil || len(got.URLs) > 0 {
			t.Errorf("%s: %v, %v", name, got.URLs, err)
		}
	}
}

// Odd JSON of each sender is refused, and no panic.
func TestMalformedEvents(t *testing.T) {
	t.Parallel()
	for name, s := range senders() {
		for _, body := range []string{
			"", "null", "[]", "{}", `{"repository":null,"project":null,"resource":null,"push":null,"changes":null,"object_kind":"push","eventType":"git.push"}`,
			`{"repository":[1]}`, `{"repository":{"links":{"clone":{}}},"project":[1],"resource":[]}`, `{"repository":{"links":{"clone":[null],"html":null}},"object_kind":"push","eventType":"git.push"}`,
			`{"push":{"changes":[null,{"new":null}]},"changes":[null],"resource":{"refUpdates":[null]},"object_kind":"push","eventType":"git.push"}`,
		} {
			got, err := webhook.Parse(s.header, []byte(body))
			if fault.KindOf(err) != fault.Invalid && (err != nil || got.URLs != nil) {
				t.Errorf("SEC-I1 %s: %s gives %v, %v", name, body, got.URLs, err)
			}
		}
	}
}

func TestManyChanges(t *testing.T) {
	t.Parallel()
	two := strings.Replace(bitbucketServerPush, `"changes":[`, `"changes":[{"ref":{"id":"refs/heads/next"},"toHash":"`+branchAt+`"},`, 1)
	deleted := strings.Replace(bitbucketPush, `"new":{`, `"new":null,"was":{`, 1)
	tag := strings.Replace(bitbucketPush, `"new":{"type":"branch"`, `"new":{"type":"tag"`, 1)
	for name, c := range map[string]struct {
		sender, body string
	}{
		"HOOKW-02 several branches are looked for all": {"Bitbucket Server", two},
		"HOOKW-02 a branch that was deleted":           {"Bitbucket Cloud", deleted},
		"HOOKW-02 a tag, whose hash is not its own":    {"Bitbucket Cloud", tag},
	} {
		got, err := webhook.Parse(senders()[c.sender].header, []byte(c.body))
		if err != nil || got.Ref != "" || got.Commit != "" || len(got.URLs) == 0 {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}
