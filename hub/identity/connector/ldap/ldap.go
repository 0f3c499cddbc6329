// Package ldap checks names and passwords against an LDAP directory, such as
// OpenLDAP or Active Directory, and finds the groups of a person. It never
// writes to the directory and keeps no connection: each check opens its own.
// The hub's sign-in calls it. No text of a person becomes part of a filter or
// a name unescaped, and no empty password reaches the directory.
package ldap

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"strings"
	"time"
	"unicode/utf8"

	goldap "github.com/go-ldap/ldap/v3"

	"github.com/capstan-cd/capstan/hub/identity/connector"
	"github.com/capstan-cd/capstan/shared/fault"
)

const (
	// timeLimit bounds one check as a whole, with all its searches.
	timeLimit = 15 * time.Second
	// maxName and maxPassword bound what a person enters, in bytes.
	maxName     = 256
	maxPassword = 1024
)

// A Directory checks passwords against one LDAP server.
type Directory struct {
	cfg    Config
	dial   Dial
	object string // what errors call it
}

// New returns a directory. The error is fault.Invalid if the configuration is
// wrong. Nothing is connected to before the first check.
func New(cfg Config, dial Dial) (*Directory, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.UserSearch.IDAttr == "" {
		cfg.UserSearch.IDAttr = "uid"
	}
	if cfg.UserSearch.EmailAttr == "" && cfg.UserSearch.EmailSuffix == "" {
		cfg.UserSearch.EmailAttr = "mail"
	}
	return &Directory{cfg: cfg, dial: dial, object: "directory " + cfg.Host}, nil
}

// Check finds the entry for a name, tries the password on it and collects the
// groups. The error is fault.Unknown if name or password is wrong,
// fault.Denied if the entry lacks what identifies it, and fault.Offline if the
// directory cannot be asked.
func (d *Directory) Check(ctx context.Context, username, password string) (connector.Identity, error) {
	// A bind without a password succeeds for every name (RFC 4513, 5.1.2).
	if username == "" || password == "" || len(username) > maxName || len(password) > maxPassword || !utf8.ValidString(username) {
		return connector.Identity{}, d.wrong()
	}
	ctx, cancel := context.WithTimeout(ctx, timeLimit)
	defer cancel()
	search, err := d.open(ctx)
	if err != nil {
		return connector.Identity{}, err
	}
	defer search.close()
	if err := d.bindService(ctx, search); err != nil {
		return connector.Identity{}, err
	}
	entry, err := d.findUser(ctx, search, username)
	if err != nil {
		return connector.Identity{}, err
	}
	if err := d.tryPassword(ctx, entry, password); err != nil {
		return connector.Identity{}, err
	}
	id, err := d.identity(entry)
	if err != nil {
		return connector.Identity{}, err
	}
	id.Groups, err = d.groups(ctx, search, entry)
	return id, err
}

func (d *Directory) wrong() error {
	return fault.With(fault.New(fault.Unknown, "name or password is wrong"), d.object, "check both and try again")
}

// bindService signs in who searches.
func (d *Directory) bindService(ctx context.Context, c *conn) error {
	var err error
	if d.cfg.BindDN == "" {
		err = c.UnauthenticatedBind("")
	} else {
		err = c.Bind(d.cfg.BindDN, d.cfg.BindPW)
	}
	switch {
	case err == nil:
		return nil
	case goldap.IsErrorAnyOf(err, goldap.LDAPResultInvalidCredentials, goldap.LDAPResultInvalidDNSyntax, goldap.LDAPResultNoSuchObject):
		return d.offline(err, "it refuses bindDN or bindPW", "check both in the connector's configuration")
	case goldap.IsErrorAnyOf(err, goldap.LDAPResultInappropriateAuthentication, goldap.LDAPResultStrongAuthRequired, goldap.LDAPResultConfidentialityRequired, goldap.LDAPResultUnwillingToPerform):
		return d.offline(err, "it does not accept this way to sign in for searches", "set bindDN and bindPW, and use TLS")
	}
	return d.failed(ctx, err)
}

// findUser returns the one entry for a name, or nil if there is none.
func (d *Directory) findUser(ctx context.Context, c *conn, username string) (*goldap.Entry, error) {
	u := d.cfg.UserSearch
	value := goldap.EscapeFilter(username)
	var names strings.Builder
	for _, attribute := range u.Username {
		names.WriteString("(" + attribute + "=" + value + ")")
	}
	filter := names.String()
	if len(u.Username) > 1 {
		filter = "(|" + filter + ")"
	}
	// Two are enough to know that there is more than one.
	result, err := c.Search(goldap.NewSearchRequest(u.BaseDN, scope(u.Scope), goldap.NeverDerefAliases, 2, int(timeLimit/time.Second), false,
		both(u.Filter, filter), d.userAttributes(), nil))
	switch {
	case goldap.IsErrorWithCode(err, goldap.LDAPResultSizeLimitExceeded), err == nil && len(result.Entries) > 1:
		return nil, fault.With(fault.New(fault.Denied, "more than one entry has this name"), d.object,
			"make userSearch.filter or userSearch.username of the connector unambiguous")
	case goldap.IsErrorWithCode(err, goldap.LDAPResultNoSuchObject):
		return nil, d.offline(err, "userSearch.baseDN does not exist", "check it in the connector's configuration, and that bindDN may read it")
	case err != nil:
		return nil, d.failed(ctx, err)
	case len(result.Entries) == 0:
		return nil, nil
	}
	return result.Entries[0], nil
}

