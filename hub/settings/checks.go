package settings

import (
	"encoding/json"
	"net"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/capstan-cd/capstan/shared/fault"
)

// A check says why a value cannot be that of a key; end is what follows a
// family's name in the key. An empty value means that the key is not set, and
// passes every check.
type check func(end string, t text) error

// A row is a key, or a family of keys, that is checked and stored. Keys with an
// effect have a reader of their own and are no rows.
type row struct {
	key, about, sample string
	check              check
	instead            string // what happens instead; empty: the key has no effect yet
	example            string // an end of a key of the family; empty: a kind, or the key is no family
}

// table makes known keys of the rows of one map. Values are checked when a
// person sets them: what an earlier release has stored stays.
func table(name string, rows ...row) []Known {
	out := make([]Known, len(rows))
	for i, r := range rows {
		about := r.about
		if r.instead != "" {
			about += " It has no effect: " + r.instead + "."
		}
		out[i] = Known{Map: name, Key: r.key, About: about, Sample: r.sample, Instead: r.instead, Example: r.example, read: func(s *set, end string, t text) error {
			if !s.strict || strings.TrimSpace(t.value) == "" {
				return nil
			}
			return r.check(end, t)
		}}
	}
	return out
}

func anyText(string, text) error { return nil }

func truth(_ string, t text) error {
	_, err := t.truth()
	return err
}

func period(_ string, t text) error {
	_, err := duration(t.value)
	return err
}

// whole accepts whole numbers of a range.
func whole(least, most int64) check {
	return func(_ string, t text) error {
		n, err := strconv.ParseInt(strings.TrimSpace(t.value), 10, 64)
		if err != nil || n < least || n > most {
			return fault.With(fault.New(fault.Invalid, "%q is no whole number from %d to %d", short(t.value), least, most), "", "write it like "+strconv.FormatInt(least, 10))
		}
		return nil
	}
}

const large = 1 << 31

// count is a number of things, of seconds too.
func count(end string, t text) error { return whole(0, large)(end, t) }

func positive(end string, t text) error { return whole(1, large)(end, t) }

func ratio(_ string, t text) error {
	f, err := strconv.ParseFloat(strings.TrimSpace(t.value), 64)
	if err != nil || f < 0 || f > 1 {
		return fault.With(fault.New(fault.Invalid, "%q is no number from 0 to 1", short(t.value)), "", "write it like 0.1")
	}
	return nil
}

var quantityForm = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?(k|Ki|M|Mi|G|Gi|T|Ti)?$`)

func quantity(_ string, t text) error {
	if !quantityForm.MatchString(strings.TrimSpace(t.value)) {
		return fault.With(fault.New(fault.Invalid, "%q is no size", short(t.value)), "", "write it like 10M or 1Gi")
	}
	return nil
}

// Size is a size in bytes, as quantity accepts it; 0 for any other text.
func Size(text string) int64 {
	parts := quantityForm.FindStringSubmatch(strings.TrimSpace(text))
	if parts == nil {
		return 0
	}
	number, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(text), parts[2]), 64)
	if err != nil {
		return 0
	}
	units := map[string]float64{"": 1, "k": 1e3, "Ki": 1 << 10, "M": 1e6, "Mi": 1 << 20, "G": 1e9, "Gi": 1 << 30, "T": 1e12, "Ti": 1 << 40}
	return int64(min(number*units[parts[2]], 1<<60))
}

// address accepts an address that a browser may be sent to.
func address(_ string, t text) error {
	u, err := url.Parse(strings.TrimSpace(t.value))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
		return fault.With(fault.New(fault.Invalid, "%q is no address of http or https", short(t.value)), "", "write it like https://cd.example.com")
	}
	return nil
}

// endpoint accepts host:port, or an address with a scheme.
func endpoint(end string, t text) error {
	v := strings.TrimSpace(t.value)
	if strings.Contains(v, "://") {
		return address(end, t)
	}
	if _, port, err := net.SplitHostPort(v); err != nil || port == "" {
		return fault.With(fault.New(fault.Invalid, "%q is no address of a server", short(t.value)), "", "write it like host:port")
	}
	return nil
}

// listen accepts the address that a server listens on.
func listen(_ string, t text) error {
	v := strings.TrimSpace(t.value)
	if net.ParseIP(v) == nil && strings.ContainsAny(v, " /") {
		return fault.With(fault.New(fault.Invalid, "%q is no address to listen on", short(t.value)), "", "write it like 0.0.0.0")
	}
	return nil
}

// among accepts some words.
func among(words ...string) check {
	return func(_ string, t text) error { return (node{}).among(strings.TrimSpace(t.value), words...) }
}

// commasAmong accepts a list of some words, separated by commas.
func commasAmong(words ...string) check {
	return func(_ string, t text) error {
		for _, v := range t.commas() {
			if err := (node{}).among(v, words...); err != nil {
				return err
			}
		}
		return nil
	}
}

// pairs accepts key=value pairs, or key:value pairs, separated by commas.
func pairs(_ string, t text) error {
	for _, v := range t.commas() {
		if !strings.ContainsAny(v, "=:") {
			return fault.With(fault.New(fault.Invalid, "%q is no pair of a key and a value", short(v)), "", "write it like a=b,c=d")
		}
	}
	return nil
}

// sequence accepts a YAML list.
func sequence(_ string, t text) error {
	root, err := t.yaml()
	if err == nil && !root.empty() {
		_, err = root.list("it")
	}
	return err
}

// mapping accepts a YAML map. A reference $key stands for the value of a key of
// argocd-secret.
func mapping(_ string, t text) error {
	root, err := t.yaml()
	if err == nil && !root.empty() {
		err = root.each("it", func(node, node) error { return nil })
	}
	return err
}

// links accepts a list of deep links: url and title, and what they depend on.
func links(_ string, t text) error {
	root, err := t.yaml()
	if err != nil || root.empty() {
		return err
	}
	items, err := root.list("the links")
	if err != nil {
		return err
	}
	for _, item := range items {
		given := map[string]bool{}
		word := func(name string) func(node) error {
			return func(n node) error { given[name] = true; _, err := n.text(); return err }
		}
		err := item.fields(map[string]func(node) error{
			"url": word("url"), "title": word("title"), "description": word("description"), "if": word("if"), "icon.class": word("icon"),
		})
		if err != nil {
			return err
		}
		if !given["url"] || !given["title"] {
			return item.fail("a link needs url and title")
		}
	}
	return nil
}

// tokens accepts the tokens of an account, as Argo CD stores them.
func tokens(_ string, t text) error {
	var all []struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal([]byte(t.value), &all); err != nil {
		return fault.New(fault.Invalid, "it is no list of tokens in JSON") // the error of the library shows parts of it
	}
	return nil
}

// account accepts accounts.NAME with what it may do, and accounts.NAME.enabled.
func account(end string, t text) error {
	if _, found := strings.CutSuffix(end, ".enabled"); found {
		return truth(end, t)
	}
	if strings.Contains(end, ".") {
		return fault.With(fault.New(fault.Invalid, "accounts have no key of that name"), "", "write accounts.NAME or accounts.NAME.enabled")
	}
	return commasAmong("login", "apiKey")(end, t)
}

// accountSecret accepts what argocd-secret has of an account.
func accountSecret(end string, t text) error {
	_, part, _ := strings.Cut(end, ".")
	switch part {
	case "password", "passwordMtime":
		return nil
	case "tokens":
		return tokens(end, t)
	}
	return fault.With(fault.New(fault.Invalid, "the secret has no key of that name for accounts"), "", "write accounts.NAME.password, .passwordMtime or .tokens")
}
