package ldap

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net"
	"regexp"

	goldap "github.com/go-ldap/ldap/v3"

	"github.com/capstan-cd/capstan/shared/fault"
)

// Config is the configuration of a directory, with the fields of Dex. Where
// Dex reads a file of its own disk, there is a field with the content instead.
type Config struct {
	// Host is host or host:port; the port is 636, or 389 with InsecureNoSSL or
	// StartTLS.
	Host          string `json:"host"`
	InsecureNoSSL bool   `json:"insecureNoSSL"` // no encryption at all
	StartTLS      bool   `json:"startTLS"`
	// RootCAData are the authorities of the server's certificate in PEM, as
	// base64; empty: those of the hub.
	RootCAData []byte `json:"rootCAData"`
	// ClientCertData and ClientKeyData are a client certificate in PEM, as base64.
	ClientCertData []byte `json:"clientCertData"`
	ClientKeyData  []byte `json:"clientKeyData"`
	// BindDN and BindPW are who searches; both empty: anonymous.
	BindDN         string      `json:"bindDN"`
	BindPW         string      `json:"bindPW"`
	UsernamePrompt string      `json:"usernamePrompt"` // the label of the field for the name
	UserSearch     UserSearch  `json:"userSearch"`
	GroupSearch    GroupSearch `json:"groupSearch"`
}

// A UserSearch says how a name becomes an entry, and an entry a person.
type UserSearch struct {
	BaseDN                string `json:"baseDN"`
	Filter                string `json:"filter"`
	Username              Names  `json:"username"` // attributes that the name is compared with
	Scope                 string `json:"scope"`    // sub or one; empty: sub
	IDAttr                string `json:"idAttr"`   // default uid
	EmailAttr             string `json:"emailAttr"`
	NameAttr              string `json:"nameAttr"`
	PreferredUsernameAttr string `json:"preferredUsernameAttr"`
	EmailSuffix           string `json:"emailSuffix"` // the domain of the mail addresses, if no attribute holds them
}

// A GroupSearch says how the groups of an entry are found.
type GroupSearch struct {
	BaseDN       string        `json:"baseDN"` // empty: no groups
	Filter       string        `json:"filter"`
	Scope        string        `json:"scope"` // sub or one; empty: sub
	UserMatchers []UserMatcher `json:"userMatchers"`
	NameAttr     string        `json:"nameAttr"`

	// The former form of one matcher.
	UserAttr           string `json:"userAttr"`
	GroupAttr          string `json:"groupAttr"`
	RecursionGroupAttr string `json:"recursionGroupAttr"`
}

// A UserMatcher finds groups whose GroupAttr has the value of the person's
// UserAttr; the UserAttr DN is the name of the entry.
type UserMatcher struct {
	UserAttr           string `json:"userAttr"`
	GroupAttr          string `json:"groupAttr"`
	RecursionGroupAttr string `json:"recursionGroupAttr"` // attribute by which groups contain groups; empty: not searched
}

// Names are one text or a list of texts.
type Names []string

// UnmarshalJSON reads either form.
func (n *Names) UnmarshalJSON(b []byte) error {
	var one string
	if json.Unmarshal(b, &one) == nil {
		*n = nil
		if one != "" {
			*n = Names{one}
		}
		return nil
	}
	var many []string
	if json.Unmarshal(b, &many) != nil {
		return fault.New(fault.Invalid, "it must be an attribute or a list of attributes")
	}
	*n = many
	return nil
}