// tryPassword binds as the entry, over a connection of its own. Without an
// entry it binds as nobody, so that a wrong name takes as long as a wrong
// password.
func (d *Directory) tryPassword(ctx context.Context, entry *goldap.Entry, password string) error {
	c, err := d.open(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	if entry == nil {
		_ = c.Bind("cn="+rand.Text()+","+d.cfg.UserSearch.BaseDN, password)
		return d.wrong()
	}
	if entry.DN == "" { // a bind without a name is anonymous
		return d.wrong()
	}
	err = c.Bind(entry.DN, password)
	switch {
	case err == nil:
		return nil
	case goldap.IsErrorAnyOf(err, goldap.LDAPResultInvalidCredentials, goldap.LDAPResultConstraintViolation, goldap.LDAPResultInappropriateAuthentication,
		goldap.LDAPResultUnwillingToPerform, goldap.LDAPResultNoSuchObject, goldap.LDAPResultInsufficientAccessRights, goldap.ErrorEmptyPassword):
		return d.wrong()
	}
	return d.failed(ctx, err)
}

// identity describes the person of an entry.
func (d *Directory) identity(entry *goldap.Entry) (connector.Identity, error) {
	u := d.cfg.UserSearch
	var missing []string
	need := func(name string) string {
		value := attribute(entry, name)
		if value == "" {
			missing = append(missing, name)
		}
		return value
	}
	id := connector.Identity{Subject: need(u.IDAttr), EmailVerified: true}
	if u.NameAttr != "" {
		id.Name = need(u.NameAttr)
	}
	id.Username = d.username(entry, id.Subject)
	switch {
	case u.EmailSuffix == "":
		id.Email = need(u.EmailAttr)
	case id.Name != "":
		id.Email = id.Name + "@" + u.EmailSuffix
	default:
		id.Email = id.Subject + "@" + u.EmailSuffix
	}
	if len(missing) > 0 {
		return connector.Identity{}, fault.With(fault.New(fault.Denied, "the person's entry has no %s", strings.Join(missing, ", ")), d.object,
			"set these attributes in the directory, let bindDN read them, or name others in userSearch")
	}
	return id, nil
}

func (d *Directory) username(entry *goldap.Entry, subject string) string {
	for _, name := range append([]string{d.cfg.UserSearch.PreferredUsernameAttr}, d.cfg.UserSearch.Username...) {
		if name == "" {
			continue
		}
		if value := attribute(entry, name); value != "" {
			return value
		}
	}
	return subject
}

func (d *Directory) userAttributes() []string {
	u := d.cfg.UserSearch
	names := append([]string{u.IDAttr, u.EmailAttr, u.NameAttr, u.PreferredUsernameAttr}, u.Username...)
	if d.cfg.GroupSearch.BaseDN != "" {
		for _, m := range d.cfg.matchers() {
			names = append(names, m.UserAttr)
		}
	}
	var out []string
	seen := map[string]bool{"": true, "dn": true}
	for _, name := range names {
		if key := strings.ToLower(name); !seen[key] {
			seen[key] = true
			out = append(out, name)
		}
	}
	if len(out) == 0 {
		return []string{"1.1"} // no attribute; an empty list would be all
	}
	return out
}

func (d *Directory) offline(err error, cause, fix string) error {
	return fault.With(fault.Wrap(fault.Offline, err, "%s", cause), d.object, fix)
}

// failed explains an error of a connection or of a search.
func (d *Directory) failed(ctx context.Context, err error) error {
	var e *goldap.Error
	switch {
	case ctx.Err() != nil:
		return connector.Unreachable(d.object, ctx.Err())
	case goldap.IsErrorWithCode(err, goldap.ErrorNetwork) && errors.As(err, &e):
		return connector.Unreachable(d.object, e.Err)
	case goldap.IsErrorAnyOf(err, goldap.LDAPResultSizeLimitExceeded, goldap.LDAPResultAdminLimitExceeded, goldap.LDAPResultTimeLimitExceeded):
		return d.offline(err, "a search exceeds a limit of the directory", "let the filters of the connector find less, or raise the limit for bindDN")
	case goldap.IsErrorWithCode(err, goldap.LDAPResultInsufficientAccessRights):
		return d.offline(err, "bindDN may not search", "let it read the entries below userSearch.baseDN and groupSearch.baseDN")
	}
	return d.offline(err, "it refuses a request", "see the hub's log for its answer")
}

// attribute is the first value of an attribute, as text. What is no text, such
// as objectGUID, is written in hexadecimal.
func attribute(entry *goldap.Entry, name string) string {
	values := attributes(entry, name)
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

func attributes(entry *goldap.Entry, name string) []string {
	values := rawAttributes(entry, name)
	out := make([]string, 0, len(values))
	for _, v := range values {
		if !utf8.ValidString(v) {
			v = hex.EncodeToString([]byte(v))
		}
		out = append(out, v)
	}
	return out
}

// rawAttributes are values as the directory holds them; DN is the entry's name.
func rawAttributes(entry *goldap.Entry, name string) []string {
	values := entry.GetEqualFoldAttributeValues(name)
	if len(values) == 0 && strings.EqualFold(name, "dn") {
		return []string{entry.DN}
	}
	return values
}

func scope(s string) int {
	if s == "one" {
		return goldap.ScopeSingleLevel
	}
	return goldap.ScopeWholeSubtree
}

// both is a filter that needs a configured one and another.
func both(configured, other string) string {
	if configured == "" {
		return other
	}
	return "(&" + configured + other + ")"
}
