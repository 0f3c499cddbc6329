package webhook_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/source/webhook"
	"github.com/capstan-cd/capstan/shared/fault"
)

const (
	distributionPush = `{"events":[
 {"id":"1","timestamp":"2026-01-02T09:43:53Z","action":"push","target":{"mediaType":"application/vnd.oci.image.layer.v1.tar+gzip","digest":"sha256:aa","repository":"team/app","url":"https://registry.example.com/v2/team/app/blobs/sha256:aa"},"request":{"id":"a","addr":"10.0.0.7:1","host":"registry.example.com","method":"PUT"},"actor":{"name":"bot"},"source":{"addr":"registry:5000","instanceID":"b"}},
 {"id":"2","timestamp":"2026-01-02T09:43:53Z","action":"push","target":{"mediaType":"application/vnd.oci.image.manifest.v1+json","size":900,"digest":"sha256:bb","length":900,"repository":"team/app","url":"https://registry.example.com/v2/team/app/manifests/sha256:bb","tag":"1.2.3"},"request":{"id":"a","addr":"10.0.0.7:1","host":"registry.example.com","method":"PUT","useragent":"helm"},"actor":{"name":"bot"},"source":{"addr":"registry:5000","instanceID":"b"}}]}`
	harborPush = `{"type":"PUSH_ARTIFACT","occur_at":1767346000,"operator":"admin","event_data":{"resources":[{"digest":"sha256:bb","tag":"1.2.3","resource_url":"registry.example.com/team/app:1.2.3"}],
 "repository":{"date_created":1767340000,"name":"app","namespace":"team","repo_full_name":"team/app","repo_type":"private"}}}`
	harborCloud = `{"specversion":"1.0","id":"6","source":"/projects/1/webhook/policies/1","type":"harbor.artifact.pushed","datacontenttype":"application/json","time":"2026-01-02T09:43:53Z","operator":"admin",
 "data":{"resources":[{"digest":"sha256:bb","tag":"1.2.3","resource_url":"registry.example.com/team/app:1.2.3"}],"repository":{"name":"app","namespace":"team","repo_full_name":"team/app"}}}`
	packagePush = `{"action":"published","package":{"id":1,"name":"App","namespace":"Team","package_type":"CONTAINER","ecosystem":"CONTAINER","owner":{"login":"Team"},
 "package_version":{"id":2,"version":"sha256:bb","container_metadata":{"tag":{"name":"1.2.3","digest":"sha256:bb"}},"package_url":"ghcr.io/team/app:1.2.3"},"registry":{"url":"https://ghcr.io"}},"organization":{"login":"Team"}}`
	dockerHubPush = `{"callback_url":"https://registry.hub.docker.com/u/team/app/hook/1/","push_data":{"pushed_at":1767346000,"pusher":"bot","tag":"1.2.3"},
 "repository":{"name":"app","namespace":"team","repo_name":"team/app","repo_url":"https://hub.docker.com/r/team/app","status":"Active"}}`
)

// under are the places of an artifact at hosts.
func under(path string, hosts ...string) (out []string) {
	for _, host := range hosts {
		at := "oci://" + host
		out = append(out, at)
		for part := range strings.SplitSeq(path, "/") {
			at += "/" + part
			out = append(out, at)
		}
	}
	return out
}

func authorization(value string, pairs ...string) http.Header {
	h := headers(pairs...)
	if value != "" {
		h.Set("Authorization", value)
	}
	return h
}

// registries are the events of registries, and of senders of Capstan's own
// form, with the key of their secret.
func registries() map[string]sending {
	const distributed = "application/vnd.docker.distribution.events.v2+json"
	registry, harbor := map[string]string{hub.WebhookRegistry: "s3cret"}, map[string]string{hub.WebhookHarbor: "s3cret"}
	signedPackage := headers("X-GitHub-Event", "package", "X-GitHub-Delivery", "5f6e", "X-Hub-Signature-256", sign(packagePush, "s3cret"))
	older := strings.Replace(packagePush, `"package":`, `"registry_package":`, 1)
	signedOlder := headers("X-GitHub-Event", "registry_package", "X-Hub-Signature-256", sign(older, "s3cret"))
	ours := fmt.Sprintf(`{"repository":"https://git.example.com/Team/App.git","ref":"refs/heads/main","commit":%q}`, branchAt)
	artifact := `{"artifact":"oci://registry.example.com/team/app:1.2.3"}`
	generic := map[string]string{hub.WebhookGeneric: "s3cret"}
	return map[string]sending{
		"distribution": {"registry", authorization("Bearer s3cret", "Content-Type", distributed), distributionPush, registry,
			webhook.Push{Event: "registry", URLs: under("team/app", "registry.example.com")}},
		"distribution with a password": {"registry", authorization(basic("capstan", "s3cret"), "Content-Type", distributed), distributionPush, registry,
			webhook.Push{Event: "registry", URLs: under("team/app", "registry.example.com")}},
		"distribution with any value, as JSON": {"registry", authorization("s3cret"), distributionPush, registry,
			webhook.Push{Event: "registry", URLs: under("team/app", "registry.example.com")}},
		"Harbor": {"harbor", authorization("s3cret"), harborPush, harbor,
			webhook.Push{Event: "harbor", URLs: under("team/app", "registry.example.com")}},
		"Harbor as CloudEvents": {"harbor", authorization("Bearer s3cret", "Content-Type", "application/cloudevents+json"), harborCloud, harbor,
			webhook.Push{Event: "harbor", URLs: under("team/app", "registry.example.com")}},
		"GHCR": {"package", signedPackage, packagePush, map[string]string{hub.WebhookGitHub: "s3cret"},
			webhook.Push{Event: "package", Delivery: "5f6e", URLs: under("team/app", "ghcr.io")}},
		"GHCR under its older name": {"registry_package", signedOlder, older, map[string]string{hub.WebhookGitHub: "s3cret"},
			webhook.Push{Event: "registry_package", URLs: under("team/app", "ghcr.io")}},
		"Docker Hub": {"docker hub", authorization(basic("capstan", "s3cret")), dockerHubPush, registry,
			webhook.Push{Event: "docker hub", URLs: under("team/app", "docker.io", "index.docker.io", "registry-1.docker.io")}},
		"Capstan's form": {"push", headers("X-Capstan-Event", "push", "X-Capstan-Delivery", "5f6e", "X-Capstan-Signature-256", sign(ours, "s3cret")), ours, generic,
			webhook.Push{Event: "push", Delivery: "5f6e", URLs: addresses[:2], Ref: "refs/heads/main", Commit: branchAt}},
		"Capstan's form with a token": {"push", authorization("Bearer s3cret", "X-Capstan-Event", "push"), ours, generic,
			webhook.Push{Event: "push", URLs: addresses[:2], Ref: "refs/heads/main", Commit: branchAt}},
		"an artifact in Capstan's form": {"push", headers("X-Capstan-Event", "push", "X-Capstan-Signature-256", sign(artifact, "s3cret")), artifact, generic,
			webhook.Push{Event: "push", URLs: under("team/app", "registry.example.com")}},
	}
}

