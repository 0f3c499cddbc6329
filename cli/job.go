package cli

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/capstan-cd/capstan/cli/session"
	"github.com/capstan-cd/capstan/shared/fault"
)

// jobToken is how a job of a CI system signs in: with a token of that system.
type jobToken struct{ file, trust string }

func (j *jobToken) flags(f *pflag.FlagSet) {
	f.StringVar(&j.file, "id-token-file", "", "file with an ID token of a CI system to exchange; - is standard input")
	f.StringVar(&j.trust, "trust", "", "name of the issuer in tokenExchange (default: any that accepts the token)")
}

const (
	jobTimeout = 30 * time.Second
	maxJob     = 64 << 10 // bytes of a token
)

// signInByJob exchanges the token of a job for one of the hub, and stores that.
func (a *app) signInByJob(ctx context.Context, cfg session.Context, tenant string, j jobToken) error {
	token, err := a.readJob(j.file)
	if err != nil {
		return err
	}
	form := url.Values{
		"grant_type": {"urn:ietf:params:oauth:grant-type:token-exchange"}, "subject_token_type": {"urn:ietf:params:oauth:token-type:id_token"},
		"subject_token": {token}, "tenant": {tenant}, "connector_id": {j.trust},
	}
	ctx, cancel := context.WithTimeout(ctx, jobTimeout)
	defer cancel()
	cfg.Token = "" // of a session that may have ended
	api, err := session.NewClient(cfg)
	if err != nil {
		return err
	}
	out, err := api.AskToken(ctx, form)
	if err != nil {
		return err
	}
	if out.AccessToken == "" {
		return fault.With(fault.New(fault.Unknown, "%s", cmp.Or(out.Description, out.Error, "the token was not exchanged")), "", "compare the claims of the token with tokenExchange of argocd-cm")
	}
	cfg.Token = out.AccessToken
	return a.storeSignIn(ctx, cfg)
}

// readJob reads the token from a file or from standard input.
func (a *app) readJob(file string) (string, error) {
	if file == "-" {
		return a.secret("")
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("read the ID token: %w", err)
	}
	if text := strings.TrimSpace(string(b)); text != "" && len(text) <= maxJob {
		return text, nil
	}
	return "", fault.New(fault.Invalid, "%s contains no ID token", file)
}
