package send_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/notify"
	"github.com/capstan-cd/capstan/hub/notify/send"
	"github.com/capstan-cd/capstan/integration/rigs/notifyhosts"
)

// threads remember conversations in memory.
type threads struct {
	mu    sync.Mutex
	known map[hub.Thread]hub.Thread
}

func (s *threads) Thread(_ context.Context, _ hub.TenantID, t hub.Thread) (hub.Thread, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if found, ok := s.known[t]; ok {
		return found, nil
	}
	return t, nil
}

func (s *threads) PutThread(_ context.Context, _ hub.TenantID, t hub.Thread) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known[hub.Thread{Service: t.Service, Recipient: t.Recipient, Key: t.Key}] = t
	return nil
}

func config(authorities string) send.Config {
	return send.Config{
		Allowed:     []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		Authorities: func(context.Context, hub.TenantID, string) (string, error) { return authorities, nil },
		Threads:     &threads{known: map[hub.Thread]hub.Thread{}},
	}
}

// key is a private key in PEM.
func key(t *testing.T) string {
	t.Helper()
	k, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(k)}))
}

// letter is a message of a template for a service of options.
func letter(t *testing.T, kind, options, recipient, template string) send.Letter {
	t.Helper()
	c := notify.Read(map[string]string{"service." + kind: options, "template.x": template, "context": "argocdUrl: https://cd.example.com\n"})
	if len(c.Problems) > 0 {
		t.Fatal(c.Problems)
	}
	since := time.Now().Add(-time.Hour)
	op := hub.Operation{ID: "o", Kind: hub.SyncOperation, Phase: hub.Succeeded, Revision: "c0ffee", OperationTimes: hub.OperationTimes{CreatedAt: since, FinishedAt: &since}}
	vars := c.Present(notify.Input{
		App: hub.Application{
			Meta: hub.Meta{Namespace: "argocd", Name: "web"}, Spec: json.RawMessage(`{"source":{"repoURL":"https://github.com/team/web"}}`),
			Status: hub.ApplicationStatus{Sync: hub.Synced, Health: hub.Healthy, HealthSince: &since, Revision: "c0ffee", Operation: &op},
		},
		Lookups: notify.Lookups{Commit: func(string) (notify.Commit, error) { return notify.Commit{Message: "Fix it", Author: "Ann"}, nil }},
	})
	var service notify.Service
	for _, s := range c.Services {
		service = s
	}
	secrets := map[string]string{"token": notifyhosts.Token}
	message, err := notify.Render([]notify.Template{c.Templates["x"]}, service, vars.Template(service, recipient))
	if err != nil {
		t.Fatal(err)
	}
	hidden := service.Hidden(secrets)
	if service, err = service.With(secrets); err != nil {
		t.Fatal(err)
	}
	return send.Letter{ID: hub.NewID[hub.DeliveryID](), Service: service, Secrets: append(hidden, service.Hidden(nil)...), Message: message, Recipient: recipient, At: time.Now()}
}

