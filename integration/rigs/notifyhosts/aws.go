package notifyhosts

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"slices"
	"strings"
)

// signedByAWS checks Signature Version 4 with the secret Token, from the headers
// that the request names.
func signedByAWS(r *http.Request, body []byte) bool {
	parts := map[string]string{}
	for _, p := range strings.Split(strings.TrimPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 "), ", ") {
		name, value, _ := strings.Cut(p, "=")
		parts[name] = value
	}
	names := strings.Split(parts["SignedHeaders"], ";")
	if !slices.IsSorted(names) || !slices.Contains(names, "host") {
		return false
	}
	var headers strings.Builder
	for _, name := range names {
		value := r.Header.Get(name)
		if name == "host" {
			value = r.Host
		}
		headers.WriteString(name + ":" + strings.TrimSpace(value) + "\n")
	}
	sum := func(b []byte) string {
		h := sha256.Sum256(b)
		return hex.EncodeToString(h[:])
	}
	canonical := strings.Join([]string{r.Method, r.URL.EscapedPath(), r.URL.RawQuery, headers.String(), parts["SignedHeaders"], sum(body)}, "\n")
	_, scope, _ := strings.Cut(parts["Credential"], "/")
	key := []byte("AWS4" + Token)
	for _, p := range strings.Split(scope, "/") {
		key = mac(key, p)
	}
	want := hex.EncodeToString(mac(key, "AWS4-HMAC-SHA256\n"+r.Header.Get("X-Amz-Date")+"\n"+scope+"\n"+sum([]byte(canonical))))
	return hmac.Equal([]byte(want), []byte(parts["Signature"]))
}

func mac(key []byte, s string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(s))
	return h.Sum(nil)
}
