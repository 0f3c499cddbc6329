package api

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/api/gen"
	"github.com/capstan-cd/capstan/hub/catalog/tenancy"
	"github.com/capstan-cd/capstan/hub/identity/sso"
	"github.com/capstan-cd/capstan/hub/settings"
	"github.com/capstan-cd/capstan/shared/apimodel"
)

// StartSignInTest begins a sign-in that ends with a report.
func (s *Server) StartSignInTest(ctx context.Context, r gen.StartSignInTestRequestObject) (gen.StartSignInTestResponseObject, error) {
	trial := sso.Trial{Provider: r.Body.Provider, Host: hostOf(ctx), Browser: sso.NewBrowser()}
	trial.Draft = hub.SignInDraft{Values: map[string]string{}, Secrets: r.Body.Secrets}
	for key, value := range map[string]string{settings.OIDCKey: r.Body.Values.OidcConfig, settings.DexKey: r.Body.Values.DexConfig} {
		if value != "" {
			trial.Draft.Values[key] = value
		}
	}
	begun, err := s.SignIn.BeginTest(ctx, callerOf(ctx), trial)
	if err != nil {
		return nil, err
	}
	return testStarted{
		cookie: s.browserCookie(trial.Browser, browserAge, begun.Posts),
		body:   apimodel.NewSignInTest{Id: string(begun.Test.ID), Url: begun.Address, Provider: begun.Test.Name, Callback: begun.Test.Callback},
	}, nil
}

// testStarted is the response that also gives the browser its secret.
type testStarted struct {
	cookie *http.Cookie
	body   apimodel.NewSignInTest
}

// VisitStartSignInTestResponse writes the answer.
func (a testStarted) VisitStartSignInTestResponse(w http.ResponseWriter) error {
	return gen.StartSignInTest201JSONResponse{Body: a.body, Headers: gen.StartSignInTest201ResponseHeaders{SetCookie: a.cookie.String()}}.VisitStartSignInTestResponse(w)
}

// GetSignInTest answers a test sign-in of the caller.
func (s *Server) GetSignInTest(ctx context.Context, r gen.GetSignInTestRequestObject) (gen.GetSignInTestResponseObject, error) {
	t, err := s.Catalog.SignInTest(ctx, callerOf(ctx), hub.SignInTestID(r.Id))
	if err != nil {
		return nil, err
	}
	return gen.GetSignInTest200JSONResponse(presentSignInTest(t)), nil
}

func presentSignInTest(t tenancy.SignInOutcome) apimodel.SignInTest {
	out := apimodel.SignInTest{
		Id: string(t.ID), State: apimodel.SignInTestStateWaiting, Provider: t.Name, Callback: t.Callback, StartedAt: t.StartedAt.UTC(), ExpiresAt: t.ExpiresAt.UTC(),
	}
	report := t.Report
	if report == nil {
		return out
	}
	out.State = apimodel.SignInTestStatePassed
	if report.Problem != nil {
		out.State = apimodel.SignInTestStateFailed
		out.Problem = apimodel.SignInTestProblem{Object: report.Problem.Object, Cause: report.Problem.Cause, Fix: report.Problem.Fix}
	}
	out.Subject, out.Username, out.Email, out.EmailVerified, out.Groups, out.Ignored = report.Subject, report.Username, report.Email, report.EmailVerified, report.Groups, report.Ignored
	for _, name := range slices.Sorted(maps.Keys(report.Claims)) {
		out.Claims = append(out.Claims, apimodel.SignInTestClaim{Name: name, Values: texts(report.Claims[name])})
	}
	if out.State == apimodel.SignInTestStateFailed {
		return out
	}
	out.Account, out.AccountExists, out.Roles = report.Account, report.Known, report.Roles
	for _, m := range t.Mapped {
		out.Mapped = append(out.Mapped, apimodel.SignInTestSubject{Subject: m.Subject, Roles: texts(m.Roles), Named: m.Rules})
	}
	out.Permissions = permissions(t.Rights)
	out.Warnings = testWarnings(t, len(out.Permissions))
	return out
}

// testWarnings are what is odd about a test that has passed.
func testWarnings(t tenancy.SignInOutcome, rights int) (out []string) {
	report := t.Report
	byGroups := slices.Contains(report.Scopes, "groups")
	switch {
	case byGroups && len(report.Groups) == 0:
		out = append(out, "The provider sent no groups, so policies cannot name any: let it send them for this client, ask for them with requestedScopes or requestedIDTokenClaims, and name the claim if it is not groups.")
	case byGroups && !slices.ContainsFunc(t.Mapped, func(m tenancy.SubjectRoles) bool { return m.Rules }):
		out = append(out, "The policy and the projects name none of these values: give one of the groups a role under Policy, such as g, GROUP, role:readonly.")
	case !byGroups && len(report.Groups) > 0:
		out = append(out, "The provider sent groups, but scopes of argocd-rbac-cm does not list groups, so they give nothing.")
	}
	if report.Email != "" && !report.EmailVerified && slices.Contains(report.Scopes, "email") {
		out = append(out, "The provider does not say that the address is verified, so policies cannot name it.")
	}
	for _, name := range report.Ignored {
		out = append(out, fmt.Sprintf("%q gives nothing: a role or a local account is called so.", name))
	}
	if rights == 0 {
		out = append(out, "This person would have no right at all.")
	}
	return out
}
