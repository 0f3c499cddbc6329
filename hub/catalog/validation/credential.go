package validation

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

// ReadCredential takes what opens a repository out of the values of a Secret, in
// the keys of Argo CD; nil: nothing does. Errors repeat no value.
func ReadCredential(v map[string]string) (*hub.Credential, error) {
	cred := hub.Credential{
		Username: PopString(v, "username"), Password: PopString(v, "password"), BearerToken: PopString(v, "bearerToken"), SSHPrivateKey: PopString(v, "sshPrivateKey"),
		TLSClientCert: PopString(v, "tlsClientCertData"), TLSClientKey: PopString(v, "tlsClientCertKey"),
	}
	delete(v, "forceHttpBasicAuth") // it is always sent at once (CRED-05)
	cred.GoogleKey = PopString(v, "gcpServiceAccountKey")
	app := hub.GitHubApp{PrivateKey: PopString(v, "githubAppPrivateKey"), BaseURL: PopString(v, "githubAppEnterpriseBaseUrl")}
	azure := hub.AzureIdentity{
		ClientID: PopString(v, "azureServicePrincipalClientId"), ClientSecret: PopString(v, "azureServicePrincipalClientSecret"),
		TenantID: PopString(v, "azureServicePrincipalTenantId"), Endpoint: PopString(v, "azureActiveDirectoryEndpoint"),
	}
	var err error
	if app.ID, err = popNumber(v, "githubAppID", 1<<53); err == nil {
		app.InstallationID, err = popNumber(v, "githubAppInstallationID", 1<<53)
	}
	if err == nil {
		azure.Workload, err = popTruth(v, "useAzureWorkloadIdentity")
	}
	if err != nil {
		return nil, err
	}
	cred.GitHubApp, cred.Azure = app, azure
	if cred == (hub.Credential{}) {
		return nil, nil
	}
	return &cred, nil
}

// ReadGitOptions takes how a repository is reached, and what is fetched of it,
// out of the values of a Secret.
func ReadGitOptions(v map[string]string) (hub.GitOptions, error) {
	// What a push does not concern is not rendered, so there is no cache to
	// warm up (CRED-14).
	delete(v, "webhookManifestCacheWarmDisabled")
	o := hub.GitOptions{Proxy: PopString(v, "proxy"), NoProxy: PopString(v, "noProxy")}
	var err error
	if o.LFS, err = popTruth(v, "enableLfs"); err != nil {
		return o, err
	}
	depth, err := popNumber(v, "depth", hub.MaxDepth)
	o.Depth = int(depth)
	return o, err
}

// CheckGitOptions validates how a repository is reached.
func CheckGitOptions(o hub.GitOptions) error {
	if _, err := hub.ReadProxy(o.Proxy); err != nil {
		return err
	}
	if o.NoProxy != "" && o.Proxy == "" {
		return fault.With(fault.New(fault.Invalid, "noProxy is set without a proxy"), "", "set proxy, or remove noProxy")
	}
	if len(o.NoProxy) > 4096 || strings.ContainsAny(o.NoProxy, "\r\n\x00") {
		return fault.With(fault.New(fault.Invalid, "noProxy is no list of hosts"), "", "separate host names, domains and networks by commas")
	}
	if o.Depth < 0 || o.Depth > hub.MaxDepth {
		return fault.With(fault.New(fault.Invalid, "depth %d is not from 0 to %d", o.Depth, hub.MaxDepth), "", "set it to the number of commits, or to 0 for all")
	}
	return nil
}

// NotStored names keys of a Secret that nothing has taken, never their values.
func NotStored(v map[string]string) []string {
	var warnings []string
	for _, key := range slices.Sorted(maps.Keys(v)) {
		warnings = append(warnings, fmt.Sprintf("the key %s was not stored: this release does not serve it", Shorten(key)))
	}
	return warnings
}

func popNumber(v map[string]string, key string, most int64) (int64, error) {
	text := strings.TrimSpace(PopString(v, key))
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > most {
		return 0, fault.With(fault.New(fault.Invalid, "%s is no number from 0 to %d", key, most), "", "write it in digits, in quotes")
	}
	return n, nil
}

func popTruth(v map[string]string, key string) (bool, error) {
	text := strings.TrimSpace(PopString(v, key))
	if text == "" {
		return false, nil
	}
	truth, err := strconv.ParseBool(text)
	if err != nil {
		return false, fault.With(fault.New(fault.Invalid, "%s is neither true nor false", key), "", `write "true" or "false"`)
	}
	return truth, nil
}
