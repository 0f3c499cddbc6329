package cli

import (
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
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/version"
)

// A config is one hub and who is signed in there.
type config struct {
	Name   string `json:"name"` // of the context
	Server string `json:"server"`
	Tenant string `json:"tenant,omitempty"`
	User   string `json:"user,omitempty"`
	Token  string `json:"token,omitempty"` // empty: not signed in
}

// A configFile is the file that logins leave behind.
type configFile struct {
	Current  string   `json:"current,omitempty"`
	Contexts []config `json:"contexts,omitempty"`
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

// contextOf names the context of a hub whose login names none.
func contextOf(server string) string {
	if u, err := url.Parse(server); err == nil && u.Host != "" {
		return u.Host
	}
	return server
}

// readConfig reads the file. A missing file is empty.
func readConfig(warn io.Writer) (configFile, error) {
	var f configFile
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
		name := contextOf(f.Server)
		f.Current, f.Contexts = name, []config{{Name: name, Server: f.Server, Token: f.Token}}
	}
	f.Server, f.Token = "", ""
	for i := range f.Contexts {
		f.Contexts[i].Server = strings.TrimSuffix(f.Contexts[i].Server, "/")
	}
	return f, nil
}

// context finds one by its name; nil if there is none.
func (f configFile) context(name string) *config {
	for i := range f.Contexts {
		if f.Contexts[i].Name == name {
			return &f.Contexts[i]
		}
	}
	return nil
}

// names are the contexts there are, for messages.
func (f configFile) names() string {
	if len(f.Contexts) == 0 {
		return "none"
	}
	var out []string
	for _, c := range f.Contexts {
		out = append(out, c.Name)
	}
	return strings.Join(out, ", ")
}

func (f configFile) missing(name string) error {
	return fault.With(fault.New(fault.Missing, "there is no context %q; there are: %s", name, f.names()), "", "see `capstan context`, or sign in with `capstan login URL --name "+name+"`")
}

// A choice says by flags which hub is meant, and who asks. What is empty comes from
// the environment or from the file.
type choice struct{ context, server, token string }

// load reads flags, environment and file, in this order.
func (q choice) load(warn io.Writer) (config, error) {
	var c config
	f, err := readConfig(warn)
	if err != nil {
		return c, err
	}
	asked := first(q.context, os.Getenv("CAPSTAN_CONTEXT"))
	if at := f.context(first(asked, f.Current)); at != nil {
		c = *at
	} else if asked != "" {
		return c, f.missing(asked)
	}
	// A token belongs to its server: another server does not get it.
	if s := strings.TrimSuffix(first(q.server, os.Getenv("CAPSTAN_SERVER")), "/"); s != "" && s != c.Server {
		if asked != "" && q.server != "" {
			return c, usageErrorf("context %s is of %s; give --context or --server", asked, c.Server)
		}
		c = config{Name: contextOf(s), Server: s}
		for _, at := range f.Contexts {
			if at.Server == s {
				c = at
				break
			}
		}
	}
	if t := first(q.token, os.Getenv("CAPSTAN_TOKEN")); t != "" {
		c.Token = t
	}
	if c.Server == "" {
		return c, fault.With(fault.New(fault.Unknown, "no hub is known"), "", "run `capstan login URL`")
	}
	return c, nil
}

// save stores a context in place of the one of its name, and makes it the
// current one.
func save(c config, warn io.Writer) error {
	f, err := readConfig(warn)
	if err != nil && fault.KindOf(err) != fault.Invalid { // signing in mends a damaged file
		return err
	}
	if at := f.context(c.Name); at != nil {
		*at = c
	} else {
		f.Contexts = append(f.Contexts, c)
	}
	f.Current = c.Name
	return writeConfig(f)
}

func writeConfig(f configFile) error {
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

func first(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}

// newClient returns a client of the API that acts as the user of the context.
func newClient(c config) (*client.Client, error) {
	u, err := url.Parse(c.Server)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fault.New(fault.Invalid, "%q is no URL of a hub; write it like https://capstan.example.com", c.Server)
	}
	header := http.Header{"User-Agent": {"capstan/" + version.String()}}
	if c.Token != "" {
		header.Set("Authorization", "Bearer "+c.Token)
	}
	return client.New(c.Server, header), nil
}
