package generate_test

import (
	"context"
	"io/fs"
	"net/http"
	"testing/fstest"

	"github.com/capstan-cd/capstan/hub/generate"
	"github.com/capstan-cd/capstan/hub/generate/scm"
	"github.com/capstan-cd/capstan/shared/fault"
)

// inputs are those of a test. An error is that of all of them.
type inputs struct {
	clusters  []generate.Cluster
	files     fstest.MapFS
	decisions generate.Decisions
	plugin    func(body []byte) ([]byte, error)
	client    *http.Client
	token     string
	err       error

	queries []generate.DecisionQuery
	reads   []string // of repositories
}

func (in *inputs) Clusters(context.Context) ([]generate.Cluster, error) { return in.clusters, in.err }

func (in *inputs) Tree(_ context.Context, url, revision string) (fs.FS, string, error) {
	in.reads = append(in.reads, url+" "+revision)
	return in.files, "commit", in.err
}

func (in *inputs) Decision(_ context.Context, q generate.DecisionQuery) (generate.Decisions, error) {
	in.queries = append(in.queries, q)
	return in.decisions, in.err
}

func (in *inputs) Plugin(_ context.Context, configMap string, body []byte) ([]byte, error) {
	if configMap != "my-plugin" {
		return nil, fault.New(fault.Missing, "there is no plugin %s", configMap)
	}
	return in.plugin(body)
}

func (in *inputs) Secret(context.Context, string, string, string) (string, error) {
	return in.token, in.err
}

func (in *inputs) App(context.Context, scm.AppUse) (string, error) { return in.token, in.err }

func (in *inputs) Client(context.Context, scm.ClientUse) (*http.Client, error) {
	if in.client == nil && in.err == nil {
		return nil, fault.New(fault.Offline, "there is no way to the host")
	}
	return in.client, in.err
}

func (in *inputs) Answers() *scm.Answers { return nil }