// attributeName is an attribute or its object identifier, with options (RFC 4512).
var attributeName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.;-]*$`)

// Validate returns the first mistake as fault.Invalid, without a connection.
func (c Config) Validate() error {
	for _, f := range []struct{ name, value string }{
		{"host", c.Host}, {"userSearch.baseDN", c.UserSearch.BaseDN},
	} {
		if f.value == "" {
			return invalid("%s is missing", f.name)
		}
	}
	if len(c.UserSearch.Username) == 0 {
		return invalid("userSearch.username is missing")
	}
	if c.InsecureNoSSL && c.StartTLS {
		return invalid("insecureNoSSL and startTLS exclude each other")
	}
	if (c.BindDN == "") != (c.BindPW == "") {
		return invalid("bindDN and bindPW belong together: without a password the directory would bind anonymously")
	}
	if _, err := c.tlsConfig(); err != nil {
		return err
	}
	if err := c.validateNames(); err != nil {
		return err
	}
	return c.validateSearches()
}

func (c Config) validateNames() error {
	u, g := c.UserSearch, c.GroupSearch
	names := map[string]string{
		"userSearch.idAttr": u.IDAttr, "userSearch.emailAttr": u.EmailAttr, "userSearch.nameAttr": u.NameAttr,
		"userSearch.preferredUsernameAttr": u.PreferredUsernameAttr, "groupSearch.nameAttr": g.NameAttr,
	}
	for field, name := range names {
		if name != "" && !attributeName.MatchString(name) {
			return invalid("%s: %q is no name of an attribute", field, name)
		}
	}
	for _, name := range u.Username {
		if !attributeName.MatchString(name) {
			return invalid("userSearch.username: %q is no name of an attribute", name)
		}
	}
	if g.BaseDN == "" {
		return nil
	}
	if g.NameAttr == "" {
		return invalid("groupSearch.nameAttr is missing")
	}
	for _, m := range c.matchers() {
		if !attributeName.MatchString(m.UserAttr) || !attributeName.MatchString(m.GroupAttr) ||
			m.RecursionGroupAttr != "" && !attributeName.MatchString(m.RecursionGroupAttr) {
			return invalid("groupSearch.userMatchers: each needs userAttr and groupAttr, names of attributes")
		}
	}
	return nil
}

func (c Config) validateSearches() error {
	for field, scope := range map[string]string{"userSearch.scope": c.UserSearch.Scope, "groupSearch.scope": c.GroupSearch.Scope} {
		if scope != "" && scope != "sub" && scope != "one" {
			return invalid("%s: %q is neither sub nor one", field, scope)
		}
	}
	for field, filter := range map[string]string{"userSearch.filter": c.UserSearch.Filter, "groupSearch.filter": c.GroupSearch.Filter} {
		if filter == "" {
			continue
		}
		if _, err := goldap.CompileFilter(filter); err != nil {
			return invalid("%s: it is no filter; write it like (objectClass=person)", field)
		}
	}
	for field, dn := range map[string]string{"userSearch.baseDN": c.UserSearch.BaseDN, "groupSearch.baseDN": c.GroupSearch.BaseDN} {
		if _, err := goldap.ParseDN(dn); err != nil {
			return invalid("%s: it is no distinguished name; write it like ou=people,dc=example,dc=com", field)
		}
	}
	return nil
}

// matchers are the ways to find groups, in the current form.
func (c Config) matchers() []UserMatcher {
	if len(c.GroupSearch.UserMatchers) > 0 {
		return c.GroupSearch.UserMatchers
	}
	g := c.GroupSearch
	return []UserMatcher{{UserAttr: g.UserAttr, GroupAttr: g.GroupAttr, RecursionGroupAttr: g.RecursionGroupAttr}}
}

// address is host:port, and the host alone.
func (c Config) address() (address, host string) {
	if host, _, err := net.SplitHostPort(c.Host); err == nil {
		return c.Host, host
	}
	port := "636"
	if c.InsecureNoSSL || c.StartTLS {
		port = "389"
	}
	return net.JoinHostPort(c.Host, port), c.Host
}

func (c Config) tlsConfig() (*tls.Config, error) {
	_, host := c.address()
	out := &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}
	if len(c.RootCAData) > 0 {
		out.RootCAs = x509.NewCertPool()
		if !out.RootCAs.AppendCertsFromPEM(c.RootCAData) {
			return nil, invalid("rootCAData: it has no certificate in PEM")
		}
	}
	if len(c.ClientCertData) > 0 || len(c.ClientKeyData) > 0 {
		pair, err := tls.X509KeyPair(c.ClientCertData, c.ClientKeyData)
		if err != nil {
			return nil, invalid("clientCertData and clientKeyData: they are no pair of certificate and key in PEM")
		}
		out.Certificates = []tls.Certificate{pair}
	}
	return out, nil
}

func invalid(format string, args ...any) error {
	return fault.New(fault.Invalid, format, args...)
}
