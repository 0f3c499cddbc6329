// Package scim is SCIM 2.0 as identity providers speak it (RFC 7643, RFC 7644):
// filters, patches and the JSON of users and groups. It is pure: it stores
// nothing and knows no HTTP. The API calls it. Values that it does not know are
// kept as they were given.
package scim

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

// URNs of schemas and messages.
const (
	UserSchema   = "urn:ietf:params:scim:schemas:core:2.0:User"
	GroupSchema  = "urn:ietf:params:scim:schemas:core:2.0:Group"
	ListSchema   = "urn:ietf:params:scim:api:messages:2.0:ListResponse"
	PatchSchema  = "urn:ietf:params:scim:api:messages:2.0:PatchOp"
	ErrorSchema  = "urn:ietf:params:scim:api:messages:2.0:Error"
	ConfigSchema = "urn:ietf:params:scim:schemas:core:2.0:ServiceProviderConfig"
	typeSchema   = "urn:ietf:params:scim:schemas:core:2.0:ResourceType"
	schemaSchema = "urn:ietf:params:scim:schemas:core:2.0:Schema"
)

// MaxResults is how many resources one answer has at most.
const MaxResults = 200

// A Document is a resource in JSON.
type Document map[string]any

// lookup finds a key in any case, as RFC 7643 has attribute names.
func (d Document) lookup(name string) (key string, value any, found bool) {
	if v, ok := d[name]; ok {
		return name, v, true
	}
	for k, v := range d {
		if strings.EqualFold(k, name) {
			return k, v, true
		}
	}
	return name, nil, false
}

func (d Document) text(name string) (string, error) {
	_, v, found := d.lookup(name)
	if !found || v == nil {
		return "", nil
	}
	s, ok := v.(string)
	if !ok {
		return "", fault.New(fault.Invalid, "%s is no text", name)
	}
	return s, nil
}

// truth reads a boolean; some providers send it as text.
func truth(v any) (bool, error) {
	switch v := v.(type) {
	case bool:
		return v, nil
	case string:
		if on, err := strconv.ParseBool(strings.ToLower(v)); err == nil {
			return on, nil
		}
	}
	return false, fault.New(fault.Invalid, "active is neither true nor false")
}

// own reports whether an attribute of a user is not kept as it was given.
func own(name string) bool {
	return slices.Contains([]string{"id", "meta", "schemas", "groups", "username", "externalid", "active", "password", "roles", "entitlements"}, strings.ToLower(name))
}

// ToUser reads a user. Passwords, roles and groups in it are ignored: people
// of an identity provider sign in there, and groups decide about rights.
func ToUser(d Document) (hub.SCIMUser, error) {
	u := hub.SCIMUser{Active: true}
	var err error
	if u.UserName, err = d.text("userName"); err != nil {
		return u, err
	}
	if u.UserName == "" {
		return u, fault.New(fault.Invalid, "userName is missing")
	}
	if u.ExternalID, err = d.text("externalId"); err != nil {
		return u, err
	}
	if _, v, found := d.lookup("active"); found && v != nil {
		if u.Active, err = truth(v); err != nil {
			return u, err
		}
	}
	rest := maps.Clone(d)
	maps.DeleteFunc(rest, func(k string, v any) bool { return v == nil || own(k) })
	u.Attributes, err = json.Marshal(rest)
	return u, err
}

// FromUser writes a user. base is the address of SCIM, without a slash at its end.
func FromUser(u hub.SCIMUser, base string) (Document, error) {
	d := Document{}
	if err := json.Unmarshal(u.Attributes, &d); err != nil {
		return nil, fmt.Errorf("read the attributes of user %s: %w", u.ID, err)
	}
	d["schemas"], d["id"], d["userName"], d["active"] = schemasOf(UserSchema, d), string(u.ID), u.UserName, u.Active
	if u.ExternalID != "" {
		d["externalId"] = u.ExternalID
	}
	if len(u.Groups) > 0 {
		d["groups"] = refs(u.Groups, base+"/Groups/")
	}
	d["meta"] = meta("User", base+"/Users/"+string(u.ID), u.Version, u.CreatedAt, u.UpdatedAt)
	return d, nil
}

