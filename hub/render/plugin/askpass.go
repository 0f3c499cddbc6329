package plugin

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

// askpassScript answers Git's questions about one host, and no other's. The
// values are in the environment of the program alone.
const askpassScript = `#!/bin/sh
case "$1" in
*"//$CAPSTAN_GIT_HOST'"* | *"@$CAPSTAN_GIT_HOST'"*) ;;
*) exit 1 ;;
esac
case "$1" in
Username*) printf '%s\n' "$CAPSTAN_GIT_USERNAME" ;;
*) printf '%s\n' "$CAPSTAN_GIT_PASSWORD" ;;
esac
`

func (w *workspace) askpassFile() string { return filepath.Join(w.dir, "askpass") }

// askpass lets Git inside of the sandbox read from the host of the source's
// repository over HTTPS (CMP-12). Keys of SSH are not handed out: a program
// could read one and keep it.
func (w *workspace) askpass(cred hub.Credential, address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" {
		return nil //nolint:nilerr // a repository of SSH: there is nothing to hand out
	}
	username, password := cred.Username, cred.Password
	if cred.BearerToken != "" {
		password = cred.BearerToken
	}
	if password == "" {
		return nil
	}
	if username == "" {
		username = "x-access-token"
	}
	name := w.askpassFile()
	if err := os.WriteFile(name, []byte(askpassScript), 0o700); err != nil { //nolint:gosec // Git starts it
		return fault.Wrap(fault.Offline, err, "the hub has no room for a plugin at the moment")
	}
	w.secrets = append(w.secrets, password, url.QueryEscape(password), strings.TrimSuffix(password, "="))
	w.env = append(w.env, "GIT_ASKPASS="+name, "CAPSTAN_GIT_HOST="+u.Host, "CAPSTAN_GIT_USERNAME="+username, "CAPSTAN_GIT_PASSWORD="+password)
	return nil
}
