// Package repoflags has the flags of repo add and repocreds add that both have,
// under the names of argocd. Secrets are read from files, never from arguments.
package repoflags

import (
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/capstan-cd/capstan/shared/apimodel"
	"github.com/capstan-cd/capstan/shared/fault"
)

// Flags are identities and ways to a repository.
type Flags struct {
	app, installation                            int64
	appKey, appURL                               string
	googleKey                                    string
	azureWorkload                                bool
	azureID, azureTenant, azureSecret, azureHost string
	proxy, noProxy                               string
	sshKey, tlsCert, tlsKey                      string
	lfs                                          bool
	depth                                        int
}

// Bind adds the flags of credentials to a command; with all, also those of a
// single repository.
func (f *Flags) Bind(c *cobra.Command, all bool) {

	s := c.Flags()
	s.StringVar(&f.sshKey, "ssh-private-key-path", "", "file with the private key for an SSH URL, without a passphrase")
	s.StringVar(&f.tlsCert, "tls-client-cert-path", "", "file with the client certificate for an https URL")
	s.StringVar(&f.tlsKey, "tls-client-cert-key-path", "", "file with the private key of the client certificate, without a passphrase")
	s.Int64Var(&f.app, "github-app-id", 0, "id of a GitHub App, which tokens are requested with")
	s.Int64Var(&f.installation, "github-app-installation-id", 0, "id of its installation; default: that of the repository")
	s.StringVar(&f.appKey, "github-app-private-key-path", "", "file with the private key of the GitHub App")
	s.StringVar(&f.appURL, "github-app-enterprise-base-url", "", "API of GitHub Enterprise, such as https://github.example.com/api/v3")
	s.StringVar(&f.googleKey, "gcp-service-account-key-path", "", "file with the JSON key of a Google service account")
	s.BoolVar(&f.azureWorkload, "use-azure-workload-identity", false, "use the identity of the hub in Azure, if its operator permits it")
	s.StringVar(&f.azureID, "azure-service-principal-client-id", "", "client id of a service principal of Azure")
	s.StringVar(&f.azureTenant, "azure-service-principal-tenant-id", "", "Azure tenant of the service principal")
	s.StringVar(&f.azureSecret, "azure-service-principal-client-secret-path", "", "file with the client secret of the service principal")
	s.StringVar(&f.azureHost, "azure-active-directory-endpoint", "", "address of Active Directory; default: https://login.microsoftonline.com")
	s.StringVar(&f.proxy, "proxy", "", "HTTP proxy to the server, which the operator of the hub permits")
	s.StringVar(&f.noProxy, "no-proxy", "", "hosts, domains and networks that are reached without the proxy, separated by commas")
	if all {
		s.BoolVar(&f.lfs, "enable-lfs", false, "fetch the contents of files in Git LFS")
		s.IntVar(&f.depth, "depth", 0, "how many commits of each branch are fetched; 0: all")
	}
}

// Given reports whether a credential other than a password was given.
func (f *Flags) Given() bool {
	return f.sshKey+f.tlsCert+f.googleKey+f.azureID != "" || f.app != 0 || f.azureWorkload
}

// Repository fills in the settings of a repository.
func (f *Flags) Repository(to *apimodel.RepositoryInput) error {
	to.GithubAppID, to.GithubAppInstallationID, to.GithubAppEnterpriseBaseUrl = f.app, f.installation, f.appURL
	to.UseAzureWorkloadIdentity, to.AzureServicePrincipalClientId, to.AzureServicePrincipalTenantId = f.azureWorkload, f.azureID, f.azureTenant
	to.AzureActiveDirectoryEndpoint, to.Proxy, to.NoProxy, to.EnableLfs, to.Depth = f.azureHost, f.proxy, f.noProxy, f.lfs, f.depth
	for key, into := range map[string]**string{
		"sshPrivateKey": &to.SshPrivateKey, "tlsClientCertData": &to.TlsClientCertData, "tlsClientCertKey": &to.TlsClientCertKey,
		"githubAppPrivateKey": &to.GithubAppPrivateKey, "gcpServiceAccountKey": &to.GcpServiceAccountKey, "azureServicePrincipalClientSecret": &to.AzureServicePrincipalClientSecret,
	} {
		text, err := f.secret(key)
		if err != nil {
			return err
		}
		if text != "" {
			*into = &text
		}
	}
	return nil
}

// Values returns the same as the values of a Secret of Argo CD.
func (f *Flags) Values() (map[string]string, error) {
	out := map[string]string{
		"githubAppEnterpriseBaseUrl": f.appURL, "azureServicePrincipalClientId": f.azureID, "azureServicePrincipalTenantId": f.azureTenant,
		"azureActiveDirectoryEndpoint": f.azureHost, "proxy": f.proxy, "noProxy": f.noProxy,
		"githubAppID": number(f.app), "githubAppInstallationID": number(f.installation),
	}
	if f.azureWorkload {
		out["useAzureWorkloadIdentity"] = "true"
	}
	for key := range f.files() {
		text, err := f.secret(key)
		if err != nil {
			return nil, err
		}
		out[key] = text
	}
	for key, v := range out {
		if v == "" {
			delete(out, key)
		}
	}
	return out, nil
}

// files are where secrets are read from.
func (f *Flags) files() map[string]string {
	return map[string]string{
		"sshPrivateKey": f.sshKey, "tlsClientCertData": f.tlsCert, "tlsClientCertKey": f.tlsKey,
		"githubAppPrivateKey": f.appKey, "gcpServiceAccountKey": f.googleKey, "azureServicePrincipalClientSecret": f.azureSecret,
	}
}

// names say what a file is in an error.
func names() map[string]string {
	return map[string]string{
		"sshPrivateKey": "private key", "tlsClientCertData": "client certificate", "tlsClientCertKey": "client certificate's key",
		"githubAppPrivateKey": "private key of the GitHub App", "gcpServiceAccountKey": "key of the service account", "azureServicePrincipalClientSecret": "client secret",
	}
}

func (f *Flags) secret(key string) (string, error) {
	file := f.files()[key]
	if file == "" {
		return "", nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fault.Wrap(fault.Invalid, err, "the %s %s cannot be read", names()[key], file)
	}
	if key == "azureServicePrincipalClientSecret" {
		return strings.TrimRight(string(text), "\r\n"), nil
	}
	return string(text), nil
}

func number(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}
