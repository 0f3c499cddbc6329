package repourl

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"

	"github.com/capstan-cd/capstan/shared/fault"
)

// minToken is the length from which a user name alone counts as a token: hosts
// accept tokens there, and short names of organisations.
const minToken = 20

// CheckNoSecret refuses a URL, or a pattern of URLs, with a password or a token
// in it: specs are read by more people than credentials. The error never
// repeats it.
func CheckNoSecret(raw string) error {
	if !holdsSecret(strings.TrimSpace(raw)) {
		return nil
	}
	return fault.With(fault.New(fault.Invalid, "the URL contains a password or a token, which everybody who sees this object could read"), "",
		"take it out of the URL and register it with `capstan repo add URL --username NAME --password-stdin`; if it was in use, have it replaced at the Git host")
}

func holdsSecret(raw string) bool {
	raw = strings.TrimPrefix(raw, "!")
	scheme, rest, found := strings.Cut(raw, "://")
	if !found {
		scheme, rest = "ssh", raw
	}
	if !found && !strings.Contains(rest, "@") {
		return false
	}
	authority := beforeAny(rest, "/?#")
	at := strings.LastIndexByte(authority, '@')
	if at < 0 {
		return false
	}
	user, password, _ := strings.Cut(authority[:at], ":")
	if password != "" {
		return true
	}
	return len(user) >= minToken && repoScheme(scheme) != "ssh"
}

// urlsInText finds URLs with user information.
var urlsInText = regexp.MustCompile(`[A-Za-z][A-Za-z0-9+.-]*://[^\s/?#"'<>]*@[^\s"'<>]*`)

// RedactText removes user information from the URLs in a text if it contains a
// password or a token.
func RedactText(s string) string {
	if !strings.Contains(s, "@") {
		return s
	}
	return urlsInText.ReplaceAllStringFunc(s, func(u string) string {
		if !holdsSecret(u) {
			return u
		}
		scheme, rest, _ := strings.Cut(u, "://")
		authority := beforeAny(rest, "/?#")
		return scheme + "://" + authority[strings.LastIndexByte(authority, '@')+1:] + rest[len(authority):]
	})
}

// RedactJSON is RedactText for every text in a JSON value. A value without
// secrets is returned unchanged, byte for byte.
func RedactJSON(raw json.RawMessage) json.RawMessage {
	if !bytes.Contains(raw, []byte("@")) && !bytes.Contains(raw, []byte(`\u0040`)) {
		return raw
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return raw
	}
	redacted, changed := redactValue(v)
	if !changed {
		return raw
	}
	out, err := json.Marshal(redacted)
	if err != nil {
		return json.RawMessage(`"it cannot be shown"`)
	}
	return out
}

func redactValue(v any) (out any, changed bool) {
	switch v := v.(type) {
	case string:
		s := RedactText(v)
		return s, s != v
	case []any:
		for i := range v {
			inner, c := redactValue(v[i])
			v[i], changed = inner, changed || c
		}
		return v, changed
	case map[string]any:
		for k := range v {
			inner, c := redactValue(v[k])
			v[k], changed = inner, changed || c
		}
		return v, changed
	}
	return v, false
}
