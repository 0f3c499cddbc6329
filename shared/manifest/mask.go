package manifest

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
)

// LastApplied is the annotation in which kubectl stores a whole object.
const LastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// Mask returns a copy of an object in which a Secret's values cannot be read:
// each value of data and stringData, and the whole last-applied annotation,
// becomes "hmac:" and 16 hex digits of a keyed hash. Equal values look equal
// and different ones differ, in either field, so diffs still work; without the
// key a guess cannot be verified. Of other kinds the fields are masked that the
// object marks as secret (SecretFields). It never fails: values of an unexpected
// shape are masked whole. annotations names further annotations of a Secret that
// are masked.
func Mask(o *Object, key []byte, annotations ...string) *Object {
	out := o.DeepCopy()
	if !IsSecret(out) {
		maskMarked(out, key)
		return out
	}
	for _, field := range [...]string{"data", "stringData"} {
		switch values := out.Object[field].(type) {
		case nil:
		case map[string]any:
			for k, v := range values {
				values[k] = masked(key, field, v)
			}
		default:
			out.Object[field] = masked(key, "", values)
		}
	}
	meta, _ := out.Object["metadata"].(map[string]any)
	all, _ := meta["annotations"].(map[string]any)
	for _, name := range append([]string{LastApplied}, annotations...) {
		if all[name] != nil {
			all[name] = masked(key, "", all[name])
		}
	}
	for _, path := range MarkedFields(out) {
		if path[0] != "data" { // those are masked by now
			replace(out.Object, path, func(v any) any { return maskBelow(v, key) })
		}
	}
	return out
}

// MaskedValue is what Mask writes instead of a value that is no base64.
func MaskedValue(key []byte, v any) string { return masked(key, "", v) }

func masked(key []byte, field string, v any) string {
	var plain []byte
	switch s, ok := v.(string); {
	case ok && field == "data":
		raw, err := base64.StdEncoding.DecodeString(s)
		if err != nil {
			raw = []byte(s)
		}
		plain = raw
	case ok:
		plain = []byte(s)
	default:
		plain, _ = AppendCanonical(nil, v) // a value that cannot be encoded is hashed as empty
	}
	m := hmac.New(sha256.New, key)
	m.Write(plain)
	return "hmac:" + hex.EncodeToString(m.Sum(nil)[:8])
}
