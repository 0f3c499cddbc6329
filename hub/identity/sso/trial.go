package sso

import (
	"cmp"
	"context"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/identity/connector"
	"github.com/capstan-cd/capstan/hub/settings"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/logkey"
)

// A Trial is how an admin asks to test a sign-in.
type Trial struct {
	Provider string // id; empty: the first one
	Draft    hub.SignInDraft
	Host     string // under which the browser has reached the console
	Browser  string // the secret that it gets
}

// A Begun is a test that waits for the browser.
type Begun struct {
	Test    hub.SignInTest
	Address string // of the provider, to send the browser to
	Posts   bool   // the browser will come back with a form
}

// BeginTest begins a sign-in that is a test: it runs as every other, and ends
// with a report instead of a session. The draft counts in place of what is stored.
func (s *Service) BeginTest(ctx context.Context, by hub.Caller, r Trial) (Begun, error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	if err := s.MayTestSignIn(ctx, by, r.Draft); err != nil {
		return Begun{}, err
	}
	set, err := s.drafted(ctx, by.Tenant, r.Draft)
	if err != nil {
		return Begun{}, err
	}
	all := s.made(set)
	p, err := find(all, cmp.Or(r.Provider, first(all)))
	if err != nil {
		return Begun{}, err
	}
	if p.redirect == nil {
		return Begun{}, fault.With(fault.New(fault.Invalid, "this provider checks a name and a password, and sends no browser anywhere"), "provider "+p.Name,
			"test it on the sign-in page, in another browser")
	}
	request, kept, err := s.begun(by.Tenant, set, p, Start{Host: r.Host, Browser: r.Browser})
	if err != nil {
		return Begun{}, err
	}
	address, err := p.redirect.Begin(ctx, request)
	if err != nil {
		return Begun{}, err
	}
	t := hub.SignInTest{
		ID: hub.NewID[hub.SignInTestID](), User: by.User, Provider: p.ID, Name: p.Name, Callback: kept.Callback, Draft: r.Draft,
		StartedAt: s.Now(), ExpiresAt: s.Now().Add(hub.SignInTestLasts),
	}
	kept.Test = t.ID
	return Begun{Test: t, Address: address, Posts: p.posts}, s.BeginSignInTest(ctx, by, t, kept)
}

// first is the id of the first provider for people, even of one that cannot be
// used: a test says why.
func first(all []provider) string {
	for _, p := range all {
		if !p.machine && p.Kind == KindRedirect {
			return p.ID
		}
	}
	return ""
}

// drafted are the settings of a tenant with a draft in their place.
func (s *Service) drafted(ctx context.Context, tenant hub.TenantID, draft hub.SignInDraft) (hub.SignInSettings, error) {
	set, err := s.SignInSettings(ctx, tenant)
	if err != nil {
		return set, err
	}
	out := hub.SignInSettings{Values: maps.Clone(set.Values), Scopes: set.Scopes, Secrets: maps.Clone(set.Secrets)}
	maps.Copy(out.Values, draft.Values)
	for _, reference := range settings.References(out.Values) {
		if _, there := out.Secrets[reference]; there {
			continue
		}
		name, key := settings.Referred(reference)
		value, found, err := s.SignInSecret(ctx, tenant, name, key)
		if err != nil {
			return out, err
		}
		if found {
			out.Secrets[reference] = value
		}
	}
	maps.Copy(out.Secrets, draft.Secrets)
	return out, nil
}

// finishTest writes the report of a test. Whatever becomes of it, there is no
// session and no account.
func (s *Service) finishTest(ctx context.Context, from hub.Caller, t hub.Tenant, begun hub.SignIn, state string, a Answer) (Session, error) {
	test, err := s.TakeSignInDraft(ctx, t.ID, begun.Test)
	if err != nil {
		if fault.KindOf(err) == fault.Missing {
			err = errState()
		}
		return Session{}, err
	}
	report, err := s.assess(ctx, t, test, begun, state, a)
	if err != nil {
		report.Problem = s.problem(ctx, err)
	}
	report.At = s.Now()
	out := Session{Test: true, ReturnTo: "/access?" + url.Values{"tab": {"sign-in"}, "test": {string(test.ID)}}.Encode()}
	return out, s.FinishSignInTest(ctx, from, t.ID, test, report)
}

// problem is an error as the report says it.
func (s *Service) problem(ctx context.Context, err error) *hub.SignInProblem {
	e, ok := fault.As(err)
	if !ok || e.Kind == fault.Internal {
		s.Log.ErrorContext(ctx, "a test sign-in failed in the hub", logkey.Error, err)
		return &hub.SignInProblem{Cause: "something went wrong in the hub", Fix: "try again, and tell the operator of the hub"}
	}
	return &hub.SignInProblem{Object: e.Object, Cause: e.Cause, Fix: e.Fix}
}

// assess does what a sign-in does, up to the session, and reports what it saw.
// With an error, the report has what was known by then.
func (s *Service) assess(ctx context.Context, t hub.Tenant, test hub.SignInTest, begun hub.SignIn, state string, a Answer) (hub.SignInReport, error) {
	var out hub.SignInReport
	set, err := s.drafted(ctx, t.ID, test.Draft)
	if err != nil {
		return out, err
	}
	out.Scopes = settings.Scopes(set.Scopes)
	p, id, err := s.answered(ctx, set, s.made(set), begun, state, a)
	describe(&out, id)
	if err != nil {
		return out, err
	}
	if id.Subject == "" {
		return out, fault.New(fault.Unknown, "the provider does not say who this is")
	}
	values := subjects(id, out.Scopes)
	if out.Subjects, err = s.Subjects(ctx, t.ID, values); err != nil {
		return out, err
	}
	for _, v := range values {
		if v != "" && !slices.Contains(out.Subjects, v) && !slices.Contains(out.Ignored, v) {
			out.Ignored = append(out.Ignored, v)
		}
	}
	account, known, err := s.ExpectedAccount(ctx, t.ID, hub.Person{Provider: p.ID, Realm: p.realm, Subject: id.Subject, Label: label(id)})
	if err != nil {
		return out, err
	}
	out.Account, out.Known, out.Roles, out.Disabled = account.Name, known, account.Roles, account.Disabled
	if out.Disabled {
		return out, fault.With(fault.New(fault.Denied, "the account is disabled"), "account "+account.Name, "enable the account under Members")
	}
	return out, nil
}

// describe notes what a provider has said, without what only serves the protocol.
func describe(r *hub.SignInReport, id connector.Identity) {
	r.Subject, r.Username, r.Email, r.Name, r.EmailVerified, r.Groups = id.Subject, id.Username, id.Email, id.Name, id.EmailVerified, id.Groups
	r.Claims = map[string][]string{}
	for name, values := range id.Claims {
		if !slices.Contains(ofProtocol, strings.ToLower(name)) {
			r.Claims[name] = values
		}
	}
}

// ofProtocol are claims that tie a token to a sign-in or to another token.
var ofProtocol = []string{"nonce", "at_hash", "c_hash", "s_hash", "sid", "jti", "rat", "uti", "rh", "access_token", "refresh_token", "id_token"}
