package client

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/shared/apimodel"
	"github.com/capstan-cd/capstan/shared/fault"
)

func TestRequests(t *testing.T) {
	t.Parallel()
	cascade := false
	cases := map[string]struct {
		why  string
		call func(c *Client) (*http.Response, error)
		want string
	}{
		"Path": {
			why: "a value must not reach another path",
			call: func(c *Client) (*http.Response, error) {
				return c.GetApplication(t.Context(), "a/b", "c?d", apimodel.GetApplicationParams{})
			},
			want: "GET /base/api/v1/applications/a%2Fb/c%3Fd",
		},
		"List": {
			why: "each element is a parameter of its own",
			call: func(c *Client) (*http.Response, error) {
				return c.ListApplications(t.Context(), apimodel.ListApplicationsParams{Sync: []apimodel.SyncStatusCode{"Synced", "Unknown"}, Limit: 5})
			},
			want: "GET /base/api/v1/applications?limit=5&sync=Synced&sync=Unknown",
		},
		"Pointer": {
			why: "false differs from no value",
			call: func(c *Client) (*http.Response, error) {
				return c.DeleteApplication(t.Context(), "a", "b", apimodel.DeleteApplicationParams{Cascade: &cascade})
			},
			want: "DELETE /base/api/v1/applications/a/b?cascade=false",
		},
		"Required": {
			why: "a required parameter is sent even if it is empty",
			call: func(c *Client) (*http.Response, error) {
				return c.DeleteCertificates(t.Context(), apimodel.DeleteCertificatesParams{})
			},
			want: "DELETE /base/api/v1/certificates?serverName=",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var got, token string
			server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				got, token = r.Method+" "+r.RequestURI, r.Header.Get("Authorization")
			}))
			defer server.Close()
			res, err := c.call(New(server.URL+"/base/", http.Header{"Authorization": {"Bearer t"}}))
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			if got != c.want || token != "Bearer t" {
				t.Errorf("request %q with %q, want %q: %s", got, token, c.want, c.why)
			}
		})
	}
}

func TestRedirects(t *testing.T) {
	t.Parallel()
	var sent []string
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		sent = append(sent, r.Header.Get("Authorization")+r.Header.Get("X-Proxy-Token"))
	}))
	defer other.Close()
	to := other.URL
	hub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/moved") {
			http.Redirect(w, r, to+"/moved"+r.URL.Path, http.StatusTemporaryRedirect)
		}
	}))
	defer hub.Close()
	ask := func() error {
		res, err := New(hub.URL, http.Header{"Authorization": {"Bearer t"}, "X-Proxy-Token": {"p"}}).GetVersion(t.Context())
		_, err = Read(res, err)
		return err
	}
	if err := ask(); err == nil || !strings.Contains(fault.Sentence(err), "redirects to "+other.URL) || sent != nil {
		t.Errorf("SEC-C3 another server was sent %q, error %v", sent, err)
	}
	to = ""
	if err := ask(); err != nil {
		t.Errorf("a redirect within the hub: %v", err)
	}
}

func TestBodies(t *testing.T) {
	t.Parallel()
	var kinds []string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		kinds = append(kinds, r.Header.Get("Content-Type"))
	}))
	defer server.Close()
	c := New(server.URL, nil)
	for _, call := range []func() (*http.Response, error){
		func() (*http.Response, error) { return c.GetMe(t.Context()) },
		func() (*http.Response, error) {
			return c.CreateTenant(t.Context(), apimodel.CreateTenantJSONRequestBody{})
		},
		func() (*http.Response, error) {
			return c.Apply(t.Context(), apimodel.ApplyParams{}, Raw{"application/yaml", strings.NewReader("a: b")})
		},
	} {
		res, err := call()
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
	}
	if got := strings.Join(kinds, ", "); got != ", application/json, application/yaml" {
		t.Errorf("content types %q", got)
	}
}
