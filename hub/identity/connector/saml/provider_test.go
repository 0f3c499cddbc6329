package saml

import (
	"context"
	"html"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/hub/identity/connector"
	rig "github.com/capstan-cd/capstan/integration/rigs/saml"
	"github.com/capstan-cd/capstan/shared/fault"
)

const callback = "https://hub.example.com/api/dex/callback"

func request(state string) connector.Request {
	return connector.Request{State: state, Nonce: "nonce", Verifier: "verifier", Callback: callback}
}

var hidden = regexp.MustCompile(`<input type="hidden" name="(\w+)" value="([^"]*)">`)

// signIn is what a browser does at the provider.
func signIn(t *testing.T, ctx context.Context, address, user string) url.Values {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address+"&user="+user, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(page), `action="`+callback+`"`) {
		t.Fatalf("the provider answers %d: %s %v", resp.StatusCode, page, err)
	}
	answer := url.Values{}
	for _, m := range hidden.FindAllStringSubmatch(string(page), -1) {
		answer.Set(m[1], html.UnescapeString(m[2]))
	}
	return answer
}

func TestProvider(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]rig.Options{
		"signs assertions": {SignAssertion: true},
		"signs responses":  {SignResponse: true},
		"signs both":       {SignAssertion: true, SignResponse: true},
	} {
		t.Run("AUTH-08 SAML accepts a provider that "+name, func(t *testing.T) {
			t.Parallel()
			o.People = map[string]rig.Person{"jane": {Name: "jane-id", Attributes: map[string][]string{
				"mail": {"jane@example.com"}, "name": {"Jane & <Doe>"}, "groups": {"sre", "ops, night", "dev"}, "roles": {"a,b"},
			}}}
			s := rig.New(t, o)
			c, err := New(Config{
				SSOURL: s.URL, CAData: s.Certificate, SSOIssuer: s.Issuer, UsernameAttr: "name", EmailAttr: "mail", GroupsAttr: "groups",
				AllowedGroups: []string{"sre"},
			}, time.Now)
			if err != nil {
				t.Fatal(err)
			}
			to, err := c.Begin(t.Context(), request("state+1/="))
			if err != nil {
				t.Fatal(err)
			}
			answer := signIn(t, t.Context(), to, "jane")
			got, err := c.Finish(t.Context(), request("state+1/="), answer)
			if err != nil {
				t.Fatal(err)
			}
			want := connector.Identity{
				Subject: "jane-id", Username: "Jane & <Doe>", Email: "jane@example.com", EmailVerified: true, Groups: []string{"sre", "ops, night", "dev"},
				Claims: map[string][]string{"mail": {"jane@example.com"}, "name": {"Jane & <Doe>"}, "groups": {"sre", "ops, night", "dev"}, "roles": {"a,b"}},
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			// The same answer for another sign-in.
			answer.Set("RelayState", "state-2")
			if _, err := c.Finish(t.Context(), request("state-2"), answer); fault.KindOf(err) != fault.Unknown {
				t.Errorf("a replayed answer is accepted: %v", err)
			}
		})
	}
}
