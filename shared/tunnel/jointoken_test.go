package tunnel_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/tunnel"
)

func token() tunnel.JoinToken {
	return tunnel.JoinToken{
		Addresses: []string{"hub.example.org:443", "[::1]:8443"},
		Pin:       tunnel.Pin{1, 2, 3},
		Secret:    tunnel.Secret(base64.RawURLEncoding.EncodeToString(make([]byte, 32))),
	}
}

func TestJoinToken(t *testing.T) {
	text, err := token().Encode()
	if err != nil {
		t.Fatal(err)
	}
	for name, as := range map[string]string{
		"AsIs":    text,
		"Wrapped": " " + text[:40] + "\n   " + text[40:] + "\r\n",
	} {
		got, err := tunnel.ParseJoinToken(as)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(token(), got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestJoinTokenHidesSecret(t *testing.T) {
	tok := token()
	b, _ := json.Marshal(tok)
	for _, shown := range []string{fmt.Sprint(tok), fmt.Sprintf("%+v", tok), fmt.Sprintf("%#v", tok), fmt.Sprintf("%q", tok), string(b)} {
		if strings.Contains(shown, string(tok.Secret)) {
			t.Errorf("SEC-C3 the secret is shown: %s", shown)
		}
	}
}

func encode(body string) string {
	return "capstan-join-v1." + base64.RawURLEncoding.EncodeToString([]byte(body))
}

func TestBadJoinTokens(t *testing.T) {
	pin, secret := tunnel.Pin{}.String(), strings.Repeat("A", 43)
	cases := map[string]string{
		"Empty":        "",
		"OtherVersion": strings.Replace(encode("{}"), "v1", "v2", 1),
		"NotBase64":    "capstan-join-v1.!!!",
		"Cut":          encode(`{"addresses":["h:1"],"pin":"` + pin + `","secret":"` + secret + `"}`)[:60],
		"NotJSON":      encode("hello"),
		"NoPin":        encode(`{"addresses":["h:1"],"secret":"` + secret + `"}`),
		"ShortPin":     encode(`{"addresses":["h:1"],"pin":"AAAA","secret":"` + secret + `"}`),
		"NoAddress":    encode(`{"addresses":[],"pin":"` + pin + `","secret":"` + secret + `"}`),
		"ManyAddress":  encode(`{"addresses":["h:1"` + strings.Repeat(`,"h:1"`, 20) + `],"pin":"` + pin + `","secret":"` + secret + `"}`),
		"URL":          encode(`{"addresses":["https://h:1"],"pin":"` + pin + `","secret":"` + secret + `"}`),
		"NoPort":       encode(`{"addresses":["hub"],"pin":"` + pin + `","secret":"` + secret + `"}`),
		"ShortSecret":  encode(`{"addresses":["h:1"],"pin":"` + pin + `","secret":"s3cret"}`),
		"Huge":         encode(strings.Repeat("x", 10000)),
	}
	for name, text := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := tunnel.ParseJoinToken(text)
			if fault.KindOf(err) != fault.Invalid {
				t.Fatalf("ParseJoinToken() = %v, want invalid", err)
			}
			if s := fault.Sentence(err); !strings.HasPrefix(s, "join token: ") || strings.Contains(s, "s3cret") || strings.Contains(s, secret) {
				t.Errorf("the error says %q", s)
			}
		})
	}
	if _, err := (tunnel.JoinToken{Addresses: []string{"hub"}, Secret: tunnel.Secret(secret)}).Encode(); err == nil {
		t.Error("a token that nobody could use was made")
	}
}

func FuzzParseJoinToken(f *testing.F) {
	good, _ := token().Encode()
	f.Add(good)
	f.Add(encode(`{"addresses":["h:1"],"pin":"","secret":""}`))
	f.Fuzz(func(t *testing.T, text string) {
		tok, err := tunnel.ParseJoinToken(text)
		if err != nil {
			if fault.KindOf(err) != fault.Invalid {
				t.Fatalf("error %v is not classified", err)
			}
			return
		}
		again, err := tok.Encode()
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		if back, err := tunnel.ParseJoinToken(again); err != nil || !cmp.Equal(tok, back) {
			t.Fatalf("%+v came back as %+v, %v", tok, back, err)
		}
	})
}

func TestParsePeer(t *testing.T) {
	good := "spiffe://capstan/tenant/t1/cluster/c1/agent/a1"
	cases := map[string]struct {
		uris []string
		ok   bool
	}{
		"Good":      {[]string{good}, true},
		"None":      {nil, false},
		"Two":       {[]string{good, good}, false},
		"Other":     {[]string{"spiffe://capstan/tenant/t1/agent/a1"}, false},
		"Domain":    {[]string{"spiffe://elsewhere/tenant/t1/cluster/c1/agent/a1"}, false},
		"Scheme":    {[]string{"https://capstan/tenant/t1/cluster/c1/agent/a1"}, false},
		"Empty":     {[]string{"spiffe://capstan/tenant//cluster/c1/agent/a1"}, false},
		"Longer":    {[]string{good + "/x"}, false},
		"Query":     {[]string{good + "?tenant=t2"}, false},
		"User":      {[]string{"spiffe://u@capstan/tenant/t1/cluster/c1/agent/a1"}, false},
		"Escape":    {[]string{"spiffe://capstan/tenant/t%31/cluster/c1/agent/a1"}, false},
		"Traversal": {[]string{"spiffe://capstan/tenant/t1%2Fcluster%2Fc2/cluster/c1/agent/a1"}, false},
	}
	for name, c := range cases {
		t.Run("SEC-K7 "+name, func(t *testing.T) {
			p, err := tunnel.ParsePeer(certificate(t, c.uris...).Leaf)
			if (err == nil) != c.ok {
				t.Fatalf("ParsePeer() = %+v, %v", p, err)
			}
			if want := (tunnel.Peer{Tenant: "t1", Cluster: "c1", AgentID: "a1", Serial: "1267"}); c.ok && p != want {
				t.Errorf("ParsePeer() = %+v, want %+v", p, want)
			}
			if err != nil && fault.KindOf(err) != fault.Unknown {
				t.Errorf("ParsePeer() = %v, want unknown", err)
			}
		})
	}
}
