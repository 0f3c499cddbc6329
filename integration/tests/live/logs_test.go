package live_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capstan-cd/capstan/integration/rigs/poll"
)

func TestLogs(t *testing.T) {
	names := deploy(t, "web", 2)
	first, second := names[0], names[1]
	begun := time.Now().Add(-time.Hour).Truncate(time.Second)
	app := kubelets.Container("web", first, "app")
	for i := range 10 {
		app.SayAt(begun.Add(time.Duration(i)*time.Minute), fmt.Sprintf("line %d", i))
	}
	kubelets.Container("web", second, "side").SayAt(begun.Add(90*time.Second), "Error: it is slow", "WARNING: ünïcode <b>&amp;\x1b[31m")
	one := "podName=" + first + "&resourceNamespace=web&container=app"
	at := func(minutes int) string {
		return url.QueryEscape(begun.Add(time.Duration(minutes) * time.Minute).UTC().Format(time.RFC3339))
	}
	t.Run("API-11 UI-13 one container, with tail, since, until and filter", func(t *testing.T) {
		for query, want := range map[string][]string{
			one + "&tailLines=2":                                        {"line 8", "line 9"},
			one + "&sinceTime=" + at(7):                                 {"line 7", "line 8", "line 9"},
			one + "&untilTime=" + at(1):                                 {"line 0", "line 1"},
			one + "&sinceTime=" + at(3) + "&untilTime=" + at(4):         {"line 3", "line 4"},
			one + "&filter=LINE+3":                                      {"line 3"},
			one + "&filter=LINE+3&matchCase=true":                       nil,
			one + "&filter=%21line&tailLines=3":                         nil,
			one + "&filter=%21line+9&tailLines=2":                       {"line 8"},
			"podName=" + second + "&resourceNamespace=web&filter=error": {"Error: it is slow"},
		} {
			got, status := admin().logs(within(t), t, "web", query)
			if status != http.StatusOK {
				t.Fatalf("%s: %d %s", query, status, got.refused)
			}
			lines, notice := got.rest(t)
			if diff := cmp.Diff(want, lines); diff != "" || notice != "" {
				t.Errorf("%s: %s (-want +got):\n%s", query, notice, diff)
			}
		}
	})
	t.Run("API-11 UI-13 the pods of an owner, and of the application, merged by time", func(t *testing.T) {
		want := []string{"line 0", "line 1", "Error: it is slow", "WARNING: ünïcode <b>&amp;\x1b[31m", "line 2", "line 3", "line 4", "line 5", "line 6", "line 7", "line 8", "line 9"}
		for _, query := range []string{"", "group=apps&kind=Deployment&resourceName=web&resourceNamespace=web"} {
			got, status := admin().logs(within(t), t, "web", query)
			if status != http.StatusOK {
				t.Fatalf("%s: %d %s", query, status, got.refused)
			}
			lines, notice := got.rest(t)
			if diff := cmp.Diff(want, lines); diff != "" || notice != "" {
				t.Errorf("%q: %s (-want +got):\n%s", query, notice, diff)
			}
		}
	})
	t.Run("API-11 of the path of a pod, as events and as text with timestamps", func(t *testing.T) {
		for accept, want := range map[string]string{
			"text/plain":        begun.UTC().Format(time.RFC3339) + " line 0\n",
			"text/event-stream": `data: {"container":"app","content":"line 0",`,
		} {
			res, err := admin().get(within(t), "/api/v1/applications/argocd/web/pods/"+first+"/logs?resourceNamespace=web&container=app&timestamps=true", accept)
			if err != nil {
				t.Fatal(err)
			}
			if text := body(t, res); !strings.HasPrefix(text, want) || !strings.HasPrefix(res.Header.Get("Content-Type"), accept) {
				t.Errorf("%s: %s, %s", accept, res.Header.Get("Content-Type"), text)
			}
		}
	})
	t.Run("API-11 UI-13 of the instance before", func(t *testing.T) {
		c := kubelets.Container("web", second, "app")
		c.Say("panic: out of coffee")
		c.Restart()
		c.Say("started again")
		got, _ := admin().logs(within(t), t, "web", "podName="+second+"&resourceNamespace=web&container=app&previous=true")
		if lines, _ := got.rest(t); cmp.Diff([]string{"panic: out of coffee"}, lines) != "" {
			t.Errorf("got %q", lines)
		}
	})
	t.Run("API-11 what is not there is named in the error", func(t *testing.T) {
		for query, want := range map[string]struct {
			status int
			says   string
		}{
			"podName=" + first + "&resourceNamespace=web&container=none":          {http.StatusNotFound, "app, side"},
			"podName=nobody&resourceNamespace=web":                                {http.StatusNotFound, "nobody"},
			"kind=Deployment&resourceName=other&group=apps&resourceNamespace=web": {http.StatusNotFound, "other"},
			"podName=" + first + "&kind=Pod":                                      {http.StatusBadRequest, "podName"},
			"tailLines=-1":                                                        {http.StatusBadRequest, "tailLines"},
		} {
			got, status := admin().logs(within(t), t, "web", query)
			if status != want.status || !strings.Contains(got.refused, want.says) {
				t.Errorf("%s: %d %s", query, status, got.refused)
			}
		}
	})
	t.Run("CLI-04 app logs shows them, with the names of pods", func(t *testing.T) {
		out, err := s.API.CLI(within(t), "", "app", "logs", "web", "--kind", "Pod", "--resource-name", first, "--namespace", "web", "-c", "app", "--tail", "1")
		if err != nil || out != "line 9\n" {
			t.Errorf("%q, %v", out, err)
		}
		out, err = s.API.CLI(within(t), "", "app", "logs", "web", "--filter", "slow")
		if err != nil || out != "["+second+" side] Error: it is slow\n" {
			t.Errorf("%q, %v", out, err)
		}
	})
	t.Run("API-21 no more pods than the setting says", func(t *testing.T) {
		set(t, "argocd-cm", "server.maxPodLogsToRender", "1")
		defer set(t, "argocd-cm", "server.maxPodLogsToRender", nil)
		got, status := admin().logs(within(t), t, "web", "")
		if status != http.StatusTooManyRequests || !strings.Contains(got.refused, "2 pods") {
			t.Errorf("%d %s", status, got.refused)
		}
		if got, status := admin().logs(within(t), t, "web", one); status != http.StatusOK {
			t.Errorf("one pod: %d %s", status, got.refused)
		}
	})
}

