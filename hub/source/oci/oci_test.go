package oci_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/source/archives"
	"github.com/capstan-cd/capstan/hub/source/charts/chartstest"
	"github.com/capstan-cd/capstan/integration/rigs/registry"
	"github.com/capstan-cd/capstan/shared/fault"
)

const tenant = hub.TenantID("018f3c6e-0000-7000-8000-000000000001")

func nobody(hub.TenantID) hub.Credential { return hub.Credential{} }

func TestRevisions(t *testing.T) {
	t.Parallel()
	o := newOrigin(t)
	digests := map[string]string{}
	for _, tag := range []string{"1.0.0", "1.2.0", "2.0.0-rc.1", "latest", "3.0.0_build.1"} {
		digests[tag] = o.push(tag, chartstest.Files(map[string]string{"a.yaml": tag}))
	}
	s := newSource(t, archives.Config{Dir: t.TempDir()}, nobody)
	for asked, tag := range map[string]string{
		"1.0.0": "1.0.0", "^1": "1.2.0", "latest": "latest", "": "3.0.0_build.1", ">=2.0.0-0 <3": "2.0.0-rc.1", "3.0.0+build.1": "3.0.0_build.1", digests["1.0.0"]: "1.0.0",
	} {
		t.Run("SRC-03 the revision "+asked, func(t *testing.T) {
			t.Parallel()
			got, err := s.Resolve(t.Context(), tenant, o.Hub(), nil, asked, "")
			if err != nil || got != digests[tag] {
				t.Errorf("Resolve(%q) = %q, %v; want that of %s", asked, got, err, tag)
			}
		})
	}
	t.Run("SRC-03 FT-G7 a tag that moves is another revision", func(t *testing.T) {
		t.Parallel()
		repo := o.Hub()
		repo.Use.Targets = []hub.Target{{Revision: "moving"}}
		o.push("moving", chartstest.Files(map[string]string{"a.yaml": "1"}))
		first, err := s.Fetch(t.Context(), tenant, repo, hub.Credential{})
		if err != nil {
			t.Fatal(err)
		}
		o.push("moving", chartstest.Files(map[string]string{"a.yaml": "2"}))
		second, err := s.Fetch(t.Context(), tenant, repo, hub.Credential{})
		if err != nil || len(first) != 1 || len(second) != 1 || first[0] == second[0] {
			t.Errorf("refs %v, and then %v, %v", first, second, err)
		}
	})
	t.Run("SRC-04 a chart is an artifact, without the directory that it is packed in", func(t *testing.T) {
		t.Parallel()
		repo := o.Hub()
		o.push("chart", chartstest.Chart(chartstest.Pack("web", "1.0.0", nil)))
		commit, err := s.Resolve(t.Context(), tenant, repo, nil, "chart", "")
		if err != nil {
			t.Fatal(err)
		}
		tree, err := s.Tree(t.Context(), tenant, repo, commit)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tree.Stat("Chart.yaml"); err != nil || tree.Info().Chart == nil || tree.Info().Chart.Name != "web" {
			t.Errorf("%v, %+v", err, tree.Info())
		}
	})
	t.Run("SRC-05 the annotations of an artifact are its metadata", func(t *testing.T) {
		t.Parallel()
		repo := o.Hub()
		a := chartstest.Files(map[string]string{"a.yaml": "x"})
		a.Annotations = map[string]string{}
		for _, name := range []string{"title", "description", "version", "revision", "url", "source", "authors", "created"} {
			a.Annotations["org.opencontainers.image."+name] = "the " + name
		}
		tree, err := s.Tree(t.Context(), tenant, repo, o.push("annotated", a))
		if err != nil {
			t.Fatal(err)
		}
		want := &hub.ArtifactInfo{Title: "the title", Description: "the description", Version: "the version", Revision: "the revision", URL: "the url", Source: "the source", Authors: "the authors", Created: "the created"}
		if diff := cmp.Diff(want, tree.Info().Artifact); diff != "" {
			t.Error(diff)
		}
	})
}

