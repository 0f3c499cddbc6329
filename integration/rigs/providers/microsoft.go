package providers

import (
	"crypto/rand"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
)

// A Microsoft follows learn.microsoft.com: "Microsoft identity platform and
// OAuth 2.0 authorization code flow", and of Microsoft Graph 1.0 "Get a user"
// (/me), "user: getMemberGroups", "directoryObject: getByIds" (at most 1,000
// ids) and "Paging" (@odata.nextLink).
type Microsoft struct {
	Tenant        string
	ID            string
	DisplayName   string
	PrincipalName string
	MailNickname  string
	Groups        []MicrosoftGroup
	PageSize      int // how many ids one answer has; zero: all
}

// A MicrosoftGroup is a group of the person.
type MicrosoftGroup struct {
	ID, Name string
	Security bool
}

func random() string { return rand.Text() }

func (s *Server) serveMicrosoft(w http.ResponseWriter, r *http.Request) {
	m := s.Microsoft
	switch r.Host + r.URL.Path {
	case "login.microsoftonline.com/" + m.Tenant + "/oauth2/v2.0/authorize":
		s.authorize(w, r)
		return
	case "login.microsoftonline.com/" + m.Tenant + "/oauth2/v2.0/token":
		if _, ok := s.exchange(w, r); ok {
			reply(w, http.StatusOK, map[string]any{"access_token": s.token(), "token_type": "Bearer", "expires_in": 3600})
		}
		return
	}
	if r.Host != "graph.microsoft.com" {
		http.NotFound(w, r)
		return
	}
	if !s.authorized(w, r) {
		return
	}
	switch r.URL.Path {
	case "/v1.0/me":
		reply(w, http.StatusOK, map[string]any{
			"id": m.ID, "displayName": m.DisplayName, "userPrincipalName": m.PrincipalName, "mailNickname": m.MailNickname, "onPremisesSamAccountName": nil,
		})
	case "/v1.0/me/getMemberGroups":
		s.memberGroups(w, r)
	case "/v1.0/directoryObjects/getByIds":
		s.byIDs(w, r)
	default:
		reply(w, http.StatusNotFound, map[string]any{"error": map[string]string{"code": "Request_ResourceNotFound"}})
	}
}

func (s *Server) memberGroups(w http.ResponseWriter, r *http.Request) {
	var in struct {
		SecurityEnabledOnly *bool `json:"securityEnabledOnly"`
	}
	if r.Method != http.MethodPost || json.NewDecoder(r.Body).Decode(&in) != nil || in.SecurityEnabledOnly == nil {
		reply(w, http.StatusBadRequest, map[string]any{"error": map[string]string{"code": "Request_BadRequest"}})
		return
	}
	ids := []string{}
	for _, g := range s.Microsoft.Groups {
		if g.Security || !*in.SecurityEnabledOnly {
			ids = append(ids, g.ID)
		}
	}
	from, _ := strconv.Atoi(r.URL.Query().Get("$skiptoken"))
	to := len(ids)
	answer := map[string]any{}
	if size := s.Microsoft.PageSize; size > 0 && from+size < len(ids) {
		to = from + size
		answer["@odata.nextLink"] = "https://" + r.Host + r.URL.Path + "?$skiptoken=" + strconv.Itoa(to)
	}
	answer["value"] = ids[min(from, len(ids)):to]
	reply(w, http.StatusOK, answer)
}

func (s *Server) byIDs(w http.ResponseWriter, r *http.Request) {
	var in struct {
		IDs   []string `json:"ids"`
		Types []string `json:"types"`
	}
	if r.Method != http.MethodPost || json.NewDecoder(r.Body).Decode(&in) != nil || len(in.IDs) == 0 || len(in.IDs) > 1000 || strings.Join(in.Types, ",") != "group" {
		reply(w, http.StatusBadRequest, map[string]any{"error": map[string]string{"code": "Request_BadRequest"}})
		return
	}
	wanted := map[string]bool{}
	for _, id := range in.IDs {
		wanted[id] = true
	}
	groups := []map[string]string{}
	for _, g := range s.Microsoft.Groups {
		if wanted[g.ID] {
			groups = append(groups, map[string]string{"id": g.ID, "displayName": g.Name})
		}
	}
	reply(w, http.StatusOK, map[string]any{"value": groups})
}