func TestWhatRegistriesPushedWithoutATag(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		header http.Header
		body   string
	}{
		"HOOKW-08 layers and manifests without a tag": {headers(), strings.Replace(distributionPush, `"tag":"1.2.3"`, `"tag":""`, 1)},
		"HOOKW-08 a pull":                     {headers(), strings.ReplaceAll(distributionPush, `"action":"push"`, `"action":"pull"`)},
		"HOOKW-08 Harbor tells of a scan":     {headers(), strings.Replace(harborPush, "PUSH_ARTIFACT", "SCANNING_COMPLETED", 1)},
		"HOOKW-08 Harbor tells of a deletion": {headers(), strings.Replace(harborCloud, "artifact.pushed", "artifact.deleted", 1)},
		"HOOKW-08 a package that is no image": {headers("X-GitHub-Event", "package"), strings.Replace(packagePush, `"package_type":"CONTAINER"`, `"package_type":"npm"`, 1)},
		"HOOKW-08 a package without a tag":    {headers("X-GitHub-Event", "package"), strings.Replace(packagePush, `{"name":"1.2.3"`, `{"name":""`, 1)},
		"HOOKW-08 Docker Hub tells of no tag": {headers(), strings.Replace(dockerHubPush, `"tag":"1.2.3"`, `"tag":""`, 1)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got, err := webhook.Parse(c.header, []byte(c.body)); err != nil || got.URLs != nil {
				t.Errorf("Parse() = %v, %v; want nothing to do", got.URLs, err)
			}
		})
	}
}

// An event costs a bounded number of lookups, and reaches no address outside of
// the registry's host.
func TestArtifactsOfOddNames(t *testing.T) {
	t.Parallel()
	event := func(host, repository string) string {
		return fmt.Sprintf(`{"events":[{"action":"push","target":{"repository":%q,"tag":"1"},"request":{"host":%q}}]}`, repository, host)
	}
	for name, c := range map[string]struct {
		body string
		want []string
	}{
		"a port does not matter":        {event("registry.example.com:5000", "app"), []string{"oci://registry.example.com:5000", "oci://registry.example.com:5000/app"}},
		"a chart at the root of a host": {event("registry.example.com", "app"), under("app", "registry.example.com")},
		"SEC-I1 a host with a path":     {event("registry.example.com/evil", "app"), nil},
		"SEC-I1 a host with a user":     {event("eve@registry.example.com", "app"), nil},
		"SEC-I1 a path that climbs":     {event("registry.example.com", "../../git.example.com/team"), []string{"oci://registry.example.com"}},
		"no host":                       {event("", "app"), nil},
		"no name":                       {event("registry.example.com", ""), nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := webhook.Parse(headers(), []byte(c.body))
			if diff := cmp.Diff(c.want, got.URLs); diff != "" || (len(c.want) == 0) != (fault.KindOf(err) == fault.Invalid) {
				t.Error(err, diff)
			}
		})
	}
	t.Run("SEC-I1 many artifacts in deep folders are a bounded number of places", func(t *testing.T) {
		t.Parallel()
		var all []string
		for i := range 10_000 {
			one := event("registry.example.com", fmt.Sprintf("%d%s", i, strings.Repeat("/x", 500)))
			all = append(all, strings.TrimSuffix(strings.TrimPrefix(one, `{"events":[`), `]}`))
		}
		got, err := webhook.Parse(headers(), []byte(`{"events":[`+strings.Join(all, ",")+`]}`))
		if err != nil || len(got.URLs) == 0 || len(got.URLs) > 64*9 {
			t.Errorf("%d places, %v", len(got.URLs), err)
		}
	})
}
