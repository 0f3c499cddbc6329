package notify

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func sampleApp() hub.Application {
	since := noon.Add(-time.Hour)
	return hub.Application{
		ID:      "018f3c6e-0000-7000-8000-000000000001",
		Meta:    hub.Meta{Namespace: "argocd", Name: "web", Labels: map[string]string{"team": "shop"}, Annotations: map[string]string{}, CreatedAt: since},
		Project: "shop",
		Spec:    json.RawMessage(`{"project":"shop","source":{"repoURL":"https://bot:hunter2@git.example.com/team/web.git","path":"app"},"destination":{"name":"prod","namespace":"web"}}`),
		Status:  hub.ApplicationStatus{Sync: hub.Synced, Health: hub.Healthy, HealthSince: &since, Revision: "c0ffee"},
	}
}

func sampleOperation(id hub.OperationID, revision string) hub.Operation {
	start, end := noon.Add(-time.Minute), noon
	return hub.Operation{
		ID: id, Kind: hub.SyncOperation, Revision: revision, Phase: hub.Succeeded, Message: "done",
		OperationTimes: hub.OperationTimes{CreatedAt: start, StartedAt: &start, FinishedAt: &end},
	}
}

// subscribed is the sample with subscriptions: trigger and service, recipients.
func subscribed(to ...string) hub.Application {
	a := sampleApp()
	for i := 0; i < len(to); i += 2 {
		a.Annotations["notifications.argoproj.io/subscribe."+to[i]] = to[i+1]
	}
	return a
}

// reported is the messages of a decision, as trigger to service:recipient.
func reported(d Decision) []string {
	out := []string{}
	for _, m := range d.Messages {
		out = append(out, m.Trigger+" to "+m.To.Service+":"+m.To.Recipient)
	}
	return out
}