func TestServices(t *testing.T) {
	t.Parallel()
	hosts := notifyhosts.New(t)
	u, privateKey := hosts.URL, key(t)
	google, err := json.Marshal(map[string]string{"client_email": "bot@example.com", "private_key": privateKey, "private_key_id": "k1"})
	if err != nil {
		t.Fatal(err)
	}
	quoted, err := json.Marshal(string(google))
	if err != nil {
		t.Fatal(err)
	}
	const plain = "message: '{{.app.metadata.name}} is synced'\n"
	for name, c := range map[string]struct {
		kind, options, recipient, template string
		service, to, text                  string   // of what arrives; service: of another name than kind
		has                                []string // in the body
	}{
		"slack":             {kind: "slack", options: "token: $token\napiURL: " + u + "/slack\nusername: Capstan\nicon: ':rocket:'\n", recipient: "dev", template: plain + "slack:\n  blocks: '[{\"type\":\"section\"}]'\n", has: []string{`"username":"Capstan"`, `"icon_emoji":":rocket:"`, `"section"`}},
		"webhook":           {kind: "webhook.ci", options: "url: " + u + "/hook/\nheaders: [{name: X-Key, value: $token}]\nbasicAuth: {username: bot, password: $token}\n", template: "webhook:\n  ci: {method: POST, path: 'a/{{.app.metadata.name}}', body: '{\"r\":\"{{.app.status.sync.revision}}\"}'}\n", service: "webhook", to: "a/web", text: `{"r":"c0ffee"}`},
		"teams":             {kind: "teams", options: "recipientUrls: {dev: '" + u + "/teams/dev'}\n", recipient: "dev", template: plain + "teams:\n  title: T\n  facts: '[{\"name\":\"a\",\"value\":\"b\"}]'\n  potentialAction: '[{\"@type\":\"OpenUri\",\"name\":\"Open\",\"targets\":[{\"os\":\"default\",\"uri\":\"https://x\"}]}]'\n", has: []string{`"facts"`, `"OpenUri"`}},
		"teams-workflows":   {kind: "teams-workflows", options: "recipientUrls: {dev: '" + u + "/workflows/dev'}\n", recipient: "dev", template: plain + "teams-workflows:\n  title: T\n  facts: '[{\"name\":\"a\",\"value\":\"b\"}]'\n  potentialAction: '[{\"@type\":\"OpenUri\",\"name\":\"Open\",\"targets\":[{\"os\":\"default\",\"uri\":\"https://x\"}]}]'\n", text: "-", has: []string{`"FactSet"`, `"Action.OpenUrl"`, "web is synced"}},
		"googlechat":        {kind: "googlechat", options: "webhooks: {dev: '" + u + "/googlechat/dev?key=k&token=t'}\n", recipient: "dev", template: plain},
		"mattermost":        {kind: "mattermost", options: "apiURL: " + u + "\ntoken: $token\n", recipient: "c1", template: plain + "mattermost: {attachments: '[{\"title\":\"x\"}]'}\n", has: []string{`"title":"x"`}},
		"rocketchat":        {kind: "rocketchat", options: "email: bot@example.com\npassword: $token\nserverUrl: " + u + "\nalias: Capstan\n", recipient: "#dev", template: plain},
		"telegram":          {kind: "telegram", options: "token: $token\napiURL: " + u + "\n", recipient: "-100|7", template: plain, to: "-100", has: []string{`"message_thread_id":7`}},
		"webex":             {kind: "webex", options: "token: $token\napiURL: " + u + "\n", recipient: "a@example.com", template: plain},
		"pushover":          {kind: "pushover", options: "token: $token\napiURL: " + u + "\n", recipient: "u1", template: plain},
		"opsgenie":          {kind: "opsgenie", options: "apiUrl: " + u + "\napiKeys: {ops: $token}\n", recipient: "ops", template: plain + "opsgenie: {description: d, priority: P2, tags: [a]}\n", has: []string{`"priority":"P2"`, `"tags":["a"]`, `"alias"`}},
		"pagerduty":         {kind: "pagerduty", options: "token: $token\nfrom: a@example.com\napiURL: " + u + "\n", recipient: "S1", template: "pagerduty: {title: 'web is synced', body: b, urgency: high}\n", has: []string{`"urgency":"high"`}},
		"pagerdutyv2":       {kind: "pagerdutyv2", options: "serviceKeys: {ops: $token}\napiURL: " + u + "\n", recipient: "ops", template: "pagerdutyv2: {summary: 'web is synced', severity: critical, source: web}\n", to: "events", has: []string{`"dedup_key"`}},
		"newrelic":          {kind: "newrelic", options: "apiKey: $token\napiURL: " + u + "\n", recipient: "42", template: plain + "newrelic: {}\n", has: []string{`"user":"Ann"`, `"revision":"c0ffee"`}},
		"grafana":           {kind: "grafana", options: "apiUrl: " + u + "/grafana\napiKey: $token\n", recipient: "a|b", template: plain, to: "a b"},
		"alertmanager":      {kind: "alertmanager", options: "targets: ['127.0.0.1:1', '" + strings.TrimPrefix(u, "http://") + "']\nbearerToken: $token\n", template: "alertmanager: {labels: {severity: warning}}\n", text: "-", has: []string{`"generatorURL":"https://github.com/team/web"`}},
		"github status":     {kind: "github", options: githubOptions(u, privateKey), template: plain + "github: {status: {state: success, label: cd, targetURL: 'https://x'}}\n", service: "github-status", to: "team/web", has: []string{`"state":"success"`}},
		"github check run":  {kind: "github", options: githubOptions(u, privateKey), template: plain + "github: {checkRun: {name: cd, conclusion: success}}\n", service: "github-check", to: "team/web", text: "-", has: []string{`"head_sha":"c0ffee"`, `"completed"`}},
		"github deployment": {kind: "github", options: githubOptions(u, privateKey), template: plain + "github: {deployment: {state: success, environment: prod}}\n", service: "github-deployment-status", to: "team/web", has: []string{`"environment":"prod"`}},
		"github comment":    {kind: "github", options: githubOptions(u, privateKey), template: plain + "github: {pullRequestComment: {content: 'web is synced', commentTag: t}}\n", service: "github-comment", to: "team/web", text: "web is synced\n<!-- argocd-notifications t -->"},
		"awssqs":            {kind: "awssqs", options: "queue: events.fifo\nregion: eu-west-1\nkey: AKIDEXAMPLE\nsecret: $token\nendpointUrl: " + u + "/sqs\n", template: plain + "awssqs: {messageGroupId: g, messageAttributes: {a: b}}\n", text: "-", has: []string{`"MessageGroupId":"g"`, `"MessageDeduplicationId"`, "web is synced"}},
		"gcppubsub":         {kind: "gcppubsub", options: "project: p\ntopic: t\napiURL: " + u + "\nkeyFile: " + string(quoted) + "\n", template: plain + "gcppubsub: {attributes: {a: b}}\n", to: "t"},
	} {
		t.Run("NOTI-03 "+name, func(t *testing.T) {
			t.Parallel()
			l := letter(t, c.kind, c.options, c.recipient, c.template)
			attempt, err := send.Send(t.Context(), config(""), l)
			if err != nil {
				t.Fatalf("%v\n%+v", err, attempt)
			}
			if c.service == "" {
				c.service = c.kind
			}
			if c.to == "" {
				c.to = c.recipient
			}
			if c.text == "" {
				c.text = "web is synced"
			}
			got := hosts.Of(c.service, c.to)
			if len(got) != 1 || c.text != "-" && got[0].Text != c.text {
				t.Fatalf("%+v of %+v", got, hosts.Of("", ""))
			}
			for _, part := range c.has {
				if !strings.Contains(string(got[0].Body), part) {
					t.Errorf("no %s in %s", part, got[0].Body)
				}
			}
			if record := fmt.Sprintf("%+v", attempt); len(attempt.Requests) == 0 || strings.Contains(record, notifyhosts.Token) || strings.Contains(record, "PRIVATE KEY") || strings.Contains(record, "session") {
				t.Errorf("SEC-C1 the record of the attempt is %s", record)
			}
		})
	}
	for _, kind := range notify.Types() {
		t.Run("NOTI-03 SEC-A6 "+kind+" connects to no address of the operator's network", func(t *testing.T) {
			t.Parallel()
			recipient := "dev"
			if kind == "email" {
				recipient = "dev@example.com"
			}
			l := letter(t, kind, refusedOptions(kind, u, privateKey, string(quoted)), recipient, everyPart)
			guarded := config("")
			guarded.Allowed = nil
			attempt, err := send.Send(t.Context(), guarded, l)
			var f *send.Failure
			if !errors.As(err, &f) || !f.Permanent || !strings.Contains(attempt.Error, "not allowed") {
				t.Errorf("%v, %+v", err, attempt)
			}
		})
	}
}

