package manifest

import (
	"encoding/base64"
	"strings"

	"github.com/capstan-cd/capstan/shared/fault"
)

// Normalize converts a desired object to the form that is hashed, stored and
// applied. A Secret's stringData is merged into data, because the API server
// never returns it and a key removed from it would stay for ever. Fields that
// only a server may write (managedFields, uid, resourceVersion,
// creationTimestamp, generation, selfLink, status) are removed. Values of an
// encrypted object stay as they are, because SOPS authenticates them with their
// fields. Normalize is idempotent. Errors never contain a value.
func Normalize(o *Object) error {
	delete(o.Object, "status")
	if meta, ok := o.Object["metadata"].(map[string]any); ok {
		for _, field := range [...]string{"managedFields", "uid", "resourceVersion", "creationTimestamp", "generation", "selfLink"} {
			delete(meta, field)
		}
	}
	if IsSecret(o) && !Encrypted(o) {
		return normalizeSecret(o)
	}
	return nil
}

// IsSecret reports whether an object is a Secret.
func IsSecret(o *Object) bool {
	group, _ := splitAPIVersion(o.GetAPIVersion())
	return group == "" && o.GetKind() == "Secret"
}

func normalizeSecret(o *Object) error {
	data, err := stringMap(o, "data")
	if err != nil {
		return err
	}
	for k, v := range data {
		data[k] = tidyBase64(v.(string))
	}
	plain, err := stringMap(o, "stringData")
	if err != nil {
		return err
	}
	delete(o.Object, "stringData")
	if len(plain) > 0 && data == nil {
		data = make(map[string]any, len(plain))
	}
	for k, v := range plain {
		data[k] = base64.StdEncoding.EncodeToString([]byte(v.(string)))
	}
	if data == nil {
		delete(o.Object, "data") // "data: null" means no data
		return nil
	}
	o.Object["data"] = data
	return nil
}

// stringMap reads a field of a Secret as a map whose values are strings; null
// stands for an empty one. It is nil if the field is absent or null.
func stringMap(o *Object, field string) (map[string]any, error) {
	raw := o.Object[field]
	if raw == nil {
		return nil, nil
	}
	m, ok := raw.(map[string]any)
	if !ok {
		return nil, fault.With(fault.New(fault.Invalid, "%s is not a map of keys to text", field), objectName(o), "")
	}
	out := make(map[string]any, len(m))
	for k, v := range m {
		switch v := v.(type) {
		case string:
			out[k] = v
		case nil:
			out[k] = ""
		default:
			return nil, fault.With(fault.New(fault.Invalid, "%s key %q is not text", field, k), objectName(o), "put the value in quotes")
		}
	}
	return out, nil
}

// tidyBase64 removes line breaks from base64, as the API server does. Text that
// is not base64, such as a placeholder that is resolved later, stays.
func tidyBase64(s string) string {
	if !strings.ContainsAny(s, "\r\n") {
		return s
	}
	raw, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		return s
	}
	return base64.StdEncoding.EncodeToString(raw)
}
