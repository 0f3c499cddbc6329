// Package argocd has what users of Argo CD's command line expect: its global
// flags and variables, and an answer for each of its commands that works in
// another way here. Package cli adds it to its own commands.
package argocd

import (
	"io"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/capstan-cd/capstan/cli/session"
	"github.com/capstan-cd/capstan/cli/usage"
)

// Flags are the global flags that this command line shares with Argo CD's.
type Flags struct {
	serverCert, clientCert, clientKey string
	headers                           []string
	retries                           int
	plaintext, insecure, prompts      bool
	level, format, rootPath           string
	core, portForward                 bool
}

// Add declares the flags. The token's flag is Argo CD's name of --token.
func (f *Flags) Add(set *pflag.FlagSet, token *string) {
	set.StringVar(token, "auth-token", "", "API token, as --token")
	set.BoolVar(&f.plaintext, "plaintext", false, "use http for an address without a scheme")
	set.BoolVar(&f.insecure, "insecure", false, "do not check the hub's certificate")
	set.StringVar(&f.serverCert, "server-crt", "", "file with the authorities of the hub's certificate")
	set.StringVar(&f.clientCert, "client-crt", "", "file with a client certificate")
	set.StringVar(&f.clientKey, "client-crt-key", "", "file with the key of --client-crt")
	set.StringArrayVarP(&f.headers, "header", "H", nil, "header of every request, as NAME: VALUE; may be given several times")
	set.IntVar(&f.retries, "http-retry-max", 0, "how often a read is tried again that got no answer")
	set.StringVar(&f.level, "loglevel", "info", "debug, info, warn or error; debug names every request")
	set.StringVar(&f.format, "logformat", "text", "form of what debug names: text or json")
	set.BoolVar(&f.prompts, "prompts-enabled", true, "ask before something is deleted; without it --yes is needed")
	set.BoolVar(&f.core, "core", false, "not here: there is no mode without a hub")
	set.BoolVar(&f.portForward, "port-forward", false, "not here: give the address of the hub by --server")
	for _, name := range [...]string{"grpc-web"} {
		set.Bool(name, false, "without effect: the hub is called by HTTP alone")
	}
	set.StringVar(&f.rootPath, "grpc-web-root-path", "", "path of an address that has none, as in https://example.com/capstan")
	for _, name := range [...]string{"port-forward-namespace", "kube-context"} {
		set.String(name, "", "without effect: the hub is called by HTTP alone, and no kubeconfig is read")
	}
	for _, name := range [...]string{"core", "port-forward", "grpc-web", "grpc-web-root-path", "port-forward-namespace", "kube-context", "auth-token"} {
		_ = set.MarkHidden(name) // it exists: it was declared above
	}
}

// Read checks the flags, warns of those without effect, and returns how the hub
// is reached.
func (f *Flags) Read(set *pflag.FlagSet, warn io.Writer) (session.Transport, error) {
	t := session.Transport{
		Plaintext: f.plaintext, Insecure: f.insecure, ServerCert: f.serverCert, ClientCert: f.clientCert, ClientKey: f.clientKey, Headers: f.headers, Retries: f.retries, RootPath: f.rootPath,
	}
	switch {
	case f.core:
		return t, usage.Errorf("--core: there is no mode without a hub, because rights are those of its policies; sign in with `capstan login URL`; what needs no hub is under `capstan admin`")
	case f.portForward:
		return t, usage.Errorf("--port-forward: give the address of the hub by --server, or forward a port with `kubectl port-forward` yourself")
	case f.retries < 0:
		return t, usage.Errorf("--http-retry-max is below zero")
	}
	level, err := usage.Among("--loglevel", strings.ToLower(f.level), "debug", "info", "warn", "error")
	if err == nil {
		f.format, err = usage.Among("--logformat", f.format, "text", "json")
	}
	if err != nil {
		return t, err
	}
	if level == "debug" {
		t.LogRequests, t.LogJSON = warn, f.format == "json"
	}
	for _, name := range [...]string{"grpc-web", "port-forward-namespace", "kube-context"} {
		if set.Changed(name) {
			_, _ = io.WriteString(warn, "capstan: note: --"+name+" has no effect: the hub is called by HTTP alone, and no kubeconfig is read\n")
		}
	}
	return t, nil
}

// Prompts reports whether questions may be asked.
func (f *Flags) Prompts(warn io.Writer) bool {
	stored, err := session.ReadFile(warn)
	return f.prompts && (err != nil || !stored.NoPrompts)
}

// Arguments puts the flags of CAPSTAN_OPTS, or of ARGOCD_OPTS without it, in
// front of those of the command line.
func Arguments(args []string) []string {
	text, set := os.LookupEnv("CAPSTAN_OPTS")
	if !set {
		text = os.Getenv("ARGOCD_OPTS")
	}
	return append(usage.Words(text), args...)
}