func githubOptions(u, privateKey string) string {
	return "appID: 7\ninstallationID: 8\nenterpriseBaseURL: " + u + "\nprivateKey: |\n  " + strings.ReplaceAll(strings.TrimSpace(privateKey), "\n", "\n  ") + "\n"
}

// everyPart is a template that each type of service accepts.
const everyPart = `message: hello
webhook: {webhook: {method: POST}}
github: {status: {state: success}}
newrelic: {revision: a}
alertmanager: {labels: {a: b}}
pagerduty: {title: a}
pagerdutyv2: {summary: a}
`

// refusedOptions are those of a service at an address.
func refusedOptions(kind, u, privateKey, google string) string {
	host, port, _ := strings.Cut(strings.TrimPrefix(u, "http://"), ":")
	switch kind {
	case "github":
		return githubOptions(u, privateKey)
	case "email":
		return "host: " + host + "\nport: " + port + "\nfrom: a@example.com\n"
	case "nats":
		return "url: nats://" + host + ":" + port + "\n"
	case "gcppubsub":
		return "project: p\ntopic: t\napiURL: " + u + "\nkeyFile: " + google + "\n"
	case "awssqs":
		return "region: r\nkey: k\nsecret: s\nqueue: q\nendpointUrl: " + u + "\n"
	}
	return fmt.Sprintf("url: %[1]s\napiURL: %[1]s\napiUrl: %[1]s\nserverUrl: %[1]s\ntoken: x\napiKey: x\ntargets: ['%[2]s']\nrecipientUrls: {dev: '%[1]s'}\nwebhooks: {dev: '%[1]s'}\napiKeys: {dev: x}\nserviceKeys: {dev: x}\n", u, strings.TrimPrefix(u, "http://"))
}