func TestFollowLogs(t *testing.T) {
	name := deploy(t, "live", 1)[0]
	c := kubelets.Container("live", name, "app")
	c.Say("hello")
	query := "podName=" + name + "&resourceNamespace=live&container=app&follow=true"
	t.Run("API-11 500 readers of a pod cost the agent one stream of the kubelet", func(t *testing.T) {
		const readers, each = 500, 25 // of one token
		var tokens []user
		for i := range readers / each {
			tokens = append(tokens, token(t, fmt.Sprintf("reader-%d", i)))
		}
		ctx, cancel := context.WithCancel(within(t))
		defer cancel()
		streams := make([]*stream, readers)
		var all sync.WaitGroup
		for i := range streams {
			all.Go(func() {
				st, status := tokens[i%len(tokens)].logs(ctx, t, "live", query)
				if status != http.StatusOK {
					t.Errorf("reader %d: %d %s", i, status, st.refused)
					return
				}
				st.until(t, "hello")
				streams[i] = st
			})
		}
		all.Wait()
		if t.Failed() {
			return
		}
		c.Say("to everybody")
		for _, st := range streams {
			all.Go(func() { st.until(t, "to everybody") })
		}
		all.Wait()
		if n := kubelets.Following("live", name, "app"); n != 1 {
			t.Errorf("the kubelet has %d streams", n)
		}
		cancel()
		if err := poll.Until(within(t), func(context.Context) error {
			if n := kubelets.Following("live", name, "app"); n != 0 {
				return fmt.Errorf("the kubelet has %d streams without a reader", n)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	})
	t.Run("RBAC-08 SEC-F3 without the right there are no logs, and they end when it goes", func(t *testing.T) {
		u := newUser(t, "reader", "applications, get, default/live")
		if got, status := u.logs(within(t), t, "live", query); status != http.StatusForbidden || !strings.Contains(got.refused, "logs") {
			t.Fatalf("%d %s", status, got.refused)
		}
		if got, status := u.logs(within(t), t, "web", ""); status != http.StatusNotFound {
			t.Errorf("SEC-G2 an application that they may not see: %d %s", status, got.refused)
		}
		allow(t, "reader", "applications, get, default/live", "logs, get, default/live")
		st, status := u.logs(within(t), t, "live", query)
		if status != http.StatusOK {
			t.Fatalf("%d %s", status, st.refused)
		}
		c.Say("seen")
		st.until(t, "seen")
		allow(t, "reader", "applications, get, default/live")
		if _, notice := st.rest(t); !strings.Contains(notice, "right") {
			t.Errorf("it ends with %q", notice)
		}
		var log struct {
			Items []struct{ Action, Resource, Result, Reason, Actor string }
		}
		if err := s.API.Do(within(t), http.MethodGet, "/api/v1/audit?limit=500", nil, &log); err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		for _, r := range log.Items {
			if r.Resource == "logs" {
				seen[r.Action+" "+r.Result] = true
			}
		}
		if !seen["get denied"] || !seen["stream-begin allowed"] || !seen["stream-end allowed"] {
			t.Errorf("INV-10 the audit log has %v", seen)
		}
	})
	t.Run("SEC-E7 SEC-F2 a stream ends when the account of its reader does", func(t *testing.T) {
		u := newUser(t, "leaver", "applications, get, default/live", "logs, get, default/live")
		st, _ := u.logs(within(t), t, "live", query)
		c.Say("still here")
		st.until(t, "still here")
		if err := s.API.Do(within(t), http.MethodDelete, "/api/v1/users/leaver", nil, nil); err != nil {
			t.Fatal(err)
		}
		if _, notice := st.rest(t); !strings.Contains(notice, "sign-in") {
			t.Errorf("it ends with %q", notice)
		}
	})
	t.Run("API-11 a pod that is deleted ends the stream", func(t *testing.T) {
		st, _ := admin().logs(within(t), t, "live", query+"&tailLines=1")
		c.Say("last words")
		st.until(t, "last words")
		c.End()
		if err := s.Clusters["in-cluster"].Dynamic().Resource(podKind).Namespace("live").Delete(within(t), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if lines, notice := st.rest(t); len(lines) > 0 || notice != "" {
			t.Errorf("%q, %s", lines, notice)
		}
	})
}
