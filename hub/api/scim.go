package api

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/api/gen"
	"github.com/capstan-cd/capstan/hub/api/scim"
	"github.com/capstan-cd/capstan/hub/catalog/transact"
	"github.com/capstan-cd/capstan/hub/identity"
	"github.com/capstan-cd/capstan/shared/apimodel"
	"github.com/capstan-cd/capstan/shared/clientip"
	"github.com/capstan-cd/capstan/shared/fault"
)

// ListSCIMTokens answers the tokens of identity providers.
func (s *Server) ListSCIMTokens(ctx context.Context, _ gen.ListSCIMTokensRequestObject) (gen.ListSCIMTokensResponseObject, error) {
	tokens, err := s.Catalog.SCIMTokens(ctx, callerOf(ctx))
	if err != nil {
		return nil, err
	}
	return gen.ListSCIMTokens200JSONResponse{Items: collect(tokens, presentSCIMToken)}, nil
}

// CreateSCIMToken makes a token of an identity provider.
func (s *Server) CreateSCIMToken(ctx context.Context, r gen.CreateSCIMTokenRequestObject) (gen.CreateSCIMTokenResponseObject, error) {
	secret, token := identity.NewSCIMToken(r.Body.Name)
	token, err := s.Catalog.CreateSCIMToken(ctx, callerOf(ctx), token, r.Body.ExpiresIn)
	if err != nil {
		return nil, err
	}
	return gen.CreateSCIMToken201JSONResponse{Token: secret, Info: presentSCIMToken(token)}, nil
}

// DeleteSCIMToken revokes a token of an identity provider.
func (s *Server) DeleteSCIMToken(ctx context.Context, r gen.DeleteSCIMTokenRequestObject) (gen.DeleteSCIMTokenResponseObject, error) {
	if err := s.Catalog.DeleteSCIMToken(ctx, callerOf(ctx), hub.TokenID(r.Id)); err != nil {
		return nil, err
	}
	return gen.DeleteSCIMToken204Response{}, nil
}

func presentSCIMToken(t hub.SCIMToken) apimodel.Token {
	return apimodel.Token{
		Id: string(t.ID), Name: t.Name, Prefix: t.Prefix, CreatedAt: t.CreatedAt.UTC(), ExpiresAt: t.ExpiresAt.UTC(), UsedAt: at(t.UsedAt),
	}
}

const (
	scimRoot = "/scim/v2"
	scimType = "application/scim+json"
	maxSCIM  = 4 << 20 // bytes of a body: a group of 50,000 members

	scimTries = 5 // of a change, while others change the same
)

// scim serves SCIM 2.0 to an identity provider with a token for it. It is not
// in the document of the API: RFC 7644 is its document.
func (s *Server) scim(c echo.Context) error {
	r := c.Request()
	from := callerOf(r.Context())
	if !s.limits.Address.Allow(clientip.Key(from.Address)) {
		return s.scimFailed(c, errTooFast())
	}
	secret := ""
	if scheme, value, found := strings.Cut(r.Header.Get("Authorization"), " "); found && strings.EqualFold(scheme, "bearer") {
		secret = strings.TrimSpace(value)
	}
	who, err := s.Identity.Provisioner(r.Context(), secret)
	if err != nil {
		return s.scimFailed(c, err)
	}
	if !s.limits.Caller.Allow(who.Credential) || !s.limits.Tenant.Allow(string(who.Tenant)) {
		return s.scimFailed(c, errTooFast())
	}
	who.Address, who.Request = from.Address, from.Request
	r = r.WithContext(context.WithValue(r.Context(), callerKey{}, who))
	c.SetRequest(r)
	q := &scimRequest{s: s, c: c, who: who, base: strings.TrimSuffix(s.cfg.ExternalURL, "/") + scimRoot}
	kind, id, _ := strings.Cut(strings.Trim(strings.TrimPrefix(r.URL.Path, scimRoot), "/"), "/")
	if err := q.serve(r.Context(), kind, id); err != nil {
		return s.scimFailed(c, err)
	}
	return nil
}

// scimFailed answers an error in the shape of RFC 7644.
func (s *Server) scimFailed(c echo.Context, err error) error {
	s.noteInternal(c, err)
	status, body := s.present(c, err)
	out := scim.Document{"schemas": []string{scim.ErrorSchema}, "status": strconv.Itoa(status), "detail": body.Message}
	e, _ := fault.As(err)
	switch {
	case e == nil:
	case e.Object == "filter":
		out["scimType"] = "invalidFilter"
	case e.Object == "invalidPath" || e.Object == "noTarget":
		out["scimType"] = e.Object
	case e.Code == transact.CodeStale:
		status, out["status"] = http.StatusPreconditionFailed, strconv.Itoa(http.StatusPreconditionFailed)
	case e.Kind == fault.Conflict:
		out["scimType"] = "uniqueness"
	case e.Kind == fault.Invalid:
		out["scimType"] = "invalidValue"
	}
	switch status {
	case http.StatusUnauthorized:
		c.Response().Header().Set("WWW-Authenticate", `Bearer realm="capstan"`)
	case http.StatusTooManyRequests:
		c.Response().Header().Set("Retry-After", "5")
	}
	return writeSCIM(c, status, out)
}