func TestSlackThreads(t *testing.T) {
	t.Parallel()
	hosts := notifyhosts.New(t)
	cfg := config("")
	post := func(t *testing.T, policy string) {
		t.Helper()
		l := letter(t, "slack", "token: $token\napiURL: "+hosts.URL+"/slack\n", "dev", "message: hello\nslack: {groupingKey: '{{.app.status.sync.revision}}', deliveryPolicy: "+policy+", notifyBroadcast: true}\n")
		if _, err := send.Send(t.Context(), cfg, l); err != nil {
			t.Fatal(err)
		}
	}
	for _, policy := range []string{"Post", "Post", "Update", "PostAndUpdate"} {
		post(t, policy)
	}
	got := hosts.Of("slack", "dev")
	var calls []string
	for _, m := range got {
		call := strings.TrimPrefix(m.Path, "/slack/chat.")
		if m.Fields["thread_ts"] != nil {
			call += " in a thread"
		}
		calls = append(calls, call)
	}
	t.Run("NOTI-06 messages of one grouping key are a thread, and policies update its first one", func(t *testing.T) {
		if s := strings.Join(calls, ", "); s != "postMessage, postMessage in a thread, update, postMessage in a thread, update" {
			t.Error(s)
		}
	})
}

func TestMail(t *testing.T) {
	t.Parallel()
	server := notifyhosts.NewMail(t)
	options := fmt.Sprintf("host: 127.0.0.1\nport: %d\nusername: bot\npassword: $token\nfrom: capstan@example.com\n", server.Port)
	const template = "message: body\nemail: {subject: \"{{.app.metadata.name}}: über\\r\\nBcc: evil@example.com\", body: 'Grüße, {{.app.metadata.name}}'}\n"
	t.Run("NOTI-03 email, over TLS, with a password, to several", func(t *testing.T) {
		attempt, err := send.Send(t.Context(), config(server.Authority), letter(t, "email", options, "a@example.com, b@example.com", template))
		if err != nil {
			t.Fatalf("%v %+v", err, attempt)
		}
		all := server.All()
		if len(all) != 1 || !all[0].TLS || all[0].User != "bot" || len(all[0].To) != 2 || all[0].From != "capstan@example.com" {
			t.Fatalf("%+v", all)
		}
		if strings.Contains(all[0].Data, "\nBcc:") || !strings.Contains(all[0].Data, "@capstan>") || !strings.Contains(all[0].Data, "Gr=C3=BC=C3=9Fe") {
			t.Errorf("%s", all[0].Data)
		}
		if record := fmt.Sprintf("%+v", attempt); strings.Contains(record, notifyhosts.Token) {
			t.Errorf("SEC-C1 %s", record)
		}
	})
	t.Run("NOTI-03 SEC-A6 a server whose certificate is not trusted gets no password", func(t *testing.T) {
		if _, err := send.Send(t.Context(), config(""), letter(t, "email", options, "a@example.com", template)); err == nil {
			t.Error("it was sent")
		}
	})
	for line, permanent := range map[string]bool{"451 4.7.1 later": false, "550 5.1.1 no such user": true} {
		t.Run("FT-W4 the answer "+line, func(t *testing.T) {
			server.Refuse(line)
			_, err := send.Send(t.Context(), config(server.Authority), letter(t, "email", options, "a@example.com", template))
			var f *send.Failure
			if !errors.As(err, &f) || f.Permanent != permanent {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestNATS(t *testing.T) {
	t.Parallel()
	server := notifyhosts.NewNATS(t)
	t.Run("NOTI-03 nats", func(t *testing.T) {
		for _, login := range []string{"username: bot\npassword: $token\n", "nkey: SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY\n"} {
			l := letter(t, "nats", "url: "+server.URL+"\nheaders: {X-A: b}\n"+login, "events.web", "message: hello\n")
			if attempt, err := send.Send(t.Context(), config(""), l); err != nil {
				t.Fatalf("%v %+v", err, attempt)
			}
		}
		all := server.All()
		if len(all) != 2 || all[0].Recipient != "events.web" || all[0].Text != "hello" || !strings.Contains(string(all[0].Body), "X-A: b") || !strings.Contains(string(all[0].Body), "Nats-Msg-Id: ") {
			t.Errorf("%+v", all)
		}
	})
	t.Run("NOTI-03 nats with a wrong password", func(t *testing.T) {
		_, err := send.Send(t.Context(), config(""), letter(t, "nats", "url: "+server.URL+"\nusername: bot\npassword: wrong\n", "x", "message: hello\n"))
		var f *send.Failure
		if !errors.As(err, &f) || !f.Permanent {
			t.Errorf("%v", err)
		}
	})
}

func TestFailures(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		refusal   notifyhosts.Refusal
		permanent bool
		after     time.Duration
	}{
		"FT-W4 a service that is busy says when to come again": {notifyhosts.Refusal{Status: 429, RetryAfter: "90"}, false, 90 * time.Second},
		"FT-W4 a service that is broken":                       {notifyhosts.Refusal{Status: 503}, false, 0},
		"FT-W4 a request that is refused for good":             {notifyhosts.Refusal{Status: 404, Body: "no such hook"}, true, 0},
		"SEC-A6 a redirect is not followed":                    {notifyhosts.Refusal{Status: 302, Body: "http://127.0.0.1:1/"}, true, 0},
		"SEC-A6 a redirect of the same method is not followed": {notifyhosts.Refusal{Status: 307, Body: "http://127.0.0.1:1/"}, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hosts := notifyhosts.New(t)
			c.refusal.Times = 1
			hosts.Refuse(c.refusal)
			attempt, err := send.Send(t.Context(), config(""), letter(t, "webhook", "url: "+hosts.URL+"/hook/x\nheaders: [{name: Authorization, value: $token}]\n", "", "message: hello\n"))
			var f *send.Failure
			if !errors.As(err, &f) || f.Permanent != c.permanent || f.RetryAfter != c.after || attempt.Error == "" || attempt.Status != c.refusal.Status || hosts.Seen() != 1 {
				t.Errorf("%v %+v", err, attempt)
			}
		})
	}
	t.Run("FT-W4 a service that is away", func(t *testing.T) {
		t.Parallel()
		attempt, err := send.Send(t.Context(), config(""), letter(t, "webhook", "url: http://127.0.0.1:1/x\n", "", "message: hello\n"))
		var f *send.Failure
		if !errors.As(err, &f) || f.Permanent || !strings.Contains(attempt.Error, "cannot be reached") {
			t.Errorf("%v %+v", err, attempt)
		}
	})
	for name, c := range map[string][3]string{
		"NOTI-03 SEC-D16 a queue of Amazon without the tenant's own key": {"awssqs", "queue: q\nregion: r\n", "own machine"},
		"NOTI-03 SEC-D16 a topic of Google by a file of the machine":     {"gcppubsub", "topic: t\nproject: p\nkeyFile: /etc/passwd\n", "not used for tenants"},
		"NOTI-03 a recipient that is not set":                            {"teams", "recipientUrls: {}\n", "the recipient"},
		"NOTI-06 a part that the service needs":                          {"github", "appID: 1\n", "github"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			attempt, err := send.Send(t.Context(), config(""), letter(t, c[0], c[1], "x", "message: hello\n"))
			var f *send.Failure
			if !errors.As(err, &f) || !f.Permanent || !strings.Contains(attempt.Error, c[2]) {
				t.Errorf("%v %+v", err, attempt)
			}
		})
	}
}
