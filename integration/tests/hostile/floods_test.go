package hostile_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/capstan-cd/capstan/integration/rigs/gitserver"
	"github.com/capstan-cd/capstan/integration/rigs/stack"
)

// Request bodies that never end are ended by the hub, on each way in that
// needs no sign-in.
func TestBodiesThatNeverEnd(t *testing.T) {
	host := strings.TrimPrefix(s.URL(), "http://")
	var open []net.Conn
	for _, path := range []string{"/api/v1/login", "/api/webhook"} {
		for range 30 {
			c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 11, 1)}}).DialContext(within(t, waitLimit), "tcp", host)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
			if _, err := fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{", path, host); err != nil {
				t.Fatal(err)
			}
			open = append(open, c)
		}
	}
	t.Run("SEC-I5 FT-W1 other requests are answered meanwhile", func(t *testing.T) {
		for range 20 {
			if err := s.API.Do(within(t, waitLimit), http.MethodGet, "/api/v1/applications", nil, nil); err != nil {
				t.Error(err)
			}
		}
	})
	t.Run("SEC-I5 FT-W1 the hub ends each of them", func(t *testing.T) {
		for _, c := range open {
			if err := c.SetReadDeadline(time.Now().Add(waitLimit)); err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, c); err != nil && os.IsTimeout(err) { // it returns once the hub closes
				t.Fatal("a request whose body never ends is kept")
			}
		}
	})
}

// A Git server that sends nonsense is named to its tenant, and is no error of
// the hub.
func TestAHostileGitServer(t *testing.T) {
	for name, answer := range map[string]string{
		"a length that is none": "001e# service=git-upload-pack\n0000zzzz\x00\xff\xfe",
		"no listing":            "001e# service=git-upload-pack\n00000015this is no listing0000",
		"no end":                strings.Repeat("x", 1<<20),
	} {
		t.Run("SEC-B12 "+name+" is one sentence on its application, and no error in the hub's log", func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
				_, _ = io.WriteString(w, answer)
			}))
			t.Cleanup(server.Close)
			own := "git-" + strings.ReplaceAll(name, " ", "-")
			if _, err := evil.Apply(within(t, waitLimit), app(own, server.URL+"/"+own, ".")); err != nil {
				t.Fatal(err)
			}
			x, err := evil.Wait(within(t, waitLimit), own, func(x stack.App) error {
				if len(x.Status.Conditions) == 0 {
					return fmt.Errorf("no condition yet")
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if says := x.Status.Conditions[0].Message; !strings.Contains(says, "127.0.0.1") || strings.Contains(says, "on our side") {
				t.Errorf("condition %q", says)
			}
			log, err := os.ReadFile(s.Hub.LogFile())
			if err != nil {
				t.Fatal(err)
			}
			for line := range bytes.Lines(log) {
				if bytes.Contains(line, []byte("ERROR")) && bytes.Contains(line, []byte(own)) {
					t.Errorf("the hub's log has %s", line)
				}
			}
		})
	}
}

var secrets = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}

// Manifests that would replace the agent that applies them, its identity or
// its rights are refused by it.
func TestManifestsAgainstTheAgent(t *testing.T) {
	const ns, name = "capstan-system", "capstan-agent"
	for what, manifest := range map[string]string{
		"identity": "apiVersion: v1\nkind: Secret\nmetadata: {name: capstan-agent-state, namespace: " + ns + "}\nstringData: {identity: stolen}\n",
		"account":  "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: " + name + ", namespace: " + ns + "}\n",
		"rights": "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {name: '" + ns + ":" + name + "'}\n" +
			"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}\n",
	} {
		t.Run("SEC-K9 its "+what, func(t *testing.T) {
			ctx := within(t, 2*waitLimit)
			repo, err := s.Repository(ctx, "against-"+what, gitserver.RepositoryOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := repo.Commit(ctx, "one", map[string]string{"app/a.yaml": manifest}); err != nil {
				t.Fatal(err)
			}
			text := strings.Replace(app("against-"+what, repo.URL(), "app"), "automated: {prune: true, selfHeal: true}", "automated: {}, retry: {limit: 0}", 1)
			if _, err := s.API.Apply(ctx, text); err != nil {
				t.Fatal(err)
			}
			if _, err := s.API.Wait(ctx, "against-"+what, func(x stack.App) error {
				gotText, err := json.Marshal(x.Status)
				if err == nil && !bytes.Contains(gotText, []byte("the agent's own")) {
					err = fmt.Errorf("status %.1500s", gotText)
				}
				return err
			}); err != nil {
				t.Fatal(err)
			}
		})
	}
	t.Run("SEC-K9 it is still connected, with the identity that it had", func(t *testing.T) {
		if err := s.Connected(within(t, waitLimit), "in-cluster"); err != nil {
			t.Error(err)
		}
		o, err := s.Clusters["in-cluster"].Dynamic().Resource(secrets).Namespace(ns).Get(t.Context(), "capstan-agent-state", metav1.GetOptions{})
		if err != nil || strings.Contains(fmt.Sprint(o.Object["data"]), "c3RvbGVu") {
			t.Errorf("%v, %v", err, o)
		}
	})
}
