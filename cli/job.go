package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
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
	maxJob     = 64 << 10 // bytes of a token, and of an answer
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
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, cfg.Server+"/api/v1/token", strings.NewReader(form.Encode()))
	if err != nil {
		return fault.New(fault.Invalid, "%q is no URL of a hub", cfg.Server)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fault.Wrap(fault.Offline, err, "the hub does not answer")
	}
	defer resp.Body.Close()
	var out struct {
		AccessToken string `json:"access_token"`
		Error       string `json:"error"`
		Description string `json:"error_description"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxJob)).Decode(&out); err != nil {
		return fault.Wrap(fault.Offline, err, "the hub answered with status %d", resp.StatusCode)
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
