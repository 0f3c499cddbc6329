package validation

import (
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
	if err := CheckGitOptions(r.GitOptions); err != nil {
		return nil, err
	}
	var warnings []string
	switch r.Type = r.Type.OrDefault(); {
	case !r.Type.Known():
		return nil, fault.With(fault.New(fault.Invalid, "type %q is unknown", Shorten(string(r.Type))), "", "set it to git, helm or oci")
	case r.Registry() && r.Type == hub.GitRepository:
		return nil, fault.With(fault.New(fault.Invalid, "an oci:// address is none of a Git repository"), "", "set the type to oci, or to helm for charts")
	case r.Type == hub.OCIRepository && !r.Registry():
		return nil, fault.With(fault.New(fault.Invalid, "the address of an OCI repository begins with oci://"), "", "write it like oci://registry.example.com/team/app")
	case r.PlainHTTP && !r.Registry():
		return nil, fault.With(fault.New(fault.Invalid, "insecureOCIForceHttp is for registries alone"), "", "leave it out, or write the address with oci://")
	}
	switch {
	case r.PlainHTTP:
		warnings = append(warnings, "the registry is contacted without TLS, and gets its password in clear text (insecureOCIForceHttp)")
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
	if cred.Exchanged != (hub.Exchanged{}) {
		if err := cred.Exchanged.Check(); err != nil {
			return nil, err
		}
		if overSSH || cred.Password+cred.BearerToken+cred.SSHPrivateKey != "" {
			return nil, fault.With(fault.New(fault.Invalid, "a GitHub App, a Google service account or an Azure identity is the only credential of a repository over HTTPS"), "",
				"use its https:// URL, and remove password, bearer token and SSH key")
		}
		return cred, nil
	}
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