func writeSCIM(c echo.Context, status int, d any) error {
	b, err := json.Marshal(d)
	if err != nil {
		return err
	}
	return c.Blob(status, scimType, b)
}

// scimRequest is one request of an identity provider.
type scimRequest struct {
	s    *Server
	c    echo.Context
	who  hub.Caller
	base string
}

func (q *scimRequest) serve(ctx context.Context, kind, id string) error {
	switch kind {
	case "Users":
		return q.resource(ctx, id, scimUsers{q})
	case "Groups":
		return q.resource(ctx, id, scimGroups{q})
	}
	if q.c.Request().Method != http.MethodGet {
		return coded(fault.New(fault.Invalid, "this address does not take that method"), codeMethod)
	}
	switch kind {
	case "ServiceProviderConfig":
		return writeSCIM(q.c, http.StatusOK, scim.Config(q.base))
	case "ResourceTypes":
		return q.one(scim.ResourceTypes(q.base), id)
	case "Schemas":
		return q.one(scim.Schemas(q.base), id)
	}
	return errNoOperation()
}

// one answers a document of a fixed list by its id, or the list.
func (q *scimRequest) one(all []scim.Document, id string) error {
	if id == "" {
		return writeSCIM(q.c, http.StatusOK, scim.List(all, len(all), 1))
	}
	for _, d := range all {
		if d["id"] == id {
			return writeSCIM(q.c, http.StatusOK, d)
		}
	}
	return errNoOperation()
}

// scimKind is users or groups.
type scimKind interface {
	list(ctx context.Context, filter string, start, count int) (items []scim.Document, total int, err error)
	get(ctx context.Context, id string) (d scim.Document, version int64, err error)
	// put stores a document in place of that version; 0 makes a new one.
	put(ctx context.Context, id string, d scim.Document, version int64) (scim.Document, int64, error)
	remove(ctx context.Context, id string) error
}

func (q *scimRequest) resource(ctx context.Context, id string, k scimKind) error {
	method := q.c.Request().Method
	switch {
	case id == "" && method == http.MethodGet:
		return q.list(ctx, k)
	case id == "" && method == http.MethodPost:
		d, err := q.body()
		if err != nil {
			return err
		}
		d, version, err := k.put(ctx, "", d, 0)
		return q.answer(http.StatusCreated, d, version, err)
	case id == "":
		return coded(fault.New(fault.Invalid, "this address does not take that method"), codeMethod)
	}
	d, version, err := k.get(ctx, id)
	if err != nil {
		return err
	}
	if method == http.MethodGet {
		if q.c.Request().Header.Get("If-None-Match") == scim.ETag(version) {
			return q.c.NoContent(http.StatusNotModified)
		}
		return q.answer(http.StatusOK, d, version, nil)
	}
	if match := q.c.Request().Header.Get("If-Match"); match != "" && match != "*" && match != scim.ETag(version) {
		return transact.ErrStale("resource " + id)
	}
	switch method {
	case http.MethodDelete:
		if err := k.remove(ctx, id); err != nil {
			return err
		}
		return q.c.NoContent(http.StatusNoContent)
	case http.MethodPut, http.MethodPatch:
		return q.change(ctx, id, d, version, k)
	}
	return coded(fault.New(fault.Invalid, "this address does not take that method"), codeMethod)
}

// change replaces or patches a resource. Without If-Match, changes that come at
// once follow each other.
func (q *scimRequest) change(ctx context.Context, id string, d scim.Document, version int64, k scimKind) error {
	given, err := q.body()
	if err != nil {
		return err
	}
	for try := 1; ; try++ {
		if q.c.Request().Method == http.MethodPut {
			d = given
		} else if err := scim.Patch(d, given); err != nil {
			return err
		}
		changed, now, err := k.put(ctx, id, d, version)
		e, _ := fault.As(err)
		if e == nil || e.Code != transact.CodeStale || try == scimTries || q.c.Request().Header.Get("If-Match") != "" {
			return q.answer(http.StatusOK, changed, now, err)
		}
		if d, version, err = k.get(ctx, id); err != nil {
			return err
		}
	}
}

func (q *scimRequest) list(ctx context.Context, k scimKind) error {
	number := func(name string, usual int) int {
		n, err := strconv.Atoi(q.c.QueryParam(name))
		if err != nil {
			return usual
		}
		return n
	}
	start, count := max(1, number("startIndex", 1)), min(scim.MaxResults, max(0, number("count", 100)))
	items, total, err := k.list(ctx, q.c.QueryParam("filter"), start, count)
	if err != nil {
		return err
	}
	if items == nil {
		items = []scim.Document{}
	}
	for _, d := range items {
		q.only(d)
	}
	return writeSCIM(q.c, http.StatusOK, scim.List(items, total, start))
}

