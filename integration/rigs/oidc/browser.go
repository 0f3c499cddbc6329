package oidc

import (
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"testing"
)

// A Browser follows redirects and sends the provider's forms, as a person would
// who agrees to everything. It stops in front of addresses that begin with one
// of its Halts.
type Browser struct {
	tb     testing.TB
	Client *http.Client
	Halts  []string
}

// NewBrowser makes a browser without any cookie.
func NewBrowser(tb testing.TB) *Browser {
	tb.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		tb.Fatal(err)
	}
	b := &Browser{tb: tb}
	b.Client = &http.Client{Jar: jar, CheckRedirect: func(r *http.Request, via []*http.Request) error {
		for _, h := range b.Halts {
			if strings.HasPrefix(r.URL.String(), h) {
				return http.ErrUseLastResponse
			}
		}
		if len(via) > 20 {
			return fmt.Errorf("too many redirects")
		}
		return nil
	}}
	return b
}

var (
	formAction = regexp.MustCompile(`(?s)<form[^>]*action="([^"]+)"`)
	formInput  = regexp.MustCompile(`(?s)<input[^>]*type="hidden"[^>]*name="([^"]+)"[^>]*value="([^"]*)"`)
	abortLink  = regexp.MustCompile(`href="([^"]*/abort)"`)
)

// SignIn opens an address that leads to the provider, signs in as an account,
// and returns where it ended: the last answer, or the address in front of which
// it stopped. With agree false it declines at the consent.
func (b *Browser) SignIn(address, account string, agree bool) (end string, resp *http.Response) {
	b.tb.Helper()
	resp = b.get(address)
	for range 8 {
		if at := resp.Header.Get("Location"); at != "" {
			return at, resp
		}
		page := b.read(resp)
		action := formAction.FindStringSubmatch(page)
		if action == nil || !strings.Contains(resp.Request.URL.Path, "/interaction/") {
			return resp.Request.URL.String(), resp
		}
		if abort := abortLink.FindStringSubmatch(page); !agree && abort != nil {
			resp = b.get(resolve(resp, abort[1]))
			continue
		}
		form := url.Values{}
		for _, in := range formInput.FindAllStringSubmatch(page, -1) {
			form.Set(in[1], html.UnescapeString(in[2]))
		}
		if form.Get("prompt") == "login" {
			form.Set("login", account)
			form.Set("password", "any")
		}
		r, err := http.NewRequestWithContext(b.tb.Context(), http.MethodPost, resolve(resp, html.UnescapeString(action[1])), strings.NewReader(form.Encode()))
		if err != nil {
			b.tb.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		resp = b.do(r)
	}
	b.tb.Fatalf("the sign-in does not end: %s", resp.Request.URL)
	return "", nil
}

func (b *Browser) get(address string) *http.Response {
	b.tb.Helper()
	r, err := http.NewRequestWithContext(b.tb.Context(), http.MethodGet, address, nil)
	if err != nil {
		b.tb.Fatal(err)
	}
	return b.do(r)
}

func (b *Browser) do(r *http.Request) *http.Response {
	b.tb.Helper()
	resp, err := b.Client.Do(r)
	if err != nil {
		b.tb.Fatal(err)
	}
	return resp
}

func (b *Browser) read(resp *http.Response) string {
	b.tb.Helper()
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		b.tb.Fatal(err)
	}
	return string(text)
}

func resolve(resp *http.Response, ref string) string {
	u, err := resp.Request.URL.Parse(ref)
	if err != nil {
		return ref
	}
	return u.String()
}
