package api

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/capstan-cd/capstan/hub/api/gen"
	"github.com/capstan-cd/capstan/hub/identity"
	"github.com/capstan-cd/capstan/hub/identity/sso"
	"github.com/capstan-cd/capstan/shared/apimodel"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/logkey"
)

// browserAge is how long a browser keeps the secret of its sign-ins, in
// seconds: a little longer than one lasts.
const browserAge = 660

type hostKey struct{}

// hostOf is the host under which the caller has reached the hub.
func hostOf(ctx context.Context) string {
	v, _ := ctx.Value(hostKey{}).(string)
	return v
}

// ListSignInProviders answers the identity providers of a tenant.
func (s *Server) ListSignInProviders(ctx context.Context, r gen.ListSignInProvidersRequestObject) (gen.ListSignInProvidersResponseObject, error) {
	all, text, err := s.SignIn.Providers(ctx, cmp.Or(r.Params.Tenant, defaultTenant))
	if err != nil {
		return nil, err
	}
	return gen.ListSignInProviders200JSONResponse{ButtonText: text, Items: collect(all, func(p sso.Provider) apimodel.SignInProvider {
		return apimodel.SignInProvider{Id: p.ID, Name: p.Name, Kind: apimodel.SignInProviderKind(p.Kind)}
	})}, nil
}

// loginBy signs a person in whose password a provider checks.
func (s *Server) loginBy(ctx context.Context, provider string, c identity.Credential, mode apimodel.SignInMode) (gen.LoginResponseObject, error) {
	in, err := s.SignIn.Login(ctx, from(ctx), provider, c)
	if err != nil {
		return nil, err
	}
	answer, err := s.signIn(ctx, in.Secret, in.Caller, in.Expires, mode)
	if err != nil {
		return nil, err
	}
	return gen.Login200JSONResponse{SignedInAnswerJSONResponse: answer}, nil
}

// ExchangeSignInCode begins the session of a command line.
func (s *Server) ExchangeSignInCode(ctx context.Context, r gen.ExchangeSignInCodeRequestObject) (gen.ExchangeSignInCodeResponseObject, error) {
	in, err := s.SignIn.Exchange(ctx, from(ctx), r.Body.Code, r.Body.Verifier)
	if err != nil {
		return nil, err
	}
	answer, err := s.signIn(ctx, in.Secret, in.Caller, in.Expires, apimodel.SignInModeToken)
	if err != nil {
		return nil, err
	}
	return gen.ExchangeSignInCode200JSONResponse{SignedInAnswerJSONResponse: answer}, nil
}

// beginSignIn sends a browser to an identity provider.
func (s *Server) beginSignIn(c echo.Context) error {
	ctx, q := c.Request().Context(), c.QueryParams()
	start := sso.Start{
		Tenant: cmp.Or(q.Get("tenant"), defaultTenant), Provider: q.Get("provider"), ReturnTo: q.Get("return_url"), Host: hostOf(ctx),
		Browser: s.browser(c), Client: q.Get("client"), Challenge: q.Get("code_challenge"), Hint: q.Get("login_hint"),
	}
	if start.Browser == "" {
		start.Browser = sso.NewBrowser()
	}
	address, posts, err := s.SignIn.Begin(ctx, start)
	if err != nil {
		return s.signInFailed(c, q.Get("tenant"), err)
	}
	c.SetCookie(s.browserCookie(start.Browser, browserAge, posts))
	return c.Redirect(http.StatusSeeOther, address)
}

// finishSignIn receives a browser that comes back from a provider.
func (s *Server) finishSignIn(c echo.Context) error {
	r := c.Request()
	values := c.QueryParams()
	if r.Method == http.MethodPost {
		if err := r.ParseForm(); err != nil {
			return s.signInFailed(c, "", fault.Wrap(fault.Invalid, err, "the form cannot be read"))
		}
		values = r.PostForm
	}
	in, err := s.SignIn.Finish(r.Context(), from(r.Context()), sso.Answer{
		Path: r.URL.Path, Host: hostOf(r.Context()), Browser: s.browser(c), Values: values,
	})
	if in.Test && err == nil { // whoever is signed in in this browser stays so
		c.SetCookie(s.browserCookie("", -1, false))
		return c.Redirect(http.StatusSeeOther, s.root.Under(in.ReturnTo))
	}
	if s.Metrics != nil {
		s.Metrics.Login(err == nil)
	}
	if err != nil && in.Client == "" {
		return s.signInFailed(c, "", err)
	}
	c.SetCookie(s.browserCookie("", -1, false))
	if in.Client != "" {
		return c.Redirect(http.StatusSeeOther, in.Client)
	}
	c.Response().Header().Add("Set-Cookie", s.setCookie(in.Secret, int(time.Until(in.Expires).Seconds())))
	return c.Redirect(http.StatusSeeOther, s.root.Under(in.ReturnTo))
}

// signInFailed sends a browser to the sign-in page with a word for the reason.
// The page shows no text of its address.
func (s *Server) signInFailed(c echo.Context, tenant string, err error) error {
	ctx := c.Request().Context()
	reason := sso.Reason(err)
	if reason == "internal" {
		s.noteInternal(c, err)
	} else {
		s.Log.InfoContext(ctx, "a sign-in by an identity provider failed", logkey.Request, requestID(c), logkey.Error, err)
	}
	q := url.Values{"problem": {reason}}
	if tenant != "" {
		q.Set("tenant", tenant)
	}
	return c.Redirect(http.StatusSeeOther, s.root.Under("/login?")+q.Encode())
}

// browserName is the name of the cookie that binds sign-ins to a browser.
func (s *Server) browserName() string { return s.root.CookieName("capstan_sign_in", s.secure()) }

// browser is the secret that a browser holds for its sign-ins.
func (s *Server) browser(c echo.Context) string {
	k, err := c.Cookie(s.browserName())
	if err != nil || len(k.Value) != len(sso.NewBrowser()) {
		return ""
	}
	return k.Value
}

// browserCookie gives a browser its secret. A provider that sends a form does
// so from another site, where only a cookie without a limit is sent along; the
// browsers take such a one only where TLS is, and else keep to their default.
func (s *Server) browserCookie(secret string, age int, posts bool) *http.Cookie {
	site := http.SameSiteLaxMode
	if posts {
		site = http.SameSiteNoneMode
		if !s.secure() {
			site = http.SameSiteDefaultMode
		}
	}
	return &http.Cookie{ //nolint:gosec // Secure wherever the hub is reached by https
		Name: s.browserName(), Value: secret, Path: s.root.Cookie(), MaxAge: age, HttpOnly: true, Secure: s.secure(), SameSite: site,
	}
}
