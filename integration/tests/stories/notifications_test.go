package stories_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/integration/rigs/notifyhosts"
	"github.com/capstan-cd/capstan/integration/rigs/poll"
	"github.com/capstan-cd/capstan/integration/rigs/stack"
)

// notificationSettings sets keys of notifications; nil removes one.
func notificationSettings(t *testing.T, values map[string]any) {
	t.Helper()
	maps := map[string]any{}
	for key, value := range values {
		name := "argocd-notifications-cm"
		if rest, secret := strings.CutPrefix(key, "secret:"); secret {
			name, key = "argocd-notifications-secret", rest
		}
		if maps[name] == nil {
			maps[name] = map[string]any{}
		}
		maps[name].(map[string]any)[key] = value //nolint:forcetypeassert // made above
	}
	if err := s.API.Do(within(t, waitLimit), http.MethodPatch, "/api/v1/settings", map[string]any{"values": maps}, nil); err != nil {
		t.Fatal(err)
	}
}

// A sentMessage is one of the list of deliveries.
type sentMessage struct {
	ID, State, Reason, Trigger, Recipient string
	Attempts                              []struct {
		Status        int
		Answer, Error string
		Requests      []string
	}
}

// delivered waits until so many messages about an application are in a state.
func delivered(t *testing.T, app, state string, n int) (out []sentMessage) {
	t.Helper()
	err := poll.Until(within(t, waitLimit), func(ctx context.Context) error {
		var list struct{ Items []sentMessage }
		if state != "" && !strings.HasPrefix(state, "&") {
			state = "&state=" + state
		}
		if err := s.API.Do(ctx, http.MethodGet, "/api/v1/notifications/deliveries?application="+app+state, nil, &list); err != nil {
			return err
		}
		if out = list.Items; len(out) < n {
			return fmt.Errorf("%d messages are %s, not %d", len(out), state, n)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// metricsText is what the hub's metrics say.
func metricsText(t *testing.T) string {
	t.Helper()
	req, err := http.NewRequestWithContext(within(t, waitLimit), http.MethodGet, s.Hub.Metrics(), nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// subscribe applies an application that nothing synchronises by itself, with
// subscriptions.
func subscribe(t *testing.T, name, repo, annotations string) {
	t.Helper()
	manifest := fmt.Sprintf(`apiVersion: argoproj.io/v1alpha1
kind: Application
metadata:
  name: %[1]s
  namespace: argocd
  annotations:
%[3]s
  finalizers: [resources-finalizer.argocd.argoproj.io]
spec:
  project: default
  source: {repoURL: %[2]q, path: app, targetRevision: main}
  destination: {name: in-cluster, namespace: %[1]s}
  syncPolicy: {automated: {}, syncOptions: [CreateNamespace=true]}
`, name, repo, annotations)
	if _, err := s.API.Apply(within(t, waitLimit), manifest); err != nil {
		t.Fatal(err)
	}
}

// TestNotificationsOfTroubles has a target that is away, and an application that
// is degraded and healthy again.
func TestNotificationsOfTroubles(t *testing.T) {
	hosts := notifyhosts.New(t)
	const name = "troubled"
	notificationSettings(t, map[string]any{
		"secret:hook-key":         notifyhosts.Token,
		"service.webhook.ci":      "url: " + hosts.URL + "/hook/ci\nheaders: [{name: X-Key, value: $hook-key}]\n",
		"template.app-to-ci":      "webhook:\n  ci: {method: POST, body: '{{.app.metadata.name}} {{.app.status.health.status}} {{index .secrets \"hook-key\"}}'}\n",
		"trigger.on-ci-degraded":  "- when: app.status.health.status == 'Degraded'\n  send: [app-to-ci]\n",
		"trigger.on-ci-recovered": "- when: app.status.health.status == 'Healthy' and previous.degraded\n  send: [app-to-ci]\n",
	})
	const health = "resource.customizations.health.ConfigMap"
	set := func(values map[string]any) {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), waitLimit)
		defer cancel()
		if err := s.API.Do(ctx, http.MethodPatch, "/api/v1/settings", map[string]any{"values": map[string]any{"argocd-cm": values}}, nil); err != nil {
			t.Fatal(err)
		}
	}
	set(map[string]any{health: "hs = {status = 'Healthy', message = 'fine'}\nif obj.data ~= nil and obj.data.v == 'ill' then hs = {status = 'Degraded', message = 'it is ill'} end\nreturn hs\n"})
	t.Cleanup(func() { set(map[string]any{health: nil}) })
	repo := repository(t, name, map[string]string{"app/a.yaml": configMap("a", "well")})
	subscribe(t, name, repo.URL(), "    notifications.argoproj.io/subscribe.on-ci-degraded.ci: \"\"\n    notifications.argoproj.io/subscribe.on-ci-recovered.ci: \"\"\n    notifications.argoproj.io/subscribe.on-deleted.ci: \"\"")
	settled(t, name)
	if all := delivered(t, name, "", 0); len(all) > 0 {
		t.Errorf("before anything has happened: %+v", all)
	}
	push := func(t *testing.T, v string) {
		t.Helper()
		if _, err := repo.Commit(within(t, waitLimit), v, map[string]string{"app/a.yaml": configMap("a", v)}); err != nil {
			t.Fatal(err)
		}
		cli(t, "app", "get", name, "--refresh")
		live(t, name, "a", value(v))
	}
	t.Run("FT-W4 a target that is away gets the message later, and the sync succeeds meanwhile", func(t *testing.T) {
		hosts.Refuse(notifyhosts.Refusal{Status: http.StatusServiceUnavailable, RetryAfter: "1", Body: "overloaded " + notifyhosts.Token, Times: 1})
		push(t, "ill")
		condition(t, name, func(x stack.App) error {
			if x.Status.Health.Status != "Degraded" {
				return fmt.Errorf("its health is %s", x.Status.Health.Status)
			}
			return nil
		})
		got, err := hosts.Wait(within(t, waitLimit), "webhook", "ci", 1)
		if err != nil {
			t.Fatal(err)
		}
		sent := delivered(t, name, "delivered", 1)[0]
		if got[0].Text != name+" Degraded "+notifyhosts.Token || len(sent.Attempts) != 2 || sent.Attempts[0].Status != http.StatusServiceUnavailable || sent.Attempts[1].Status != http.StatusNoContent {
			t.Errorf("%q, %+v of %+v", got[0].Text, sent, delivered(t, name, "", 0))
		}
		if record := fmt.Sprintf("%+v", sent); strings.Contains(record, notifyhosts.Token) || !strings.Contains(record, "overloaded ••••••") {
			t.Errorf("SEC-C1 %s", record)
		}
	})
	t.Run("pain 35 an application that is healthy again makes a message of its own", func(t *testing.T) {
		push(t, "well")
		got, err := hosts.Wait(within(t, waitLimit), "webhook", "ci", 2)
		if err != nil {
			t.Fatal(err)
		}
		delivered(t, name, "delivered", 2)
		if all := hosts.Of("webhook", "ci"); len(all) != 2 || !strings.HasPrefix(got[1].Text, name+" Healthy") {
			t.Errorf("%q", notifyhosts.Texts(all))
		}
	})
	t.Run("NOTI-16 NOTI-17 UX-NOT-2 a message that is sent once more arrives", func(t *testing.T) {
		id := delivered(t, name, "delivered", 2)[0].ID
		cli(t, "notifications", "deliveries", "redeliver", id)
		if _, err := hosts.Wait(within(t, waitLimit), "webhook", "ci", 3); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("NOTI-05 a trigger can be evaluated for the present state", func(t *testing.T) {
		if out := cli(t, "admin", "notifications", "trigger", "run", "on-ci-degraded", name); !strings.Contains(out, "false") {
			t.Error(out)
		}
	})
	t.Run("FT-W4 a message that is refused for good is listed as failed, with the answer", func(t *testing.T) {
		hosts.Refuse(notifyhosts.Refusal{Status: http.StatusGone, Body: "no such hook", Times: 1})
		cli(t, "notifications", "template", "notify", "app-to-ci", name, "--recipient", "ci")
		if failed := delivered(t, name, "failed", 1)[0]; len(failed.Attempts) != 1 || failed.Attempts[0].Answer != "no such hook" {
			t.Errorf("%+v", failed)
		}
	})
	t.Run("NOTI-18 metrics have evaluations and deliveries", func(t *testing.T) {
		out := metricsText(t)
		for _, want := range []string{
			`argocd_notifications_deliveries_total{service="ci",succeeded="true",trigger="on-ci-degraded"} 1`, `argocd_notifications_deliveries_total{service="ci",succeeded="false",trigger="on-ci-degraded"} 1`,
			`argocd_notifications_trigger_eval_total{name="on-ci-degraded",triggered="true"}`,
		} {
			if !strings.Contains(out, want) {
				t.Errorf("no %s", want)
			}
		}
	})
	t.Run("NOTI-14 NOTI-09 the last message about an application that is deleted is sent", func(t *testing.T) {
		cli(t, "app", "delete", name, "--yes")
		absent(t, name)
		got, err := hosts.Wait(within(t, waitLimit), "webhook", "ci", 4)
		if err != nil || got[3].Text != name+" was deleted." {
			t.Errorf("%q, %v", notifyhosts.Texts(got), err)
		}
	})
}

func TestNotifications(t *testing.T) {
	hosts := notifyhosts.New(t)
	guide, err := os.ReadFile(filepath.Join("..", "..", "testdata", "guide", "19-notifications.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.API.Apply(within(t, waitLimit), string(guide)); err != nil {
		t.Fatal(err)
	}
	notificationSettings(t, map[string]any{
		"secret:slack-token": notifyhosts.Token,
		// The guide's service, at a server that is not Slack's.
		"service.slack": "token: $slack-token\napiURL: " + hosts.URL + "/slack\n",
	})
	const name = "announced"
	repo := repository(t, name, map[string]string{"app/a.yaml": configMap("a", "one")})
	manifest := fmt.Sprintf(`apiVersion: argoproj.io/v1alpha1
kind: Application
metadata:
  name: %[1]s
  namespace: argocd
  annotations:
    notifications.argoproj.io/subscribe.on-sync-succeeded.slack: deploy-notifications
    notifications.argoproj.io/subscribe.on-sync-failed.slack: deploy-alerts
    notifications.argoproj.io/subscribe.on-health-degraded.slack: deploy-alerts
  finalizers: [resources-finalizer.argocd.argoproj.io]
spec:
  project: default
  source: {repoURL: %[2]q, path: app, targetRevision: main}
  destination: {name: in-cluster, namespace: %[1]s}
  syncPolicy: {automated: {}, syncOptions: [CreateNamespace=true]}
`, name, repo.URL())
	if _, err := s.API.Apply(within(t, waitLimit), manifest); err != nil {
		t.Fatal(err)
	}
	settled(t, name)
	sent := func(n int) []notifyhosts.Received {
		t.Helper()
		got, err := hosts.Wait(within(t, waitLimit), "slack", "deploy-notifications", n)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	t.Run("NOTI-01 NOTI-06 NOTI-09 NOTI-13 the guide's settings, applied as they are, send one message to Slack for a sync that succeeds", func(t *testing.T) {
		got := sent(1)
		if body := string(got[0].Body); !strings.Contains(body, `"title":"announced - Sync Succeeded"`) && !strings.Contains(body, `"title": "announced - Sync Succeeded"`) ||
			!strings.Contains(body, "https://argocd.example.com/applications/announced") {
			t.Errorf("%s", body)
		}
	})
	t.Run("NOTI-05 FT-W4 a restart of the hub sends none again, and each further sync sends one", func(t *testing.T) {
		delivered(t, name, "delivered", 1)
		if err := errors.Join(s.Hub.Kill(), s.Hub.Start(within(t, waitLimit))); err != nil {
			t.Fatal(err)
		}
		if _, err := repo.Commit(within(t, waitLimit), "two", map[string]string{"app/a.yaml": configMap("a", "two")}); err != nil {
			t.Fatal(err)
		}
		cli(t, "app", "get", name, "--refresh")
		live(t, name, "a", value("two"))
		condition(t, name, stack.Settled)
		sent(2)
		cli(t, "app", "sync", name)
		if got := sent(3); len(got) != 3 {
			t.Errorf("%d messages", len(got))
		}
		if alerts := hosts.Of("slack", "deploy-alerts"); len(alerts) != 0 {
			t.Errorf("%+v", alerts)
		}
	})
}
