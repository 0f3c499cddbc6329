package scm_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/capstan-cd/capstan/hub/generate/scm"
)

func TestWatches(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string]string{
		`{"github":{"organization":"Acme"}}`:                                                                         "github.com/acme/",
		`{"github":{"organization":"acme","api":"https://ghe.example.com/api/v3"}}`:                                  "ghe.example.com/acme/",
		`{"github":{"organization":"acme","api":"https://api.acme.ghe.com"}}`:                                        "acme.ghe.com/acme/",
		`{"gitlab":{"group":"acme/team"}}`:                                                                           "gitlab.com/acme/team/",
		`{"gitlab":{"group":"4711"}}`:                                                                                "",
		`{"gitea":{"owner":"acme","api":"https://gitea.example.com:3000/"}}`:                                         "gitea.example.com/acme/",
		`{"bitbucket":{"owner":"acme","user":"u","appPasswordRef":{"secretName":"s","key":"k"}}}`:                    "bitbucket.org/acme/",
		`{"bitbucketServer":{"project":"TEAM","api":"https://bb.example.com/rest"}}`:                                 "bb.example.com/scm/team/",
		`{"azureDevOps":{"organization":"acme","teamProject":"team","accessTokenRef":{"secretName":"s","key":"k"}}}`: "dev.azure.com/acme/team/_git/",
	} {
		p, err := scm.ParseProvider(json.RawMessage(spec))
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Watches(); want == "" && len(got) > 0 || want != "" && !slices.Equal(got, []string{want}) {
			t.Errorf("AGEN-17 %s watches %q, want %q", spec, got, want)
		}
	}
	for spec, want := range map[string]string{
		`{"github":{"owner":"Acme","repo":"Shop"}}`:                                "github.com/acme/shop",
		`{"gitlab":{"project":"acme/shop"}}`:                                       "gitlab.com/acme/shop",
		`{"gitea":{"owner":"acme","repo":"shop","api":"https://g.example"}}`:       "g.example/acme/shop",
		`{"bitbucket":{"owner":"acme","repo":"shop"}}`:                             "bitbucket.org/acme/shop",
		`{"bitbucketServer":{"project":"T","repo":"shop","api":"https://b.test"}}`: "b.test/scm/t/shop",
		`{"azuredevops":{"organization":"acme","project":"team","repo":"shop"}}`:   "dev.azure.com/acme/team/_git/shop",
	} {
		p, err := scm.ParsePullRequests(json.RawMessage(spec))
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Watches(); !slices.Equal(got, []string{want}) {
			t.Errorf("AGEN-17 %s watches %q, want %q", spec, got, want)
		}
	}
	if got, want := scm.WatchedBy("github.com/Acme/Shop"), []string{"github.com/acme/shop", "github.com/", "github.com/acme/"}; !slices.Equal(got, want) {
		t.Errorf("AGEN-17 %q, want %q", got, want)
	}
}
