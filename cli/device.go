package cli

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/cli/session"
	"github.com/capstan-cd/capstan/shared/fault"
)

const (
	devicePause = 5 * time.Second  // between two questions, where the hub names none
	deviceSlow  = 5 * time.Second  // longer after each question that came too early
	deviceWaits = 10 * time.Minute // where the hub does not say how long a code lasts
)

// signInByDevice shows a code, which somebody types in a browser of any machine,
// and asks until that is approved (RFC 8628). The session is stored.
func (a *app) signInByDevice(ctx context.Context, cfg session.Context, tenant string) error {
	cfg.Token = "" // of a session that may have ended
	api, err := session.NewClient(cfg)
	if err != nil {
		return err
	}
	begun, err := api.AskDevice(ctx, url.Values{"client_id": {"capstan"}, "tenant": {tenant}})
	if err != nil {
		return err
	}
	if begun.DeviceCode == "" {
		return fault.With(fault.New(fault.Unknown, "the hub does not sign this device in: %s", cmp.Or(begun.Description, begun.Error, "it gave no code")), "", "check --tenant, or sign in with --sso, --username or --token-stdin")
	}
	a.Note("Open %s in a browser of any machine and type the code:\n\n    %s\n\nOr open %s and compare the code there. Nobody else needs it: whoever gets it approved acts as you.",
		begun.URI, begun.UserCode, begun.Complete)
	lasts := time.Duration(begun.ExpiresIn) * time.Second
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(lasts, deviceWaits))
	defer cancel()
	if cfg.Token, err = awaitApproval(ctx, api, begun); err != nil {
		return err
	}
	return a.storeSignIn(context.WithoutCancel(ctx), cfg)
}

// awaitApproval asks until somebody has decided, or the code has expired.
func awaitApproval(ctx context.Context, api *client.Client, begun client.DeviceAnswer) (token string, err error) {
	pause := cmp.Or(time.Duration(begun.Interval)*time.Second, devicePause)
	for {
		select {
		case <-ctx.Done():
			if ctx.Err() == context.DeadlineExceeded {
				return "", errDeviceExpired()
			}
			return "", ctx.Err()
		case <-time.After(pause):
		}
		answer, err := api.AskToken(ctx, url.Values{
			"client_id": {"capstan"}, "grant_type": {"urn:ietf:params:oauth:grant-type:device_code"}, "device_code": {begun.DeviceCode},
		})
		switch {
		case answer.AccessToken != "":
			return answer.AccessToken, nil
		case answer.Error == "slow_down", answer.Status == http.StatusTooManyRequests:
			pause += deviceSlow
		case answer.Error == "expired_token":
			return "", errDeviceExpired()
		case answer.Error == "access_denied":
			return "", fault.With(fault.New(fault.Unknown, "%s", cmp.Or(answer.Description, "the sign-in was denied")), "", "begin again, if it was you")
		case answer.Error == "authorization_pending", err != nil && ctx.Err() == nil, answer.Status >= http.StatusInternalServerError:
			// The hub may be away for a moment: the code stays good.
		case ctx.Err() == nil:
			return "", fault.With(fault.New(fault.Unknown, "the sign-in failed: %s", cmp.Or(answer.Description, answer.Error)), "", "begin again")
		}
	}
}

func errDeviceExpired() error {
	return fault.With(fault.New(fault.Offline, "nobody has approved this sign-in in time"), "", "run the command again for a new code")
}