func (q *scimRequest) only(d scim.Document) {
	scim.Only(d, q.c.QueryParam("attributes"), q.c.QueryParam("excludedAttributes"))
}

func (q *scimRequest) answer(status int, d scim.Document, version int64, err error) error {
	if err != nil {
		return err
	}
	h := q.c.Response().Header()
	h.Set("ETag", scim.ETag(version))
	if m, ok := d["meta"].(map[string]any); ok && status == http.StatusCreated {
		location, _ := m["location"].(string)
		h.Set("Location", location)
	}
	q.only(d)
	return writeSCIM(q.c, status, d)
}

// body reads a JSON object.
func (q *scimRequest) body() (scim.Document, error) {
	r := q.c.Request()
	b, err := io.ReadAll(http.MaxBytesReader(q.c.Response(), r.Body, maxSCIM))
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return nil, errTooLarge(maxSCIM)
	}
	if err != nil {
		return nil, badRequest(err)
	}
	var d scim.Document
	if err := json.Unmarshal(b, &d); err != nil || d == nil {
		return nil, fault.New(fault.Invalid, "the body is no JSON object")
	}
	return d, nil
}

type scimUsers struct{ *scimRequest }

func (k scimUsers) list(ctx context.Context, filter string, start, count int) (out []scim.Document, total int, err error) {
	f, err := scim.UserFilter(filter)
	if err != nil || f.Nothing {
		return nil, 0, err
	}
	f.Start, f.Count = start, count
	users, total, err := k.s.Catalog.SCIMUsers(ctx, k.who, f.SCIMQuery)
	for _, u := range users {
		d, err := scim.FromUser(u, k.base)
		if err != nil {
			return nil, 0, err
		}
		out = append(out, d)
	}
	return out, total, err
}

func (k scimUsers) get(ctx context.Context, id string) (scim.Document, int64, error) {
	users, _, err := k.s.Catalog.SCIMUsers(ctx, k.who, hub.SCIMQuery{ID: id, Start: 1, Count: 1})
	if err != nil {
		return nil, 0, err
	}
	if len(users) == 0 {
		return nil, 0, fault.New(fault.Missing, "there is no such user")
	}
	d, err := scim.FromUser(users[0], k.base)
	return d, users[0].Version, err
}

func (k scimUsers) put(ctx context.Context, id string, d scim.Document, version int64) (scim.Document, int64, error) {
	u, err := scim.ToUser(d)
	if err != nil {
		return nil, 0, err
	}
	u.ID, u.Version = hub.UserID(id), version
	if u, err = k.s.Catalog.PutSCIMUser(ctx, k.who, u); err != nil {
		return nil, 0, err
	}
	k.s.Identity.ForgetTenant(k.who.Tenant)
	return k.get(ctx, string(u.ID))
}

func (k scimUsers) remove(ctx context.Context, id string) error {
	err := k.s.Catalog.DeleteSCIMUser(ctx, k.who, hub.UserID(id))
	k.s.Identity.ForgetTenant(k.who.Tenant)
	return err
}

type scimGroups struct{ *scimRequest }

func (k scimGroups) list(ctx context.Context, filter string, start, count int) (out []scim.Document, total int, err error) {
	f, err := scim.GroupFilter(filter)
	if err != nil || f.Nothing {
		return nil, 0, err
	}
	f.Start, f.Count = start, count
	f.NoMembers = strings.Contains(strings.ToLower(k.c.QueryParam("excludedAttributes")), "members")
	groups, total, err := k.s.Catalog.SCIMGroups(ctx, k.who, f.SCIMQuery)
	for _, g := range groups {
		out = append(out, scim.FromGroup(g, k.base))
	}
	return out, total, err
}

func (k scimGroups) get(ctx context.Context, id string) (scim.Document, int64, error) {
	groups, _, err := k.s.Catalog.SCIMGroups(ctx, k.who, hub.SCIMQuery{ID: id, Start: 1, Count: 1})
	if err != nil {
		return nil, 0, err
	}
	if len(groups) == 0 {
		return nil, 0, fault.New(fault.Missing, "there is no such group")
	}
	return scim.FromGroup(groups[0], k.base), groups[0].Version, nil
}

func (k scimGroups) put(ctx context.Context, id string, d scim.Document, version int64) (scim.Document, int64, error) {
	g, err := scim.ToGroup(d)
	if err != nil {
		return nil, 0, err
	}
	g.ID, g.Version = id, version
	g, err = k.s.Catalog.PutSCIMGroup(ctx, k.who, g)
	if err != nil {
		if fault.KindOf(err) == fault.Missing { // the group itself was there a moment ago
			err = fault.New(fault.Invalid, "a member is no user of this organisation")
		}
		return nil, 0, err
	}
	k.s.Identity.ForgetTenant(k.who.Tenant)
	return k.get(ctx, g.ID)
}

func (k scimGroups) remove(ctx context.Context, id string) error {
	err := k.s.Catalog.DeleteSCIMGroup(ctx, k.who, id)
	k.s.Identity.ForgetTenant(k.who.Tenant)
	return err
}
