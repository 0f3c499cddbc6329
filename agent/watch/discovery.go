package watch

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/capstan-cd/capstan/shared/fault"
)

// maxDiscovery bounds one response, in bytes.
const maxDiscovery = 64 << 20

// aggregated requests all kinds in two responses; older servers need one
// request per group.
const aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList," +
	"application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"

// An API reads an API server's discovery. It is small: client-go's own reader
// includes the types of every kind.
type API struct {
	client *http.Client
	base   *url.URL
}

// NewAPI makes a reader of the server at base.
func NewAPI(client *http.Client, base *url.URL) *API { return &API{client: client, base: base} }

// Text reads a path, and returns the body even of an error.
func (a *API) Text(ctx context.Context, path string) ([]byte, error) {
	body, code, err := a.read(ctx, path, "*/*")
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("%s answered %d", path, code)
	}
	return body, err
}

func (a *API) read(ctx context.Context, path, accept string) ([]byte, int, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, a.base.JoinPath(path).String(), nil)
	if err != nil {
		return nil, 0, fmt.Errorf("ask %s: %w", path, err)
	}
	r.Header.Set("Accept", accept)
	resp, err := a.client.Do(r)
	if err != nil {
		return nil, 0, fmt.Errorf("ask %s: %w", path, err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxDiscovery))
	if err != nil {
		return nil, 0, fmt.Errorf("ask %s: %w", path, err)
	}
	return body, resp.StatusCode, nil
}

func (a *API) get(ctx context.Context, path string, into any) error {
	body, code, err := a.read(ctx, path, aggregated)
	switch {
	case err != nil:
		return err
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		return fault.New(fault.Denied, "the agent may not read %s", path)
	case code != http.StatusOK:
		return fmt.Errorf("%s answered %d", path, code)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}

// version is the server's version, such as "v1.35.4".
func (a *API) version(ctx context.Context) (string, error) {
	var v struct {
		GitVersion string `json:"gitVersion"`
	}
	err := a.get(ctx, "/version", &v)
	return v.GitVersion, err
}

// groups is a response of either form: items where kinds are aggregated, and
// versions or groups where they must be read one by one.
type groups struct {
	Items []struct {
		Metadata struct {
			Name string `json:"name"`
		} `json:"metadata"`
		Versions []struct {
			Version   string     `json:"version"`
			Freshness string     `json:"freshness"`
			Resources []resource `json:"resources"`
		} `json:"versions"`
	} `json:"items"`
	Versions []string `json:"versions"` // of /api, one by one
	Groups   []struct {
		Versions []struct {
			GroupVersion string `json:"groupVersion"`
		} `json:"versions"`
	} `json:"groups"` // of /apis, one by one
}

type resource struct {
	Resource     string `json:"resource"`
	Scope        string `json:"scope"` // Namespaced or Cluster
	ResponseKind struct {
		Group   string `json:"group"`
		Version string `json:"version"`
		Kind    string `json:"kind"`
	} `json:"responseKind"`
	Verbs []string `json:"verbs"`

	// The names of the older form.
	Name       string `json:"name"`
	Kind       string `json:"kind"`
	Namespaced bool   `json:"namespaced"`
}

// kinds reads what is served. Groups whose server does not reply are listed in
// stale: their current state is unknown.
func (a *API) kinds(ctx context.Context) (served map[schema.GroupVersionKind]Mapping, stale map[schema.GroupVersion]bool, err error) {
	served, stale = map[schema.GroupVersionKind]Mapping{}, map[schema.GroupVersion]bool{}
	for _, path := range [...]string{"/api", "/apis"} {
		var answer groups
		if err := a.get(ctx, path, &answer); err != nil {
			return nil, nil, err
		}
		answer.addTo(served, stale)
		for rank, gv := range answer.singly() {
			err := a.one(ctx, gv, rank, served)
			if ctx.Err() != nil && err != nil {
				return nil, nil, err
			}
			if err != nil {
				stale[gv] = true
			}
		}
	}
	return served, stale, nil
}

// addTo adds the kinds that a reply of aggregated discovery lists.
func (a groups) addTo(served map[schema.GroupVersionKind]Mapping, stale map[schema.GroupVersion]bool) {
	for _, g := range a.Items {
		for rank, v := range g.Versions {
			gv := schema.GroupVersion{Group: g.Metadata.Name, Version: v.Version}
			if v.Freshness == "Stale" {
				stale[gv] = true
			}
			add(served, gv, rank, v.Resources)
		}
	}
}

// singly returns the versions that must be read one by one.
func (g groups) singly() []schema.GroupVersion {
	var out []schema.GroupVersion
	for _, v := range g.Versions {
		out = append(out, schema.GroupVersion{Version: v})
	}
	for _, group := range g.Groups {
		for _, v := range group.Versions {
			if gv, err := schema.ParseGroupVersion(v.GroupVersion); err == nil {
				out = append(out, gv)
			}
		}
	}
	return out
}

func (a *API) one(ctx context.Context, gv schema.GroupVersion, rank int, served map[schema.GroupVersionKind]Mapping) error {
	path := "/apis/" + gv.String()
	if gv.Group == "" {
		path = "/api/" + gv.Version
	}
	var list struct {
		Resources []resource `json:"resources"`
	}
	if err := a.get(ctx, path, &list); err != nil {
		return err
	}
	add(served, gv, rank, list.Resources)
	return nil
}

// add adds the resources that can be read; a subresource (such as a status) is
// not one.
func add(served map[schema.GroupVersionKind]Mapping, gv schema.GroupVersion, rank int, list []resource) {
	for _, r := range list {
		name, kind, namespaced := r.Resource, r.ResponseKind.Kind, r.Scope == "Namespaced"
		if name == "" {
			name, kind, namespaced = r.Name, r.Kind, r.Namespaced
		}
		if kind == "" || strings.Contains(name, "/") || !readable(r.Verbs) {
			continue
		}
		served[gv.WithKind(kind)] = Mapping{
			Resource: gv.WithResource(name), Namespaced: namespaced, Rank: rank,
			Watchable: slices.Contains(r.Verbs, "list") && slices.Contains(r.Verbs, "watch"),
		}
	}
}

func readable(verbs []string) bool {
	return slices.Contains(verbs, "get")
}