// schemasOf lists a core schema and the extensions that a document has.
func schemasOf(core string, d Document) []string {
	out := []string{core}
	for _, k := range slices.Sorted(maps.Keys(d)) {
		if strings.HasPrefix(strings.ToLower(k), "urn:") {
			out = append(out, k)
		}
	}
	return out
}

func refs(all []hub.SCIMRef, base string) []any {
	out := make([]any, len(all))
	for i, r := range all {
		out[i] = map[string]any{"value": r.ID, "display": r.Display, "$ref": base + r.ID}
	}
	return out
}

// ETag is the version of a resource as HTTP has it.
func ETag(version int64) string { return fmt.Sprintf(`W/"%d"`, version) }

func meta(kind, location string, version int64, created, updated time.Time) map[string]any {
	return map[string]any{
		"resourceType": kind, "location": location, "version": ETag(version),
		"created": created.UTC().Format(time.RFC3339), "lastModified": updated.UTC().Format(time.RFC3339),
	}
}

// ToGroup reads a group.
func ToGroup(d Document) (hub.SCIMGroup, error) {
	var g hub.SCIMGroup
	var err error
	if g.DisplayName, err = d.text("displayName"); err != nil {
		return g, err
	}
	if g.DisplayName == "" {
		return g, fault.New(fault.Invalid, "displayName is missing")
	}
	if g.ExternalID, err = d.text("externalId"); err != nil {
		return g, err
	}
	_, v, _ := d.lookup("members")
	if v == nil {
		return g, nil
	}
	items, ok := v.([]any)
	if !ok {
		return g, fault.New(fault.Invalid, "members is no list")
	}
	for _, item := range items {
		m, ok := item.(map[string]any)
		if !ok {
			return g, fault.New(fault.Invalid, "a member is no object")
		}
		id, err := Document(m).text("value")
		if err != nil || id == "" {
			return g, fault.New(fault.Invalid, "a member has no value")
		}
		if !slices.ContainsFunc(g.Members, func(r hub.SCIMRef) bool { return r.ID == id }) {
			g.Members = append(g.Members, hub.SCIMRef{ID: id})
		}
	}
	return g, nil
}

// FromGroup writes a group.
func FromGroup(g hub.SCIMGroup, base string) Document {
	d := Document{
		"schemas": []string{GroupSchema}, "id": g.ID, "displayName": g.DisplayName, "members": refs(g.Members, base+"/Users/"),
		"meta": meta("Group", base+"/Groups/"+g.ID, g.Version, g.CreatedAt, g.UpdatedAt),
	}
	if g.ExternalID != "" {
		d["externalId"] = g.ExternalID
	}
	return d
}

// List is one page of resources.
func List(items []Document, total, start int) Document {
	return Document{"schemas": []string{ListSchema}, "totalResults": total, "startIndex": start, "itemsPerPage": len(items), "Resources": items}
}

// Only removes attributes that the request did not ask for. id, schemas and meta
// stay.
func Only(d Document, attributes, excluded string) {
	names := func(list string) []string {
		var out []string
		for name := range strings.SplitSeq(list, ",") {
			if name = strings.ToLower(strings.TrimSpace(name)); name != "" {
				top, _, _ := strings.Cut(name, ".")
				out = append(out, top)
			}
		}
		return out
	}
	wanted, unwanted := names(attributes), names(excluded)
	always := []string{"id", "schemas", "meta"}
	maps.DeleteFunc(d, func(k string, _ any) bool {
		k = strings.ToLower(k)
		return !slices.Contains(always, k) && (len(wanted) > 0 && !slices.Contains(wanted, k) || slices.Contains(unwanted, k))
	})
}
