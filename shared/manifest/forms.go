package manifest

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"strconv"
	"strings"
)

// ShortestSecret is the length in bytes of the shortest value that is searched
// for within texts: a shorter one stands in too many by chance.
const ShortestSecret = 6

// FormsOf returns the forms in which manifests contain a value: as it is,
// without white space around it, quoted, escaped for URLs, each of its lines
// that is long enough, and as part of a text in base64. Short forms are left out.
func FormsOf(value string) []string {
	text := strings.TrimSpace(value)
	quoted := strconv.Quote(text)
	forms := []string{text, quoted[1 : len(quoted)-1], url.QueryEscape(text), url.PathEscape(text)}
	if asJSON, err := json.Marshal(text); err == nil {
		forms = append(forms, string(asJSON[1:len(asJSON)-1]))
	}
	for line := range strings.SplitSeq(text, "\n") {
		if line = strings.TrimSpace(line); len(line) >= 2*ShortestSecret {
			forms = append(forms, line)
		}
	}
	for shift := range 3 {
		// What stands around the value in the same text changes the first and the
		// last digits, which are left out.
		padded := base64.RawStdEncoding.EncodeToString(append(make([]byte, shift), text...))
		forms = append(forms, padded[(shift*8+5)/6:max((shift*8+5)/6, len(padded)-1)])
	}
	out := forms[:0]
	for _, f := range forms {
		if len(f) >= ShortestSecret {
			out = append(out, f)
		}
	}
	return out
}
