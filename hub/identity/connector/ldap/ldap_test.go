package ldap

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	goldap "github.com/go-ldap/ldap/v3"
	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/hub/identity/connector"
	"github.com/capstan-cd/capstan/hub/source/guard"
	rig "github.com/capstan-cd/capstan/integration/rigs/ldap"
	"github.com/capstan-cd/capstan/shared/fault"
)

// directory is the server that all tests read. What changes it or stops it
// starts its own.
var directory *rig.Server

const entries = `
dn: ou=people,dc=example,dc=com
objectClass: organizationalUnit
ou: people

dn: ou=teams,dc=example,dc=com
objectClass: organizationalUnit
ou: teams

dn: cn=Jane Doe,ou=people,dc=example,dc=com
objectClass: inetOrgPerson
cn: Jane Doe
sn: Doe
uid: jane
mail: jane@example.com
displayName: Jane
userPassword: jane-password

dn: cn=Ann (Ops\, Night),ou=people,dc=example,dc=com
objectClass: inetOrgPerson
cn: Ann (Ops, Night)
sn: Night
uid: ann*
mail: ann@example.com
userPassword: ann-password

dn: cn=Twin A,ou=people,dc=example,dc=com
objectClass: inetOrgPerson
cn: Twin A
sn: Twin
uid: twin
mail: twin.a@example.com
userPassword: twin-password

dn: cn=Twin B,ou=people,dc=example,dc=com
objectClass: inetOrgPerson
cn: Twin B
sn: Twin
uid: twin
mail: twin.b@example.com
userPassword: twin-password

dn: cn=No Mail,ou=people,dc=example,dc=com
objectClass: inetOrgPerson
cn: No Mail
sn: Mail
uid: nomail
userPassword: nomail-password

dn: cn=No Password,ou=people,dc=example,dc=com
objectClass: inetOrgPerson
cn: No Password
sn: Password
uid: nopassword
mail: nopassword@example.com

dn: cn=sre,ou=teams,dc=example,dc=com
objectClass: groupOfNames
cn: sre
member: cn=Jane Doe,ou=people,dc=example,dc=com
member: cn=Ann (Ops\, Night),ou=people,dc=example,dc=com

dn: cn=engineering,ou=teams,dc=example,dc=com
objectClass: groupOfNames
cn: engineering
member: cn=sre,ou=teams,dc=example,dc=com
member: cn=company,ou=teams,dc=example,dc=com

dn: cn=company,ou=teams,dc=example,dc=com
objectClass: groupOfNames
cn: company
member: cn=engineering,ou=teams,dc=example,dc=com

dn: cn=admins,ou=teams,dc=example,dc=com
objectClass: posixGroup
cn: admins
gidNumber: 500
memberUid: jane

`

func TestMain(m *testing.M) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := rig.Start(ctx, entries)
	if err != nil {
		fmt.Fprintln(os.Stderr, "start slapd:", err)
		os.Exit(1)
	}
	directory = s
	code := m.Run()
	if err := s.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stop slapd:", err)
		code = 1
	}
	os.Exit(code)
}

func config(s *rig.Server) Config {
	return Config{
		Host: s.TLS, RootCAData: s.CA, BindDN: rig.ReaderDN, BindPW: rig.ReaderPW,
		UserSearch: UserSearch{
			BaseDN: "ou=people," + rig.BaseDN, Filter: "(objectClass=inetOrgPerson)", Username: Names{"uid", "mail"}, IDAttr: "uid",
		},
		GroupSearch: GroupSearch{
			BaseDN: "ou=teams," + rig.BaseDN, NameAttr: "cn",
			UserMatchers: []UserMatcher{{UserAttr: "DN", GroupAttr: "member"}},
		},
	}
}

