package notify

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
)

// leastSecret is the length of the shortest value that is masked: shorter ones
// are part of ordinary words.
const leastSecret = 4

const maskedText = "••••••"

// Mask replaces values of secrets, also as they are written in JSON, addresses
// and headers.
func Mask(values []string) *strings.Replacer {
	var forms []string
	for _, v := range values {
		for _, s := range []string{v, strings.TrimSpace(v)} {
			if len(s) < leastSecret {
				continue
			}
			quoted, _ := json.Marshal(s) // a text can be written
			forms = append(forms, s, strings.Trim(string(quoted), `"`), url.QueryEscape(s), url.PathEscape(s), base64.StdEncoding.EncodeToString([]byte(s)))
		}
	}
	// Of two that begin alike, the longer one has to be replaced.
	slices.SortFunc(forms, func(a, b string) int { return len(b) - len(a) })
	var pairs []string
	for _, f := range slices.Compact(forms) {
		pairs = append(pairs, f, maskedText)
	}
	return strings.NewReplacer(pairs...)
}
