package generate_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/generate"
	"github.com/capstan-cd/capstan/integration/rigs/scmhosts"
)

// A rerouted client sends requests for the public host and an organisation to a
// server of the test.
type rerouted struct {
	to   *scmhosts.Server
	from string
}

func (r rerouted) RoundTrip(req *http.Request) (*http.Response, error) {
	to, err := url.Parse(r.to.HTTP.URL)
	if err != nil {
		return nil, err
	}
	out := req.Clone(req.Context())
	out.URL.Scheme, out.URL.Host, out.Host = to.Scheme, to.Host, ""
	out.URL.Path = "/api/v3" + strings.Replace(out.URL.Path, "/"+r.from, "/"+scmhosts.Owner, 1)
	return r.to.HTTP.Client().Transport.RoundTrip(out)
}

func onHost(host *scmhosts.Server, organisation string) *inputs {
	return &inputs{client: &http.Client{Transport: rerouted{host, organisation}}, token: host.Token}
}

func TestHosts(t *testing.T) {
	t.Parallel()
	host := scmhosts.New(t, scmhosts.GitHub)
	host.Put(
		scmhosts.Repository{
			ID: 3, Name: "my-app", Default: "main", Topics: []string{"web", "go"},
			Branches: []scmhosts.Branch{{Name: "main", SHA: scmhosts.SHA("main"), Paths: []string{"kustomization.yaml"}}},
			Pulls: []scmhosts.Pull{
				{Number: 7, Title: "Add cart", Source: "feature/Add_cart", Target: "main", SHA: scmhosts.SHA("cart"), Author: "ana", Labels: []string{"deploy-preview"}},
				{Number: 8, Title: "Fix typo", Source: "fix", Target: "main", SHA: scmhosts.SHA("fix"), Author: "ben"},
			},
		},
		scmhosts.Repository{ID: 4, Name: "docs", Default: "main", Branches: []scmhosts.Branch{{Name: "main", SHA: scmhosts.SHA("docs")}}},
	)
	t.Run("the set of guide/13 makes an application for each pull request with its label", func(t *testing.T) {
		t.Parallel()
		text, err := os.ReadFile("../../integration/testdata/guide/13-applicationset-pull-request.yaml")
		if err != nil {
			t.Fatal(err)
		}
		var o struct{ Spec json.RawMessage }
		if err := yaml.Unmarshal(text, &o); err != nil {
			t.Fatal(err)
		}
		set, err := generate.Parse("my-app-previews", o.Spec)
		if err != nil || len(set.Warnings()) > 0 {
			t.Fatalf("Parse: %v, %v", err, set.Warnings())
		}
		r, err := set.Generate(t.Context(), onHost(host, "my-org"), generate.Limits{})
		if err != nil || !slices.Equal(names(r), []string{"pr-7-my-app"}) {
			t.Fatalf("Generate: %+v, %v", r, err)
		}
		spec, err := hub.DecodeSpec(r.Applications[0].Spec)
		if err != nil || spec.Source.TargetRevision != scmhosts.SHA("cart") || spec.Destination.Namespace != "pr-7" || spec.Source.Helm.Parameters[0].Value != "pr-7.preview.example.com" {
			t.Errorf("spec %+v, %v", spec, err)
		}
	})
	const pulls = "generators: [{pullRequest: {github: {owner: my-org, repo: my-app, tokenRef: {secretName: a, key: b}}, values: {v: "
	for name, c := range map[string]struct {
		spec string
		want []string
	}{
		"AGEN-11 parameters of pull requests, with values": {
			"goTemplate: true\n" + pulls + "'{{.author}}'}}}]\n" + body("n{{.number}}-{{.branch_slug}}-{{.head_short_sha_7}}-{{.values.v}}-{{len .labels}}"),
			[]string{"n7-feature-add-cart-" + scmhosts.SHA("cart")[:7] + "-ana-1", "n8-fix-" + scmhosts.SHA("fix")[:7] + "-ben-0"},
		},
		"AGEN-11 parameters of pull requests without Go templates": {
			pulls + "'{{author}}'}}}]\n" + body("n{{number}}-{{target_branch}}-{{values.v}}"), []string{"n7-main-ana", "n8-main-ben"},
		},
		"AGEN-09 parameters of repositories, with values": {
			"goTemplate: true\ngenerators: [{scmProvider: {github: {organization: my-org, tokenRef: {secretName: a, key: b}}, filters: [{pathsExist: [kustomization.yaml]}], values: {v: '{{.repository}}-x'}}}]\n" +
				body("{{.values.v}}-{{.branchNormalized}}-{{.short_sha_7}}"),
			[]string{"my-app-x-main-" + scmhosts.SHA("main")[:7]},
		},
		"AGEN-14 a matrix asks a host with the parameters of another generator": {
			"goTemplate: true\ngenerators: [{matrix: {generators: [{list: {elements: [{repo: my-app}]}}, {pullRequest: {github: {owner: my-org, repo: '{{.repo}}', tokenRef: {secretName: a, key: b}}}}]}}]\n" +
				body("{{.repo}}-{{.number}}"),
			[]string{"my-app-7", "my-app-8"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := made(t, c.spec, onHost(host, "my-org"))
			got := names(r)
			slices.Sort(got)
			if err != nil || !slices.Equal(got, c.want) {
				t.Errorf("Generate: %v, %v, problems %v, want %v", got, err, r.Problems, c.want)
			}
		})
	}
	t.Run("ASET-11 FT-G2(part) a host that refuses leaves no result", func(t *testing.T) {
		t.Parallel()
		in := onHost(host, "my-org")
		in.token = "another"
		if r, err := made(t, pulls+"x}}}]\n"+body("n{{number}}"), in); err == nil {
			t.Errorf("Generate: %+v", r)
		}
	})
}