func TestTransitions(t *testing.T) {
	t.Parallel()
	config := Read(map[string]string{
		"service.slack":   "token: $slack-token\n",
		"trigger.on-sync": "- when: app.status.operationState.phase in ['Succeeded']\n  send: [app-sync-succeeded]\n",
		"trigger.on-once": "- when: app.status.operationState?.phase == 'Succeeded'\n  oncePer: app.status.operationState.syncResult.revision\n  send: [app-deployed]\n",
	})
	if len(config.Problems) > 0 {
		t.Fatal(config.Problems)
	}
	ops := map[hub.OperationID]hub.Operation{"o1": sampleOperation("o1", "r1"), "o2": sampleOperation("o2", "r1"), "o3": sampleOperation("o3", "r2")}
	// Each change comes a minute after the one before.
	clock := noon
	phases := func(id hub.OperationID, phases ...hub.Phase) (out []hub.Transition) {
		for _, p := range phases {
			out = append(out, hub.Transition{Operation: id, Phase: p, At: noon})
		}
		return out
	}
	health := func(all ...hub.HealthStatus) (out []hub.Transition) {
		for _, h := range all {
			at := noon
			out = append(out, hub.Transition{Health: h, HealthSince: &at, At: noon})
		}
		return out
	}
	all := []hub.Phase{hub.Pending, hub.Running, hub.Succeeded}
	for name, c := range map[string]struct {
		app    hub.Application
		events []hub.Transition
		want   []string
	}{
		"NOTI-04 NOTI-05 each sync that succeeds makes one message": {
			subscribed("on-sync.slack", "dev"), slices.Concat(phases("o1", all...), phases("o2", all...)), []string{"on-sync to slack:dev", "on-sync to slack:dev"},
		},
		"NOTI-05 what does not change the condition makes none": {
			subscribed("on-sync.slack", "dev"), slices.Concat(phases("o1", all...), health(hub.Progressing, hub.Healthy, hub.Degraded)), []string{"on-sync to slack:dev"},
		},
		"NOTI-05 oncePer makes one for each of its values": {
			subscribed("on-once.slack", "dev"), slices.Concat(phases("o1", all...), phases("o2", all...), phases("o3", all...)), []string{"on-once to slack:dev", "on-once to slack:dev"},
		},
		"pain 35 an application that is degraded and healthy again makes two": {
			subscribed("on-health-degraded.slack", "dev", "on-health-recovered.slack", "dev"), health(hub.Progressing, hub.Degraded, hub.Progressing, hub.Healthy, hub.Progressing, hub.Healthy),
			[]string{"on-health-degraded to slack:dev", "on-health-recovered to slack:dev"},
		},
		"NOTI-09 each of several recipients gets one": {
			subscribed("on-sync.slack", "dev; ops"), phases("o1", all...), []string{"on-sync to slack:dev", "on-sync to slack:ops"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for i := range c.events {
				c.events[i].ID = int64(i + 1)
				c.events[i].At = clock.Add(time.Duration(i) * time.Minute)
			}
			whole := config.Decide(Input{App: c.app, Known: &hub.NotifiedState{Health: hub.Healthy, Sync: hub.Synced}, Transitions: c.events, Operations: ops})
			if diff := cmp.Diff(c.want, reported(whole)); diff != "" || len(whole.Problems) > 0 {
				t.Errorf("%s%v", diff, whole.Problems)
			}
			// One after the other, as if the hub were restarted between them.
			state := &hub.NotifiedState{Health: hub.Healthy, Sync: hub.Synced}
			var single []string
			for _, e := range c.events {
				d := config.Decide(Input{App: c.app, Known: state, Transitions: []hub.Transition{e}, Operations: ops})
				single, state = append(single, reported(d)...), &d.State
			}
			if diff := cmp.Diff(c.want, single); diff != "" {
				t.Errorf("one by one: %s", diff)
			}
		})
	}
	t.Run("pain 35 health that changes for a moment makes none", func(t *testing.T) {
		t.Parallel()
		events := health(hub.Degraded, hub.Healthy, hub.Degraded, hub.Healthy)
		for i := range events {
			events[i].ID, events[i].At = int64(i+1), noon.Add(time.Duration(i)*time.Second)
		}
		if due := Unsettled(events, noon.Add(4*time.Second)); !due.Equal(noon.Add(6 * time.Second)) {
			t.Errorf("decided at %s", due)
		}
		if due := Unsettled(events, noon.Add(20*time.Second)); !due.IsZero() {
			t.Errorf("decided at %s", due)
		}
		d := config.Decide(Input{App: subscribed("on-health-degraded.slack", "dev", "on-health-recovered.slack", "dev"), Known: &hub.NotifiedState{Health: hub.Healthy}, Transitions: events})
		if len(d.Messages) > 0 {
			t.Errorf("%q", reported(d))
		}
	})
	t.Run("NOTI-05 what Argo CD has sent of an imported application is not sent again, and the next is", func(t *testing.T) {
		t.Parallel()
		a := subscribed("on-sync.slack", "dev", "on-once.slack", "dev")
		// The keys have Argo CD's hash of the condition.
		a.Annotations[NotifiedAnnotation] = `{"on-sync:` + config.Triggers["on-sync"].Run(nil)[0].Key + `:slack:dev":1746090000,"r1:on-once:` + config.Triggers["on-once"].Run(nil)[0].Key + `:slack:dev":1746090000}`
		op := ops["o1"]
		a.Status.Operation = &op
		first := config.Decide(Input{App: a, Transitions: []hub.Transition{{ID: 1, Sync: hub.Synced, At: noon}}})
		if len(first.Messages) > 0 {
			t.Errorf("%q", reported(first))
		}
		next := config.Decide(Input{App: a, Known: &first.State, Transitions: append(phases("o3", all...), health(hub.Healthy)...), Operations: ops})
		if diff := cmp.Diff([]string{"on-once to slack:dev", "on-sync to slack:dev"}, reported(next)); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("NOTI-05 conditions have the names of Argo CD's annotation", func(t *testing.T) {
		t.Parallel()
		trigger, err := ReadTrigger("x", "- when: app.status.sync.status == 'Unknown'\n  send: [a]\n")
		if err != nil {
			t.Fatal(err)
		}
		if got := trigger.Run(nil)[0].Key; got != "[0].6SzWb05EK-0v90hwjyytTbN7S6A" {
			t.Errorf("%q", got)
		}
	})
	t.Run("NOTI-09 a trigger that is not there is a problem, and stops no other", func(t *testing.T) {
		t.Parallel()
		d := config.Decide(Input{App: subscribed("on-nothing.slack", "dev", "on-sync.slack", "dev"), Known: &hub.NotifiedState{}, Transitions: phases("o1", all...), Operations: ops})
		if len(d.Messages) != 1 || len(d.Problems) != 1 || !strings.Contains(d.Problems[0], "on-nothing") {
			t.Errorf("%q, %q", reported(d), d.Problems)
		}
	})
}

func TestCatalogue(t *testing.T) {
	t.Parallel()
	config := Read(map[string]string{"service.slack": "token: x\n", "service.email": "host: x\n", "service.teams": "recipientUrls: {}\n"})
	names := []string{"on-created", "on-deleted", "on-deployed", "on-health-degraded", "on-sync-failed", "on-sync-running", "on-sync-status-unknown", "on-sync-succeeded"}
	for _, name := range names {
		t.Run("NOTI-14 the trigger "+name+" has templates for every kind of service, which can be made", func(t *testing.T) {
			t.Parallel()
			trigger, ok := config.Triggers[name]
			if !ok || !config.BuiltInTrigger(name) {
				t.Fatal("it is not there")
			}
			op := sampleOperation("o", "c0ffee00c0ffee")
			op.Message = `one object "quoted" failed`
			a := sampleApp()
			a.Status.Operation = &op
			vars := config.Present(Input{App: a})
			for _, c := range trigger {
				for _, s := range config.Services {
					message, err := Render([]Template{config.Templates[c.Send[0]]}, s, vars.Template(s, "dev"))
					if err != nil {
						t.Fatal(err)
					}
					text, _ := json.Marshal(message)
					if strings.Contains(string(text), "<no value>") || strings.Contains(string(text), "hunter2") {
						t.Errorf("%s", text)
					}
					if part, ok := message["slack"].(map[string]any); ok && !json.Valid([]byte(part["attachments"].(string))) { //nolint:forcetypeassert // the catalogue's own
						t.Errorf("no JSON: %s", part["attachments"])
					}
				}
			}
		})
	}
	t.Run("NOTI-14 a tenant's own trigger takes the place of one of the catalogue", func(t *testing.T) {
		t.Parallel()
		own := Read(map[string]string{"trigger.on-deployed": "- when: 'false'\n  send: [x]\n"})
		if own.BuiltInTrigger("on-deployed") || len(own.Triggers["on-deployed"]) != 1 || own.Triggers["on-deployed"][0].When != "false" {
			t.Errorf("%+v", own.Triggers["on-deployed"])
		}
	})
	for name, c := range map[string]struct {
		healthSince time.Duration // after the end of the operation
		health      hub.HealthStatus
		phase       hub.Phase
		want        bool
	}{
		"healthy after the sync":              {time.Second, hub.Healthy, hub.Succeeded, true},
		"healthy half a minute before it":     {-30 * time.Second, hub.Healthy, hub.Succeeded, true},
		"healthy since long before its start": {-time.Hour, hub.Healthy, hub.Succeeded, true},
		"still progressing":                   {time.Second, hub.Progressing, hub.Succeeded, false},
		"the sync failed":                     {time.Second, hub.Healthy, hub.Failed, false},
	} {
		t.Run("NOTI-15 deployed: "+name, func(t *testing.T) {
			t.Parallel()
			a := sampleApp()
			op := sampleOperation("o", "r1")
			start := op.FinishedAt.Add(-10 * time.Minute)
			op.StartedAt, op.Phase = &start, c.phase
			since := op.FinishedAt.Add(c.healthSince)
			a.Status.Operation, a.Status.Health, a.Status.HealthSince = &op, c.health, &since
			got := config.Triggers["on-deployed"].Run(config.Present(Input{App: a}).Conditions())[0]
			if got.Triggered != c.want || got.Problem != "" || c.want && got.OncePer != "r1" {
				t.Errorf("%+v", got)
			}
		})
	}
	t.Run("NOTI-15 deployed: healthy since some minutes before the end, but after the start", func(t *testing.T) {
		t.Parallel()
		a := sampleApp()
		op := sampleOperation("o", "r1")
		start, since := op.FinishedAt.Add(-10*time.Minute), op.FinishedAt.Add(-5*time.Minute)
		op.StartedAt, a.Status.Operation, a.Status.HealthSince = &start, &op, &since
		if got := config.Triggers["on-deployed"].Run(config.Present(Input{App: a}).Conditions())[0]; got.Triggered {
			t.Errorf("%+v", got)
		}
	})
}

func TestSubscriptions(t *testing.T) {
	t.Parallel()
	config := Read(map[string]string{
		"service.slack": "token: x\n", "defaultTriggers": "[on-sync-failed, on-deployed]\n", "defaultTriggers.email": "[on-health-degraded]\n",
		"subscriptions": "- recipients: [slack:all, email:a@example.com]\n  triggers: [on-created]\n  selector: team=shop,!quiet\n- recipients: [webhook]\n",
	})
	if len(config.Problems) > 0 {
		t.Fatal(config.Problems)
	}
	for name, c := range map[string]struct {
		annotations, project map[string]string
		labels               map[string]string
		want                 map[string][]Destination
	}{
		"NOTI-09 an annotation of the application, and one of its project": {
			map[string]string{"notifications.argoproj.io/subscribe.on-sync-succeeded.slack": "a;b"}, map[string]string{"notifications.argoproj.io/subscribe.on-sync-succeeded.slack": "b;c"}, nil,
			map[string][]Destination{"on-sync-succeeded": {{"slack", "a"}, {"slack", "b"}, {"slack", "c"}}},
		},
		"NOTI-12 without a trigger the default ones count, and those of the service before": {
			map[string]string{"notifications.argoproj.io/subscribe.slack": "a", "notifications.argoproj.io/subscribe.email": "x@example.com"}, nil, nil,
			map[string][]Destination{"on-sync-failed": {{"slack", "a"}}, "on-deployed": {{"slack", "a"}}, "on-health-degraded": {{"email", "x@example.com"}}},
		},
		"NOTI-09 a service without recipients": {
			map[string]string{"notifications.argoproj.io/subscribe.on-deployed.github": ""}, nil, nil, map[string][]Destination{"on-deployed": {{"github", ""}}},
		},
		"NOTI-10 several subscriptions in one annotation": {
			map[string]string{"notifications.argoproj.io/subscriptions": "- trigger: [on-created, on-deleted]\n  destinations:\n  - {service: slack, recipients: [a, b]}\n  - {service: github}\n- destinations: [{service: email, recipients: [y@example.com]}]\n"}, nil, nil,
			map[string][]Destination{
				"on-created": {{"slack", "a"}, {"slack", "b"}, {"github", ""}}, "on-deleted": {{"slack", "a"}, {"slack", "b"}, {"github", ""}}, "on-health-degraded": {{"email", "y@example.com"}},
			},
		},
		"NOTI-11 subscriptions of the settings choose by labels": {
			nil, nil, map[string]string{"team": "shop"}, map[string][]Destination{"on-created": {{"slack", "all"}, {"email", "a@example.com"}}},
		},
		"NOTI-11 and leave others out": {nil, nil, map[string]string{"team": "shop", "quiet": "yes"}, map[string][]Destination{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := sampleApp()
			a.Annotations, a.Labels = c.annotations, c.labels
			got, problems := config.Subscribers(a, &hub.Project{Meta: hub.Meta{Annotations: c.project}})
			// Those that name no trigger hear of the default ones of everything.
			for trigger, list := range got {
				got[trigger] = slices.DeleteFunc(list, func(d Destination) bool { return d.Service == "webhook" })
				if len(got[trigger]) == 0 {
					delete(got, trigger)
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" || len(problems) > 0 {
				t.Errorf("%s%q", diff, problems)
			}
		})
	}
	t.Run("NOTI-10 an annotation that cannot be read is a problem, and stops no other", func(t *testing.T) {
		t.Parallel()
		a := subscribed("on-created.slack", "a")
		a.Annotations["notifications.argoproj.io/subscriptions"] = "nonsense: ["
		got, problems := config.Subscribers(a, nil)
		if len(problems) != 1 || len(got["on-created"]) == 0 {
			t.Errorf("%v, %q", got, problems)
		}
	})
}

func TestKeys(t *testing.T) {
	t.Parallel()
	for key, c := range map[string]struct {
		value string
		good  bool
	}{
		"NOTI-02 service.slack":          {"token: $slack-token\n", true},
		"NOTI-02 service.webhook.ci":     {"url: https://ci.example.com\n", true},
		"NOTI-02 service.carrier-pigeon": {"loft: x\n", false},
		"NOTI-02 service.webhook.a.b":    {"url: x\n", false},
		"NOTI-03 service.slack":          {"- a list\n", false},
		"NOTI-04 trigger.x":              {"- when: app.(\n  send: [a]\n", false},
		"NOTI-06 template.x":             {"message: '{{.app'\n", false},
		"NOTI-06 template.y":             {"message: '{{.app.metadata.name}}'\nwebhook:\n  ci: {method: POST, path: '/{{.recipient}}', body: '{}'}\n", true},
		"NOTI-11 subscriptions":          {"- recipients: [slack:a]\n  selector: 'a b c'\n", false},
		"NOTI-12 defaultTriggers":        {"[a, b]\n", true},
		"NOTI-12 defaultTriggers.slack":  {"a: b\n", false},
		"NOTI-13 context":                {"argocdUrl: https://cd.example.com\n", true},
		"NOTI-01 nonsense":               {"x", false},
	} {
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			_, name, _ := strings.Cut(key, " ")
			if err := Check(name, c.value); (err == nil) != c.good || err != nil && fault.KindOf(err) == fault.Internal {
				t.Errorf("Check() = %v", err)
			}
		})
	}
}
