package progress

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/shared/apimodel"
)

func TestLines(t *testing.T) {
	var tree apimodel.Tree
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(tree)
	}))
	defer server.Close()
	web := apimodel.Node{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "n", Name: "web", Managed: true, Status: "OutOfSync", Health: "Healthy"}
	other := apimodel.Node{Version: "v1", Kind: "ConfigMap", Namespace: "n", Name: "c", Managed: true, Status: "Synced"}
	app := func(phase, message string) (x apimodel.Application) {
		x.Metadata.Namespace, x.Metadata.Name = "argocd", "shop"
		x.Status.OperationState = apimodel.OperationState{Id: "1", Kind: "sync", Phase: apimodel.OperationPhase(phase), Message: message}
		return x
	}
	var out bytes.Buffer
	p := To(&out, client.New(server.URL, nil))
	p.now = func() time.Time { return time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC) }
	see := func(x apimodel.Application, nodes ...apimodel.Node) []string {
		tree.Nodes = nodes
		out.Reset()
		p.See(t.Context(), x, true)
		return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	}
	t.Run("UX-CLI-3 one line for each object and operation that changes, plain where it is piped", func(t *testing.T) {
		if got := see(app("Succeeded", "done"), web, other); strings.Join(got, "") != "" {
			t.Errorf("what was there before: %q", got)
		}
		web.Status, web.Health, web.Message = "Synced", "Progressing", "1 of 3\nare \x1b[31mready"
		x := app("Running", "applies")
		x.Status.OperationState.Id = "2"
		want := []string{"12:00:00  shop  sync  Running  applies", "12:00:00  shop  Deployment n/web  Synced Progressing  1 of 3 are \u241b[31mready"}
		if got := see(x, web, other); strings.Join(got, "|") != strings.Join(want, "|") {
			t.Errorf("%q", got)
		}
		if got := see(x, web, other); strings.Join(got, "") != "" {
			t.Errorf("nothing has changed: %q", got)
		}
		if got := see(x, web, other, apimodel.Node{Version: "v1", Kind: "Pod", Namespace: "n", Name: "web-1", Health: "Healthy"}); len(got) != 1 || !strings.HasSuffix(got[0], "Pod n/web-1  Healthy") {
			t.Errorf("a new object: %q", got)
		}
	})
}
