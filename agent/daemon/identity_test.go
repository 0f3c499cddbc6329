package daemon

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/agent/link"
)

func TestLogIdentity(t *testing.T) {
	t.Parallel()
	id := link.Identity{AgentID: "a1", ClusterName: "edge"}
	for name, c := range map[string]struct {
		before link.Identity
		token  bool
		want   string
	}{
		"OBS-08 an agent that has just enrolled says so":          {link.Identity{}, true, `msg="agent enrolled"`},
		"OBS-08 one whose token was used before does not":         {id, true, `msg="identity taken from Secret capstan-system/capstan-agent-state; the join token is not used"`},
		"OBS-08 nor does one without a token":                     {id, false, `msg="identity taken from Secret capstan-system/capstan-agent-state"`},
		"OBS-08 one that another token has made a new agent does": {link.Identity{AgentID: "a0"}, true, `msg="agent enrolled"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			a := &agent{Config: Config{Namespace: "capstan-system", Log: slog.New(slog.NewTextHandler(&log, nil))}}
			a.logIdentity(t.Context(), c.before, id, c.token)
			if !strings.Contains(log.String(), c.want) {
				t.Errorf("%s does not say %s", log.String(), c.want)
			}
		})
	}
}
