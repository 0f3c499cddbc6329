package daemon

import (
	"os"
	"path/filepath"
	"testing"
)

func TestLimitsOfRequests(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{name: c, cluster: {server: https://127.0.0.1:1}}]\ncontexts: [{name: c, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {token: x}}]\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	conf, err := Config{Kubeconfig: file}.rest()
	if err != nil {
		t.Fatal(err)
	}
	t.Run("CLU-18 the agent has no limit of its own: the API server's fairness is the limit", func(t *testing.T) {
		if conf.QPS != -1 || conf.Burst != -1 {
			t.Errorf("%v requests per second, %d at once", conf.QPS, conf.Burst)
		}
	})
}