func open(t *testing.T, cfg Config) *Directory {
	t.Helper()
	d, err := New(cfg, (&net.Dialer{}).DialContext)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestCheck(t *testing.T) {
	t.Parallel()
	jane := connector.Identity{Subject: "jane", Username: "jane", Email: "jane@example.com", EmailVerified: true, Groups: []string{"sre"}}
	for name, c := range map[string]struct {
		change func(*Config)
		login  string
		want   func(*connector.Identity)
	}{
		"finds a person by the first attribute": {login: "jane"},
		"finds a person by another attribute":   {login: "jane@example.com"},
		"ignores case as the directory does":    {login: "JANE"},
		"speaks StartTLS":                       {login: "jane", change: func(c *Config) { c.Host, c.StartTLS = directory.Plain, true }},
		"speaks clear text on request":          {login: "jane", change: func(c *Config) { c.Host, c.InsecureNoSSL = directory.Plain, true }},
		"searches one level":                    {login: "jane", change: func(c *Config) { c.UserSearch.Scope, c.GroupSearch.Scope = "one", "one" }},
		"takes the DN as subject":               {login: "jane", change: func(c *Config) { c.UserSearch.IDAttr = "DN" }, want: func(i *connector.Identity) { i.Subject = "cn=Jane Doe,ou=people,dc=example,dc=com" }},
		"reads name and preferred name":         {login: "jane", change: func(c *Config) { c.UserSearch.NameAttr, c.UserSearch.PreferredUsernameAttr = "displayName", "cn" }, want: func(i *connector.Identity) { i.Name, i.Username = "Jane", "Jane Doe" }},
		"builds the mail address from a suffix": {login: "jane", change: func(c *Config) { c.UserSearch.EmailSuffix = "corp.example" }, want: func(i *connector.Identity) { i.Email = "jane@corp.example" }},
		"searches no groups without a base":     {login: "jane", change: func(c *Config) { c.GroupSearch = GroupSearch{} }, want: func(i *connector.Identity) { i.Groups = nil }},
		"finds groups of several matchers once": {login: "jane", change: func(c *Config) {
			c.GroupSearch.UserMatchers = append(c.GroupSearch.UserMatchers, UserMatcher{UserAttr: "uid", GroupAttr: "memberUid"}, UserMatcher{UserAttr: "DN", GroupAttr: "member"})
		}, want: func(i *connector.Identity) { i.Groups = []string{"sre", "admins"} }},
		"finds groups by the former fields": {login: "jane", change: func(c *Config) {
			c.GroupSearch.UserMatchers = nil
			c.GroupSearch.UserAttr, c.GroupSearch.GroupAttr = "uid", "memberUid"
		}, want: func(i *connector.Identity) { i.Groups = []string{"admins"} }},
		"filters groups":                         {login: "jane", change: func(c *Config) { c.GroupSearch.Filter = "(cn=none)" }, want: func(i *connector.Identity) { i.Groups = []string{} }},
		"finds groups of groups, also in a ring": {login: "jane", change: func(c *Config) { c.GroupSearch.UserMatchers[0].RecursionGroupAttr = "member" }, want: func(i *connector.Identity) { i.Groups = []string{"sre", "engineering", "company"} }},
	} {
		t.Run("AUTH-08 LDAP "+name, func(t *testing.T) {
			t.Parallel()
			cfg, want := config(directory), jane
			if c.change != nil {
				c.change(&cfg)
			}
			if c.want != nil {
				c.want(&want)
			}
			got, err := open(t, cfg).Check(t.Context(), c.login, "jane-password")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// The attacks: whatever is entered, nobody signs in as somebody else.
func TestHostileInput(t *testing.T) {
	t.Parallel()
	d := open(t, config(directory))
	for name, c := range map[string]struct{ username, password string }{
		"an empty password":              {"jane", ""},
		"an empty name":                  {"", "jane-password"},
		"both empty":                     {"", ""},
		"a wrong password":               {"jane", "jane-passwor"},
		"the password of another person": {"jane", "ann-password"},
		"a wildcard":                     {"jan*", "jane-password"},
		"only a wildcard":                {"*", "jane-password"},
		"the end of a filter":            {"jane)(uid=*", "jane-password"},
		"a filter in a filter":           {"*)(|(uid=jane))", "jane-password"},
		"an always true filter":          {"jane)(objectClass=*", "jane-password"},
		"a name behind NUL":              {"jane\x00", "jane-password"},
		"an escaped wildcard":            {`jan\2a`, "jane-password"},
		"no UTF-8":                       {"jan\xff", "jane-password"},
		"a very long name":               {strings.Repeat("jane", 100), "jane-password"},
		"a very long password":           {"jane", strings.Repeat("x", 5000)},
		"a DN as name":                   {"cn=Jane Doe,ou=people,dc=example,dc=com", "jane-password"},
		"an entry without password":      {"nopassword", "x"},
		"an unknown name":                {"nobody", "jane-password"},
	} {
		t.Run("does not accept "+name, func(t *testing.T) {
			t.Parallel()
			id, err := d.Check(t.Context(), c.username, c.password)
			if kind := fault.KindOf(err); kind != fault.Unknown {
				t.Fatalf("kind %q, identity %v, want unknown: %v", kind, id, err)
			}
			if want := "name or password is wrong"; !strings.Contains(fault.Sentence(err), want) {
				t.Errorf("%q does not say %q: it would tell which names exist", fault.Sentence(err), want)
			}
		})
	}
	t.Run("AUTH-08 LDAP takes special characters of names as they are", func(t *testing.T) {
		t.Parallel()
		cfg := config(directory)
		cfg.GroupSearch.UserMatchers = append(cfg.GroupSearch.UserMatchers, UserMatcher{UserAttr: "uid", GroupAttr: "memberUid"})
		got, err := open(t, cfg).Check(t.Context(), "ann*", "ann-password")
		if err != nil {
			t.Fatal(err)
		}
		if got.Subject != "ann*" || !slices.Equal(got.Groups, []string{"sre"}) {
			t.Errorf("%+v: the value of uid is used in a filter, and must not find jane's groups", got)
		}
	})
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*Config)
		login  string
		kind   fault.Kind
		says   string
	}{
		"two entries of one name":                 {login: "twin", kind: fault.Denied, says: "more than one entry"},
		"an entry without a mail address":         {login: "nomail", kind: fault.Denied, says: "has no mail"},
		"a wrong password of the searcher":        {change: func(c *Config) { c.BindPW = "canary-secret" }, kind: fault.Offline, says: "bindDN or bindPW"},
		"a searcher that may not search":          {change: func(c *Config) { c.BindDN, c.BindPW = "", "" }, kind: fault.Offline, says: "that bindDN may read it"},
		"a base that does not exist":              {change: func(c *Config) { c.UserSearch.BaseDN = "ou=nowhere," + rig.BaseDN }, kind: fault.Offline, says: "userSearch.baseDN"},
		"a base of groups that is not there":      {change: func(c *Config) { c.GroupSearch.BaseDN = "ou=nowhere," + rig.BaseDN }, kind: fault.Offline, says: "groupSearch.baseDN"},
		"groups without a name":                   {change: func(c *Config) { c.GroupSearch.NameAttr = "description" }, kind: fault.Offline, says: "description"},
		"SEC-E5 an unknown authority":             {change: func(c *Config) { c.RootCAData = nil }, kind: fault.Offline, says: "authority"},
		"SEC-E5 an unknown authority of StartTLS": {change: func(c *Config) { c.RootCAData = nil; c.Host, c.StartTLS = directory.Plain, true }, kind: fault.Offline, says: "TLS"},
		"TLS where there is none":                 {change: func(c *Config) { c.Host = directory.Plain }, kind: fault.Offline},
		"a closed port":                           {change: func(c *Config) { c.Host = "127.0.0.1:1" }, kind: fault.Offline, says: "refuses the connection"},
	} {
		t.Run(name+" is refused", func(t *testing.T) {
			t.Parallel()
			cfg := config(directory)
			if c.change != nil {
				c.change(&cfg)
			}
			login, password := "jane", "jane-password"
			if c.login != "" {
				login, password = c.login, c.login+"-password"
			}
			_, err := open(t, cfg).Check(t.Context(), login, password)
			if kind := fault.KindOf(err); kind != c.kind {
				t.Fatalf("kind %q, want %q: %v", kind, c.kind, err)
			}
			if !strings.Contains(fault.Sentence(err), c.says) {
				t.Errorf("%q does not say %q", fault.Sentence(err), c.says)
			}
			for _, secret := range []string{"canary-secret", rig.ReaderPW, password} {
				if strings.Contains(err.Error()+fault.Sentence(err), secret) {
					t.Errorf("%q prints a secret", err)
				}
			}
		})
	}
	t.Run("refuses addresses that the hub does not connect to", func(t *testing.T) {
		t.Parallel()
		d, err := New(config(directory), guard.Dialer(nil).DialContext)
		if err != nil {
			t.Fatal(err)
		}
		_, err = d.Check(t.Context(), "jane", "jane-password")
		if fault.KindOf(err) != fault.Offline || !strings.Contains(fault.Sentence(err), "signIn.allowPrivate") {
			t.Errorf("%v", err)
		}
	})
}

func TestDirectoryThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	own := rig.New(t, entries)
	resume, err := own.Pause()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := resume(); err != nil {
			t.Error(err)
		}
	}()
	cfg := config(own)
	cfg.Host, cfg.InsecureNoSSL = own.Plain, true
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err = open(t, cfg).Check(ctx, "jane", "jane-password")
	if fault.KindOf(err) != fault.Offline || !strings.Contains(fault.Sentence(err), "in time") {
		t.Errorf("%v", err)
	}
}

func TestManyGroups(t *testing.T) {
	t.Parallel()
	own := rig.New(t, entries)
	add := func(from, to int) error {
		return own.Change(func(c *goldap.Conn) error {
			for i := from; i < to; i++ {
				request := goldap.NewAddRequest(fmt.Sprintf("cn=g%d,ou=teams,%s", i, rig.BaseDN), nil)
				request.Attribute("objectClass", []string{"groupOfNames"})
				request.Attribute("member", []string{"cn=Jane Doe,ou=people," + rig.BaseDN})
				if err := c.Add(request); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := add(0, 1200); err != nil {
		t.Fatal(err)
	}
	d := open(t, config(own))
	t.Run("AUTH-08 LDAP reads more groups than one answer of the directory has", func(t *testing.T) {
		got, err := d.Check(t.Context(), "jane", "jane-password")
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Groups) != 1201 {
			t.Errorf("%d groups, want 1201", len(got.Groups))
		}
	})
	if err := add(1200, connector.MaxGroups); err != nil {
		t.Fatal(err)
	}
	t.Run("refuses more groups than are accepted, and drops none silently", func(t *testing.T) {
		_, err := d.Check(t.Context(), "jane", "jane-password")
		if fault.KindOf(err) != fault.Denied || !strings.Contains(fault.Sentence(err), "2000 groups") {
			t.Errorf("%v", err)
		}
	})
}

func TestGroupsFollowTheDirectory(t *testing.T) {
	t.Parallel()
	own := rig.New(t, entries)
	d := open(t, config(own))
	if err := own.Change(func(c *goldap.Conn) error {
		request := goldap.NewModifyRequest("cn=sre,ou=teams,"+rig.BaseDN, nil)
		request.Delete("member", []string{"cn=Jane Doe,ou=people," + rig.BaseDN})
		return c.Modify(request)
	}); err != nil {
		t.Fatal(err)
	}
	t.Run("AUTH-08 LDAP sees at the next sign-in that a person has left a group", func(t *testing.T) {
		got, err := d.Check(t.Context(), "jane", "jane-password")
		if err != nil || len(got.Groups) != 0 {
			t.Errorf("%v %v", got.Groups, err)
		}
	})
}

func TestValidate(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*Config)
		says   string
	}{
		"no host":                     {func(c *Config) { c.Host = "" }, "host is missing"},
		"no base":                     {func(c *Config) { c.UserSearch.BaseDN = "" }, "userSearch.baseDN"},
		"no attribute of names":       {func(c *Config) { c.UserSearch.Username = nil }, "userSearch.username"},
		"a filter as attribute":       {func(c *Config) { c.UserSearch.Username = Names{"uid=*)(cn"} }, "userSearch.username"},
		"a filter that is none":       {func(c *Config) { c.UserSearch.Filter = "(objectClass=person" }, "userSearch.filter"},
		"a scope that is none":        {func(c *Config) { c.GroupSearch.Scope = "base" }, "groupSearch.scope"},
		"a base that is no DN":        {func(c *Config) { c.UserSearch.BaseDN = "people" }, "userSearch.baseDN"},
		"a searcher without password": {func(c *Config) { c.BindPW = "" }, "bindPW"},
		"two kinds of encryption":     {func(c *Config) { c.InsecureNoSSL, c.StartTLS = true, true }, "exclude"},
		"authorities that are none":   {func(c *Config) { c.RootCAData = []byte("x") }, "rootCAData"},
		"a matcher without attribute": {func(c *Config) { c.GroupSearch.UserMatchers[0].GroupAttr = "" }, "userMatchers"},
		"groups without name":         {func(c *Config) { c.GroupSearch.NameAttr = "" }, "groupSearch.nameAttr"},
		"half a client certificate":   {func(c *Config) { c.ClientCertData = []byte("x") }, "clientCertData"},
	} {
		t.Run(name+" is refused", func(t *testing.T) {
			t.Parallel()
			cfg := config(directory)
			c.change(&cfg)
			_, err := New(cfg, nil)
			if fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v does not say %q", err, c.says)
			}
		})
	}
}