func TestPlainRegistry(t *testing.T) {
	t.Parallel()
	r := registry.New(t, registry.Options{Plain: true, User: "bob", Password: "s3cret"})
	digest, err := r.Push(t.Context(), name, "1.0.0", chartstest.Files(map[string]string{"a.yaml": "x"}))
	if err != nil {
		t.Fatal(err)
	}
	s := newSource(t, archives.Config{Dir: t.TempDir()}, func(hub.TenantID) hub.Credential { return hub.Credential{Username: "bob", Password: "s3cret"} })
	repo := hub.Repository{ID: hub.NewID[hub.RepositoryID](), URL: r.URL(name), Type: hub.OCIRepository}
	t.Run("CRED-13 a registry without TLS needs insecureOCIForceHttp", func(t *testing.T) {
		if got, err := s.Resolve(t.Context(), tenant, repo, nil, "1.0.0", ""); err == nil {
			t.Errorf("resolved to %s", got)
		}
		repo.PlainHTTP = true
		if got, err := s.Resolve(t.Context(), tenant, repo, nil, "1.0.0", ""); err != nil || got != digest {
			t.Errorf("Resolve() = %s, %v", got, err)
		}
	})
	t.Run("SEC-C3 a wrong password is in no error", func(t *testing.T) {
		wrong := newSource(t, archives.Config{Dir: t.TempDir()}, func(hub.TenantID) hub.Credential { return hub.Credential{Username: "bob", Password: "wr0ng-canary"} })
		_, err := wrong.Resolve(t.Context(), tenant, repo, nil, "1.0.0", "")
		if fault.KindOf(err) != fault.Invalid || strings.Contains(err.Error(), "wr0ng-canary") || !strings.Contains(fault.Sentence(err), "refuses") {
			t.Errorf("%v", err)
		}
	})
}

