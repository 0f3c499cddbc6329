package webhook

import (
	"encoding/json"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/capstan-cd/capstan/hub"
)

// Events of registries (HOOKW-08) name an artifact, such as
// registry.example.com/team/app, and a tag. Most registries have no header of
// their own for their events, so these are recognised by their body.

// maxParents is how many folders of an artifact's name may be a repository.
const maxParents = 8

// maxArtifacts is how many artifacts of one event count. A registry may
// combine events; what is beyond is found by polling.
const maxArtifacts = 64

// An artifact is what a registry names: its host, and its path there.
type artifact struct{ host, path string }

// places are the addresses under which a tenant may have registered the
// repository of an artifact: its own, and that of each folder above it. A chart
// is a name below its repository.
func (a artifact) places() (out []string) {
	host, path := strings.TrimSpace(a.host), strings.Trim(a.path, "/")
	if host == "" || path == "" || strings.ContainsAny(host, "/@?#") {
		return nil
	}
	out = append(out, "oci://"+host+"/"+path)
	for i := strings.LastIndexByte(path, '/'); i > 0 && len(out) < maxParents; i = strings.LastIndexByte(path, '/') {
		path = path[:i]
		out = append(out, "oci://"+host+"/"+path)
	}
	return append(out, "oci://"+host)
}

// dockerHubHosts are the names under which Docker Hub is addressed.
func dockerHubHosts() []string {
	return []string{"docker.io", "registry-1.docker.io", "index.docker.io"}
}

// fixed is the word of an event whose sender has none.
func fixed(word string) func(http.Header) string {
	return func(http.Header) string { return word }
}

func always(string) bool { return true }

// registryOf finds the registry that sent an event without a header of its own.
// nil: the body is none of a registry.
func registryOf(h http.Header, body []byte) *sender {
	kind, _, _ := mime.ParseMediaType(h.Get("Content-Type"))
	if isDistribution(kind) {
		return &sender{fixed("registry"), "", always, readDistribution, hub.WebhookRegistry, nil}
	}
	if kind != "application/json" && kind != "application/cloudevents+json" {
		return nil
	}
	e, err := into[struct {
		Type   string          `json:"type"`
		Event  json.RawMessage `json:"event_data"`
		Data   json.RawMessage `json:"data"`
		Pushed json.RawMessage `json:"push_data"`
		Events []struct {
			Target json.RawMessage `json:"target"`
		} `json:"events"`
	}](body)
	switch {
	case err != nil:
		return nil
	case e.Event != nil && e.Type != "", e.Data != nil && strings.HasPrefix(e.Type, "harbor."):
		return &sender{fixed("harbor"), "", always, readHarbor, hub.WebhookHarbor, nil}
	case e.Pushed != nil:
		return &sender{fixed("docker hub"), "", always, readDockerHub, hub.WebhookRegistry, nil}
	case len(e.Events) > 0 && e.Events[0].Target != nil:
		return &sender{fixed("registry"), "", always, readDistribution, hub.WebhookRegistry, nil}
	}
	return nil
}

// isDistribution reports whether a media type is that of notifications of the
// registry distribution.
func isDistribution(kind string) bool {
	return kind == "application/vnd.docker.distribution.events.v1+json" || kind == "application/vnd.docker.distribution.events.v2+json"
}

// pushedArtifacts makes a saying of artifacts. Without one, nothing was pushed
// that has a tag.
func pushedArtifacts(all []artifact) saying {
	var s saying
	for _, a := range all[:min(len(all), maxArtifacts)] {
		s.urls = append(s.urls, a.places()...)
	}
	s.nothing = len(all) == 0
	return s
}

// readDistribution reads notifications of the registry distribution, version 2
// and 3, and of registries that are built on it. A push of layers, or of a
// manifest without a tag, is none.
func readDistribution(payload []byte) (saying, error) {
	e, err := into[struct {
		Events []struct {
			Action string `json:"action"`
			Target struct {
				Repository string `json:"repository"`
				URL        string `json:"url"`
				Tag        string `json:"tag"`
			} `json:"target"`
			Request struct {
				Host string `json:"host"`
			} `json:"request"`
		} `json:"events"`
	}](payload)
	var all []artifact
	for _, one := range e.Events {
		if one.Action != "push" || one.Target.Tag == "" {
			continue
		}
		hosts := []string{one.Request.Host}
		if u, err := url.Parse(one.Target.URL); err == nil {
			hosts = append(hosts, u.Host)
		}
		slices.Sort(hosts)
		for _, host := range slices.Compact(hosts) {
			all = append(all, artifact{host, one.Target.Repository})
		}
	}
	return pushedArtifacts(all), err
}

