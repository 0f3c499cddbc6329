package scim

// Config says what of SCIM is supported.
func Config(base string) Document {
	yes, no := map[string]any{"supported": true}, map[string]any{"supported": false}
	return Document{
		"schemas": []string{ConfigSchema}, "patch": yes, "etag": yes, "sort": no, "changePassword": no,
		"bulk":   map[string]any{"supported": false, "maxOperations": 0, "maxPayloadSize": 0},
		"filter": map[string]any{"supported": true, "maxResults": MaxResults},
		"authenticationSchemes": []any{map[string]any{
			"type": "oauthbearertoken", "name": "Bearer token", "description": "A token of `capstan scim create-token`, in the header Authorization.", "primary": true,
		}},
		"meta": map[string]any{"resourceType": "ServiceProviderConfig", "location": base + "/ServiceProviderConfig"},
	}
}

// ResourceTypes lists the kinds of resources.
func ResourceTypes(base string) []Document {
	kind := func(name, endpoint, schema string) Document {
		return Document{
			"schemas": []string{typeSchema}, "id": name, "name": name, "endpoint": endpoint, "schema": schema,
			"meta": map[string]any{"resourceType": "ResourceType", "location": base + "/ResourceTypes/" + name},
		}
	}
	return []Document{kind("User", "/Users", UserSchema), kind("Group", "/Groups", GroupSchema)}
}

// Schemas lists the attributes that mean something here. Others are stored and
// returned as they were given.
func Schemas(base string) []Document {
	attribute := func(name, kind, about string, required, many bool, mutability, uniqueness string, parts ...any) map[string]any {
		a := map[string]any{
			"name": name, "type": kind, "description": about, "required": required, "multiValued": many,
			"caseExact": false, "mutability": mutability, "returned": "default", "uniqueness": uniqueness,
		}
		if len(parts) > 0 {
			a["subAttributes"] = parts
		}
		return a
	}
	value := attribute("value", "string", "The value.", false, false, "readWrite", "none")
	display := attribute("display", "string", "A name for people.", false, false, "readOnly", "none")
	schema := func(id, name, about string, attributes ...any) Document {
		return Document{
			"schemas": []string{schemaSchema}, "id": id, "name": name, "description": about, "attributes": attributes,
			"meta": map[string]any{"resourceType": "Schema", "location": base + "/Schemas/" + id},
		}
	}
	return []Document{
		schema(UserSchema, "User", "A person.",
			attribute("userName", "string", "The name of the account; in lower case it is what policies call the person.", true, false, "readWrite", "server"),
			attribute("externalId", "string", "The person's id at the provider.", false, false, "readWrite", "none"),
			attribute("active", "boolean", "Whether the person may use the hub.", false, false, "readWrite", "none"),
			attribute("displayName", "string", "A name for people.", false, false, "readWrite", "none"),
			attribute("name", "complex", "The person's name.", false, false, "readWrite", "none",
				attribute("givenName", "string", "Given name.", false, false, "readWrite", "none"),
				attribute("familyName", "string", "Family name.", false, false, "readWrite", "none")),
			attribute("emails", "complex", "Addresses.", false, true, "readWrite", "none", value),
			attribute("groups", "complex", "Groups that the person is in.", false, true, "readOnly", "none", value, display)),
		schema(GroupSchema, "Group", "A group, which policies name by displayName.",
			attribute("displayName", "string", "The name of the group.", true, false, "readWrite", "server"),
			attribute("externalId", "string", "The group's id at the provider.", false, false, "readWrite", "none"),
			attribute("members", "complex", "Users in the group.", false, true, "readWrite", "none", value, display)),
	}
}
