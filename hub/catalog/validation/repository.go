package validation

import (
	"fmt"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/repourl"
	"github.com/capstan-cd/capstan/shared/fault"
)

// CheckRepository validates a repository and completes its kind. Warnings are
// for people.
func CheckRepository(r *hub.Repository) ([]string, error) {
	if r.Project != "" {
		if err := CheckLabel("project", r.Project); err != nil {
			return nil, err
		}
	}
	var warnings []string
	switch r.Type = r.Type.OrDefault(); {
	case !r.Type.Known():
		return nil, fault.With(fault.New(fault.Invalid, "type %q is unknown", Shorten(string(r.Type))), "", "set it to git")
	case !r.Type.Served():
		warnings = append(warnings, fmt.Sprintf("charts that others depend on come from repositories of type %s; this release does not serve them as sources of applications yet", r.Type))
	}
	switch {
	case r.Insecure && repourl.IsSSH(r.URL):
		warnings = append(warnings, "the server's host key is not verified (insecure)")
	case r.Insecure:
		warnings = append(warnings, "the server's certificate is not verified (insecure)")
	}
	return warnings, nil
}

// CheckCredential sees to it that a credential is one for its URL, and that a
// private key can be read.
func CheckCredential(url string, cred *hub.Credential) (*hub.Credential, error) {
	if cred == nil || *cred == (hub.Credential{}) {
		return cred, nil
	}
	overSSH := repourl.IsSSH(url)
	if cred.TLSClientCert+cred.TLSClientKey != "" {
		if overSSH {
			return nil, fault.With(fault.New(fault.Invalid, "a client certificate opens no repository over SSH"), "", "use its https:// URL")
		}
		if _, err := hub.ClientCertificate(cred.TLSClientCert, cred.TLSClientKey); err != nil {
			return nil, err
		}
	}
	switch {
	case cred.SSHPrivateKey == "" && overSSH && cred.Password+cred.BearerToken != "":
		return nil, fault.With(fault.New(fault.Invalid, "a password or token opens no repository over SSH"), "", "set an SSH private key, or use its https:// URL")
	case cred.SSHPrivateKey == "":
		return cred, nil
	case !overSSH && cred.Password+cred.BearerToken+cred.TLSClientCert == "":
		return nil, fault.With(fault.New(fault.Invalid, "an SSH private key opens no repository over HTTP"), "", "use the repository's SSH URL, such as git@git.example.com:team/repository.git")
	}
	key, err := hub.NormalizeSSHKey(cred.SSHPrivateKey)
	if err != nil {
		return nil, err
	}
	c := *cred
	c.SSHPrivateKey = key
	return &c, nil
}

// CredentialNote is what the audit log says of a credential: never its values.
func CredentialNote(c *hub.Credential) string {
	if c == nil {
		return ""
	}
	return "with a new credential"
}
