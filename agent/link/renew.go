package link

import (
	"context"
	"errors"
	"fmt"
	"time"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/logkey"
)

// leastRetry is the shortest wait before a failed renewal is retried.
const leastRetry = 10 * time.Second

// errRenewed ends a session so that the next one uses the new certificate.
var errRenewed = errors.New("the certificate was renewed")

// renew waits for half of the certificate's lifetime, gets a new one for a new
// key, saves it and ends the session. The old one stays valid until it expires,
// so a failure only costs another attempt.
func (c *Client) renew(ctx context.Context, a *attachment) error {
	leaf, err := c.leaf()
	if err != nil {
		return err
	}
	due := renewAt(leaf, c.random())
	wait := lifecycle.Backoff{First: time.Minute, Max: time.Hour, Rand: c.cfg.Random}
	for {
		if left := due.Sub(c.HubNow()); left > 0 {
			// In steps: the estimate of the hub's time may change.
			if err := lifecycle.Sleep(ctx, c.cfg.Clock, min(left, time.Hour)); err != nil {
				return err
			}
			continue
		}
		err := c.renewOnce(ctx, a)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil {
			c.cfg.Log.InfoContext(ctx, "certificate renewed")
			return errRenewed
		}
		next := leastRetry + wait.Next()
		c.cfg.Log.WarnContext(ctx, "the certificate was not renewed", logkey.Error, err, logkey.Wait, next)
		due = c.HubNow().Add(next)
	}
}

func (c *Client) renewOnce(ctx context.Context, a *attachment) error {
	id := c.Identity()
	key, err := newKey()
	if err != nil {
		return err
	}
	csr, err := newCSR(key)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	res, err := linkv1.NewIdentityClient(a.conn).Renew(ctx, &linkv1.RenewRequest{Csr: csr})
	if err != nil {
		return err
	}
	id.Key = key
	if id, err = id.with(res.GetChain(), res.GetCa()); err != nil {
		return fmt.Errorf("the hub's answer to the renewal: %w", err)
	}
	if err := c.cfg.Vault.Save(ctx, id); err != nil {
		return fmt.Errorf("save the agent's identity: %w", err)
	}
	c.setIdentity(id)
	return nil
}
