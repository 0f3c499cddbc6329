package ldap

import (
	"context"
	"strings"
	"time"

	goldap "github.com/go-ldap/ldap/v3"

	"github.com/capstan-cd/capstan/hub/identity/connector"
	"github.com/capstan-cd/capstan/shared/fault"
)

const (
	// pageSize is how many groups are read at once.
	pageSize = 500
	// perFilter is how many values one filter has.
	perFilter = 50
)

// groups are the names of the groups of an entry, by all matchers.
func (d *Directory) groups(ctx context.Context, c *conn, user *goldap.Entry) ([]string, error) {
	if d.cfg.GroupSearch.BaseDN == "" {
		return nil, nil
	}
	var names []string
	for _, m := range d.cfg.matchers() {
		found, err := d.matched(ctx, c, m, rawAttributes(user, m.UserAttr))
		if err != nil {
			return nil, err
		}
		names = append(names, found...)
	}
	return connector.Groups(d.object, names)
}

// matched are the groups by one matcher, and the groups that these are in.
func (d *Directory) matched(ctx context.Context, c *conn, m UserMatcher, values []string) ([]string, error) {
	var names []string
	seen := map[string]bool{} // groups by their DN: groups may contain each other
	for by := m.GroupAttr; len(values) > 0; by = m.RecursionGroupAttr {
		entries, err := d.searchGroups(ctx, c, by, values)
		if err != nil {
			return nil, err
		}
		values = nil
		for _, e := range entries {
			key := strings.ToLower(e.DN)
			if seen[key] {
				continue
			}
			seen[key] = true
			name := attribute(e, d.cfg.GroupSearch.NameAttr)
			if name == "" {
				return nil, d.offline(nil, "a group of the person has no "+d.cfg.GroupSearch.NameAttr, "set the attribute in the directory, or name another in groupSearch.nameAttr")
			}
			names = append(names, name)
			values = append(values, e.DN)
		}
		if len(seen) > connector.MaxGroups {
			return nil, d.tooMany()
		}
		if m.RecursionGroupAttr == "" {
			return names, nil
		}
	}
	return names, nil
}

func (d *Directory) tooMany() error {
	return fault.With(fault.New(fault.Denied, "the person is a member of more than %d groups", connector.MaxGroups), d.object,
		"let groupSearch.filter find only the groups that policies name")
}

// searchGroups finds the groups that have one of the values in an attribute.
func (d *Directory) searchGroups(ctx context.Context, c *conn, by string, values []string) ([]*goldap.Entry, error) {
	var all []*goldap.Entry
	for len(values) > 0 {
		n := min(perFilter, len(values))
		var parts strings.Builder
		for _, v := range values[:n] {
			parts.WriteString("(" + by + "=" + goldap.EscapeFilter(v) + ")")
		}
		values = values[n:]
		filter := parts.String()
		if n > 1 {
			filter = "(|" + filter + ")"
		}
		found, err := d.searchPages(ctx, c, both(d.cfg.GroupSearch.Filter, filter))
		if err != nil {
			return nil, err
		}
		if all = append(all, found...); len(all) > connector.MaxGroups {
			return nil, d.tooMany()
		}
	}
	return all, nil
}

// searchPages reads a search page by page (RFC 2696), because directories
// limit how much one answer has.
func (d *Directory) searchPages(ctx context.Context, c *conn, filter string) ([]*goldap.Entry, error) {
	g := d.cfg.GroupSearch
	paging := goldap.NewControlPaging(pageSize)
	var all []*goldap.Entry
	for {
		result, err := c.Search(goldap.NewSearchRequest(g.BaseDN, scope(g.Scope), goldap.NeverDerefAliases, 0, int(timeLimit/time.Second), false,
			filter, []string{g.NameAttr}, []goldap.Control{paging}))
		switch {
		case goldap.IsErrorWithCode(err, goldap.LDAPResultNoSuchObject):
			return nil, d.offline(err, "groupSearch.baseDN does not exist", "check it in the connector's configuration, and that bindDN may read it")
		case err != nil:
			return nil, d.failed(ctx, err)
		}
		if all = append(all, result.Entries...); len(all) > connector.MaxGroups {
			return nil, d.tooMany()
		}
		answer, ok := goldap.FindControl(result.Controls, goldap.ControlTypePaging).(*goldap.ControlPaging)
		if !ok || len(answer.Cookie) == 0 {
			return all, nil
		}
		paging.SetCookie(answer.Cookie)
	}
}
