package api

import (
	"cmp"
	"context"
	"encoding/json"
	"strings"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/api/gen"
	"github.com/capstan-cd/capstan/hub/identity"
	"github.com/capstan-cd/capstan/shared/apimodel"
)

// ListRoleTokens answers the tokens of a role of a project.
func (s *Server) ListRoleTokens(ctx context.Context, r gen.ListRoleTokensRequestObject) (gen.ListRoleTokensResponseObject, error) {
	tokens, err := s.Catalog.RoleTokens(ctx, callerOf(ctx), r.Name, r.Role)
	if err != nil {
		return nil, err
	}
	return gen.ListRoleTokens200JSONResponse{Items: collect(tokens, presentRoleToken)}, nil
}

// CreateRoleToken makes a token of a role of a project.
func (s *Server) CreateRoleToken(ctx context.Context, r gen.CreateRoleTokenRequestObject) (gen.CreateRoleTokenResponseObject, error) {
	secret, token := identity.NewRoleToken(r.Name, r.Role, r.Body.Name)
	token.Name = cmp.Or(token.Name, madeUpName(token.ID))
	token, err := s.Catalog.CreateRoleToken(ctx, callerOf(ctx), token, r.Body.ExpiresIn)
	if err != nil {
		return nil, err
	}
	return gen.CreateRoleToken201JSONResponse{Token: secret, Info: presentRoleToken(token)}, nil
}

// madeUpName is the name of a token that was given none.
func madeUpName(id hub.TokenID) string { return "t-" + strings.ReplaceAll(string(id), "-", "") }

// DeleteRoleToken revokes a token of a role of a project.
func (s *Server) DeleteRoleToken(ctx context.Context, r gen.DeleteRoleTokenRequestObject) (gen.DeleteRoleTokenResponseObject, error) {
	who := callerOf(ctx)
	if err := s.Catalog.DeleteRoleToken(ctx, who, r.Name, r.Role, r.Id); err != nil {
		return nil, err
	}
	s.Identity.ForgetTenant(who.Tenant)
	return gen.DeleteRoleToken204Response{}, nil
}

func presentRoleToken(t hub.RoleToken) apimodel.Token {
	return apimodel.Token{
		Id: string(t.ID), Name: t.Name, Prefix: t.Prefix, CreatedAt: t.CreatedAt.UTC(), ExpiresAt: t.ExpiresAt.UTC(), UsedAt: at(t.UsedAt),
	}
}

// projectStatus is the status of an AppProject as Argo CD shows it: its tokens by
// role. It is empty without tokens.
func projectStatus(tokens []hub.RoleToken) (json.RawMessage, error) {
	if len(tokens) == 0 {
		return nil, nil
	}
	type token struct {
		ID  string `json:"id"`
		IAT int64  `json:"iat"`
		EXP int64  `json:"exp"`
	}
	type list struct {
		Items []token `json:"items"`
	}
	byRole := map[string]list{}
	for _, t := range tokens {
		l := byRole[t.Role]
		l.Items = append(l.Items, token{t.Name, t.CreatedAt.Unix(), t.ExpiresAt.Unix()})
		byRole[t.Role] = l
	}
	return json.Marshal(map[string]any{"jwtTokensByRole": byRole})
}
