// Package session is the file of contexts: which hubs there are and who is signed in
// at each. It chooses the hub of a command by flags, environment and file. It never
// prints a token.
package session

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/cli/usage"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/version"
)

// A Context is one hub and who is signed in there.
type Context struct {
	Name   string `json:"name"` // of the context
	Server string `json:"server"`
	Tenant string `json:"tenant,omitempty"`
	User   string `json:"user,omitempty"`
	Token  string `json:"token,omitempty"` // empty: not signed in

	Transport Transport `json:"-"` // of this command
}

// A File is the file that logins leave behind.
type File struct {
	Current  string    `json:"current,omitempty"`
	Contexts []Context `json:"contexts,omitempty"`
	// NoPrompts means that commands ask nothing.
	NoPrompts bool `json:"noPrompts,omitempty"`
	// Server and Token are all that the file contained before there were
	// contexts.
	Server string `json:"server,omitempty"`
	Token  string `json:"token,omitempty"`
}

// configPath is below XDG_CONFIG_HOME.
func configPath() (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("find the configuration folder: %w", err)
	}
	return filepath.Join(dir, "capstan", "config.json"), nil
}

// NameOf names the context of a hub whose login names none: by its host, and by the
// path of one that shares the host.
func NameOf(server string) string {
	if u, err := url.Parse(server); err == nil && u.Host != "" {
		return u.Host + strings.TrimSuffix(u.Path, "/")
	}
	return server
}

// ReadFile reads the file. A missing file is empty.
func ReadFile(warn io.Writer) (File, error) {
	var f File
	path, err := configPath()
	if err != nil {
		return f, err
	}
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return f, nil
	}
	if err != nil {
		return f, fmt.Errorf("read %s: %w", path, err)
	}
	if err := json.Unmarshal(b, &f); err != nil {
		return f, fault.New(fault.Invalid, "%s is damaged; sign in again with `capstan login`", path)
	}
	if info, err := os.Stat(path); err == nil && info.Mode().Perm()&0o077 != 0 {
		fmt.Fprintf(warn, "capstan: warning: %s can be read by others; run chmod 600 on it\n", path)
	}
	if f.Server != "" && len(f.Contexts) == 0 {
		name := NameOf(f.Server)
		f.Current, f.Contexts = name, []Context{{Name: name, Server: f.Server, Token: f.Token}}
	}
	f.Server, f.Token = "", ""
	for i := range f.Contexts {
		f.Contexts[i].Server = strings.TrimSuffix(f.Contexts[i].Server, "/")
	}
	return f, nil
}

// Find finds one by its name; nil if there is none.
func (f File) Find(name string) *Context {
	for i := range f.Contexts {
		if f.Contexts[i].Name == name {
			return &f.Contexts[i]
		}
	}
	return nil
}

// names are the contexts there are, for messages.
func (f File) names() string {
	if len(f.Contexts) == 0 {
		return "none"
	}
	var out []string
	for _, c := range f.Contexts {
		out = append(out, c.Name)
	}
	return strings.Join(out, ", ")
}

// Missing is the error for a name that no context has.
func (f File) Missing(name string) error {
	return fault.With(fault.New(fault.Missing, "there is no context %q; there are: %s", name, f.names()), "", "see `capstan context`, or sign in with `capstan login URL --name "+name+"`")
}

// A Choice says by flags which hub is meant, and who asks. What is empty comes from
// the environment or from the file.
type Choice struct {
	Context, Server, Token string
	Transport              Transport
}

// Load reads flags, environment and file, in this order.
//
// Argo CD's variables count where nothing else names a hub: who has both tools
// must not send the token of one to the other.
func (q Choice) Load(warn io.Writer) (Context, error) {
	c, err := q.find(warn)
	c.Transport = q.Transport
	return c, err
}

func (q Choice) find(warn io.Writer) (Context, error) {
	var c Context
	f, err := ReadFile(warn)
	if err != nil {
		return c, err
	}
	asked := cmp.Or(q.Context, os.Getenv("CAPSTAN_CONTEXT"))
	if at := f.Find(cmp.Or(asked, f.Current)); at != nil {
		c = *at
	} else if asked != "" {
		return c, f.Missing(asked)
	}
	// A token belongs to its server: another server does not get it.
	given, token := q.given(c)
	if s := q.Transport.Address(given); s != "" && s != c.Server {
		if asked != "" && q.Server != "" {
			return c, usage.Errorf("context %s is of %s; give --context or --server", asked, c.Server)
		}
		c = Context{Name: NameOf(s), Server: s}
		for _, at := range f.Contexts {
			if at.Server == s {
				c = at
				break
			}
		}
	}
	if token != "" {
		c.Token = token
	}
	if c.Server == "" {
		return c, fault.With(fault.New(fault.Unknown, "no hub is known"), "", "run `capstan login URL`")
	}
	return c, nil
}

// given is the address and the token that flags and variables name, beside the
// context that is stored.
func (q Choice) given(stored Context) (server, token string) {
	server = cmp.Or(q.Server, os.Getenv("CAPSTAN_SERVER"))
	token = cmp.Or(q.Token, os.Getenv("CAPSTAN_TOKEN"), os.Getenv("CAPSTAN_AUTH_TOKEN"))
	if server == "" && stored.Server == "" {
		server, token = q.Transport.argoAddress(os.Getenv("ARGOCD_SERVER")), cmp.Or(token, os.Getenv("ARGOCD_AUTH_TOKEN"))
	}
	return server, token
}

// Save stores a context in place of the one of its name, and makes it the
// current one.
func Save(c Context, warn io.Writer) error {
	f, err := ReadFile(warn)
	if err != nil && fault.KindOf(err) != fault.Invalid { // signing in mends a damaged file
		return err
	}
	if at := f.Find(c.Name); at != nil {
		*at = c
	} else {
		f.Contexts = append(f.Contexts, c)
	}
	f.Current = c.Name
	return WriteFile(f)
}

// WriteFile stores the file in place of the one that is there.
func WriteFile(f File) error {
	path, err := configPath()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("make the configuration folder: %w", err)
	}
	b, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return err
	}
	temporary := path + ".new"
	if err := os.WriteFile(temporary, b, 0o600); err != nil {
		return fmt.Errorf("write %s: %w", temporary, err)
	}
	return os.Rename(temporary, path)
}

// NewClient returns a client of the API that acts as the user of the context.
func NewClient(c Context) (*client.Client, error) {
	u, err := url.Parse(c.Server)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fault.New(fault.Invalid, "%q is no URL of a hub; write it like https://capstan.example.com", c.Server)
	}
	header := http.Header{"User-Agent": {"capstan/" + version.String()}}
	if c.Token != "" {
		header.Set("Authorization", "Bearer "+c.Token)
	}
	if err := c.Transport.header(header); err != nil {
		return nil, err
	}
	api := client.New(c.Server, header)
	h, err := c.Transport.client()
	if err != nil || h == nil {
		return api, err
	}
	return api.Through(h), nil
}