// readHarbor reads events of Harbor, in its own form and as CloudEvents. The
// address of each artifact is in them.
func readHarbor(payload []byte) (saying, error) {
	type pushed struct {
		Resources []struct {
			URL string `json:"resource_url"`
		} `json:"resources"`
	}
	e, err := into[struct {
		Type  string `json:"type"`
		Event pushed `json:"event_data"`
		Data  pushed `json:"data"`
	}](payload)
	var all []artifact
	switch e.Type {
	case "PUSH_ARTIFACT", "TAG_RETENTION", "REPLICATION":
	case "harbor.artifact.pushed":
		e.Event = e.Data
	default:
		return saying{nothing: err == nil}, err
	}
	for _, r := range e.Event.Resources {
		if host, path, found := strings.Cut(withoutTag(r.URL), "/"); found {
			all = append(all, artifact{host, path})
		}
	}
	return pushedArtifacts(all), err
}

// withoutTag is the name of an artifact without its tag or digest.
func withoutTag(name string) string {
	name = strings.TrimPrefix(strings.TrimPrefix(name, "https://"), "http://")
	name, _, _ = strings.Cut(name, "@")
	if i := strings.LastIndexByte(name, ':'); i > strings.LastIndexByte(name, '/') {
		name = name[:i]
	}
	return name
}

// readDockerHub reads an event of Docker Hub, which is signed by nothing.
func readDockerHub(payload []byte) (saying, error) {
	e, err := into[struct {
		Pushed struct {
			Tag string `json:"tag"`
		} `json:"push_data"`
		Repository struct {
			Name string `json:"repo_name"`
		} `json:"repository"`
	}](payload)
	var all []artifact
	if e.Pushed.Tag != "" {
		for _, host := range dockerHubHosts() {
			all = append(all, artifact{host, e.Repository.Name})
		}
	}
	return pushedArtifacts(all), err
}

// readPackage reads an event of GitHub's registry, ghcr.io. Packages of other
// kinds are none of it.
func readPackage(payload []byte) (saying, error) {
	type pushed struct {
		Name  string `json:"name"`
		Kind  string `json:"package_type"`
		Owner struct {
			Login string `json:"login"`
		} `json:"owner"`
		Version struct {
			Container struct {
				Tag struct {
					Name string `json:"name"`
				} `json:"tag"`
			} `json:"container_metadata"`
		} `json:"package_version"`
	}
	e, err := into[struct {
		Action   string  `json:"action"`
		Package  *pushed `json:"package"`
		Registry *pushed `json:"registry_package"`
	}](payload)
	p := e.Package
	if p == nil {
		p = e.Registry
	}
	if err != nil || p == nil || !strings.EqualFold(p.Kind, "container") || p.Version.Container.Tag.Name == "" || e.Action != "published" && e.Action != "updated" {
		return saying{nothing: err == nil}, err
	}
	return pushedArtifacts([]artifact{{"ghcr.io", strings.ToLower(p.Owner.Login + "/" + p.Name)}}), nil
}

// readGeneric reads an event in Capstan's own form, for senders that have none:
// a repository with the branch that was pushed, or an artifact of a registry.
func readGeneric(payload []byte) (saying, error) {
	e, err := into[struct {
		Repository string `json:"repository"`
		Ref        string `json:"ref"`
		Commit     string `json:"commit"`
		Artifact   string `json:"artifact"`
	}](payload)
	if err != nil || e.Artifact == "" {
		return saying{urls: []string{e.Repository}, changes: []change{{e.Ref, e.Commit}}}, err
	}
	host, path, _ := strings.Cut(withoutTag(strings.TrimPrefix(e.Artifact, "oci://")), "/")
	return pushedArtifacts([]artifact{{host, path}}), nil
}
