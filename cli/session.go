package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/capstan-cd/capstan/shared/fault"
)

// config is the file that a login leaves behind.
type config struct {
	Server string `json:"server"`
	Token  string `json:"token"`
}

// configPath is below XDG_CONFIG_HOME.
func configPath() (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("find the configuration folder: %w", err)
	}
	return filepath.Join(dir, "capstan", "config.json"), nil
}

// load reads flags, environment and file, in this order.
func (a *app) load() (config, error) {
	var c config
	path, err := configPath()
	if err != nil {
		return c, err
	}
	b, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return c, fmt.Errorf("read %s: %w", path, err)
	}
	if err == nil {
		if err := json.Unmarshal(b, &c); err != nil {
			return c, fault.New(fault.Invalid, "%s is damaged; sign in again with `capstan login`", path)
		}
		if info, err := os.Stat(path); err == nil && info.Mode().Perm()&0o077 != 0 {
			fmt.Fprintf(a.streams.Err, "capstan: warning: %s can be read by others; run chmod 600 on it\n", path)
		}
	}
	// A token belongs to its server: another server does not get it.
	c.Server = strings.TrimSuffix(c.Server, "/")
	if s := strings.TrimSuffix(first(a.server, os.Getenv("CAPSTAN_SERVER")), "/"); s != "" && s != c.Server {
		c = config{Server: s}
	}
	if t := first(a.token, os.Getenv("CAPSTAN_TOKEN")); t != "" {
		c.Token = t
	}
	if c.Server == "" {
		return c, fault.With(fault.New(fault.Unknown, "no hub is known"), "", "run `capstan login URL`")
	}
	return c, nil
}

func save(c config) error {
	path, err := configPath()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("make the configuration folder: %w", err)
	}
	b, err := json.MarshalIndent(c, "", "  ")
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