func TestHostileRegistry(t *testing.T) {
	t.Parallel()
	o := newOrigin(t)
	tar := "application/vnd.oci.image.layer.v1.tar+gzip"
	layer := chartstest.Layer{MediaType: tar, Data: chartstest.Tar(map[string]string{"a.yaml": "x"})}
	index := func(n int) string {
		var all []map[string]any
		for range n {
			all = append(all, map[string]any{"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": "sha256:" + strings.Repeat("0", 64), "size": 2})
		}
		text, err := json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": all})
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	// answers has the registry answer for a tag with a text of its own.
	answers := func(tag, mediaType, text string) {
		o.Answer("/v2/"+name+"/manifests/"+tag, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", mediaType)
			w.Header().Set("Content-Length", fmt.Sprint(len(text)))
			w.Header().Set("Docker-Content-Digest", chartstest.Digest([]byte(text)))
			if r.Method == http.MethodGet {
				_, _ = w.Write([]byte(text))
			}
		})
		o.Answer("/v2/"+name+"/manifests/"+chartstest.Digest([]byte(text)), func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", mediaType)
			_, _ = w.Write([]byte(text))
		})
	}
	const image = "application/vnd.oci.image.manifest.v1+json"
	answers("index", "application/vnd.oci.image.index.v1+json", index(3))
	answers("thousands", "application/vnd.oci.image.index.v1+json", index(10_000))
	answers("huge", image, `{"layers":[],"x":"`+strings.Repeat("x", 2<<20)+`"}`)
	answers("page", image, "<html>not found</html>")
	answers("confused", image, `{"mediaType":"application/vnd.oci.image.index.v1+json","layers":[{"mediaType":"`+tar+`","digest":"sha256:`+strings.Repeat("0", 64)+`","size":1}]}`)
	answers("nodigest", image, `{"layers":[{"mediaType":"`+tar+`","digest":"../../etc/passwd","size":1}]}`)
	answers("giant", image, `{"layers":[{"mediaType":"`+tar+`","digest":"sha256:`+strings.Repeat("0", 64)+`","size":99999999999}]}`)
	other := chartstest.Digest(layer.Data)
	answers("lied", image, fmt.Sprintf(`{"layers":[{"mediaType":%q,"digest":%q,"size":%d}]}`, tar, other, len(layer.Data)))
	o.push("two", chartstest.Artifact{Config: "application/vnd.oci.empty.v1+json", Layers: []chartstest.Layer{layer, layer}})
	o.push("none", chartstest.Artifact{Config: "application/vnd.oci.empty.v1+json"})
	o.push("wrong", chartstest.Artifact{Config: "application/vnd.oci.empty.v1+json", Layers: []chartstest.Layer{{MediaType: "application/x-secret", Data: layer.Data}}})
	o.push("bomb", chartstest.Files(map[string]string{"zeros": strings.Repeat("\x00", 3<<20)}))
	o.push("entries", chartstest.Files(func() map[string]string {
		all := map[string]string{}
		for i := range 200 {
			all[fmt.Sprintf("f%d", i)] = ""
		}
		return all
	}()))
	lied := append([]byte(nil), layer.Data...)
	lied[len(lied)-1] ^= 1
	o.Answer("/v2/"+name+"/blobs/"+other, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(lied) })
	s := newSource(t, archives.Config{Dir: t.TempDir(), Limits: archives.Limits{Bytes: 2 << 20, Entries: 100}}, nobody)
	for tag, c := range map[string]struct {
		name string
		kind fault.Kind
		says string
	}{
		"index":     {"SEC-B4 an index instead of an artifact", fault.Invalid, "an index of 3 manifests"},
		"thousands": {"SEC-B4 an index of 10,000 manifests", fault.Exceeded, "more than 1048576 bytes"},
		"huge":      {"SEC-B4 a huge manifest", fault.Exceeded, "more than 1048576 bytes"},
		"page":      {"SEC-B7 a page instead of a manifest", fault.Invalid, "cannot be read"},
		"confused":  {"SEC-B4 two media types of one manifest", fault.Invalid, "another type than it says"},
		"nodigest":  {"SEC-B4 SEC-A2 a layer without a digest", fault.Invalid, "no usable digest"},
		"giant":     {"SEC-B4 a layer that says to be huge", fault.Exceeded, "at most"},
		"lied":      {"FT-G7 a layer with other bytes than its digest says", fault.Invalid, ""},
		"two":       {"SRC-04 SEC-B4 two layers", fault.Invalid, "has 2 layers, and must have one"},
		"none":      {"SRC-04 SEC-B4 no layer", fault.Invalid, "has 0 layers"},
		"wrong":     {"SRC-04 a media type that is not accepted", fault.Invalid, "application/x-secret"},
		"bomb":      {"SRC-04 SEC-B4 a layer that unfolds to too much", fault.Exceeded, "unfolds to more than 2097152 bytes"},
		"entries":   {"SEC-B4 a layer of too many files", fault.Exceeded, "more than 100 entries"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			repo := o.Hub()
			repo.Use.Targets = []hub.Target{{Revision: tag}}
			refs, err := s.Fetch(t.Context(), tenant, repo, hub.Credential{})
			if fault.KindOf(err) != c.kind || !strings.Contains(fault.Sentence(err), c.says) || len(refs) > 0 {
				t.Errorf("%v (kind %q); want %q (kind %q)", fault.Sentence(err), fault.KindOf(err), c.says, c.kind)
			}
		})
	}
}

func TestBadNeighbours(t *testing.T) {
	t.Parallel()
	o := newOrigin(t)
	good := o.push("1.0.0", chartstest.Files(map[string]string{"a.yaml": "x"}))
	o.push("bad", chartstest.Artifact{Config: "application/vnd.oci.empty.v1+json"})
	s := newSource(t, archives.Config{Dir: t.TempDir()}, nobody)
	repo := o.Hub()
	repo.Use.Targets = []hub.Target{{Revision: "bad"}, {Revision: "1.0.0"}, {Revision: "absent"}}
	t.Run("SEC-B4 an artifact that cannot be used stops no other of its repository", func(t *testing.T) {
		refs, err := s.Fetch(t.Context(), tenant, repo, hub.Credential{})
		if err != nil || len(refs) != 1 || refs[0].Commit != good+" "+good {
			t.Errorf("Fetch() = %v, %v", refs, err)
		}
		commit, err := s.Resolve(t.Context(), tenant, repo, refs, "bad", "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Tree(t.Context(), tenant, repo, commit); fault.KindOf(err) != fault.Invalid || !strings.Contains(fault.Sentence(err), "0 layers") {
			t.Errorf("Tree() = %v", err)
		}
	})
}
