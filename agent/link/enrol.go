package link

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"time"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/logkey"
	"github.com/capstan-cd/capstan/shared/tunnel"
)

// callTimeout bounds a single call to the hub.
const callTimeout = 20 * time.Second

// EnrolConfig is what Enroll needs. Fields without a default are required.
type EnrolConfig struct {
	Vault   Vault
	Cluster Cluster
	Log     *slog.Logger
	Version string             // of the agent; may be empty
	Proxy   tunnel.ProxyConfig // proxies between the agent and the hub
	Dial    tunnel.Dialer      // nil: TCP
	Clock   lifecycle.Clock    // nil: the real one
}

// Enroll returns the agent's identity, and creates it with the join token if
// there is none. Called again with the same token, or without one, it only
// loads the identity; another token replaces it. It retries while the hub is
// unreachable, and returns at once when the hub refuses. A refusal leaves an
// existing identity unchanged.
func Enroll(ctx context.Context, joinToken string, cfg EnrolConfig) (Identity, error) {
	if cfg.Clock == nil {
		cfg.Clock = lifecycle.System{}
	}
	old, err := cfg.Vault.Load(ctx)
	if err != nil && fault.KindOf(err) != fault.Missing {
		return Identity{}, fmt.Errorf("load the agent's identity: %w", err)
	}
	if joinToken == "" {
		if !old.Enrolled() {
			return Identity{}, fault.With(fault.New(fault.Unknown, "it is not enrolled and has no join token"), "agent", "create a join token for this cluster in the hub")
		}
		return old, nil
	}
	token, err := tunnel.ParseJoinToken(joinToken)
	if err == nil && old.Enrolled() && bytes.Equal(old.Token, tokenHash(token)) {
		return old, nil
	}
	var id Identity
	if err == nil {
		id, err = enroll(ctx, token, old, cfg)
	}
	if err != nil && old.Enrolled() && ctx.Err() == nil {
		cfg.Log.WarnContext(ctx, "the new join token did not work, the agent keeps its identity", logkey.Error, err)
		return old, nil
	}
	return id, err
}

func tokenHash(t tunnel.JoinToken) []byte {
	sum := sha256.Sum256([]byte(t.Secret))
	return sum[:]
}

// enroll tries the hub's addresses until one enrols the agent or refuses it.
func enroll(ctx context.Context, token tunnel.JoinToken, old Identity, cfg EnrolConfig) (Identity, error) {
	id, err := pending(ctx, token, old, cfg)
	if err != nil {
		return Identity{}, err
	}
	cfg.Log.InfoContext(ctx, "enrolling at the hub", logkey.Address, token.Addresses[0])
	wait := lifecycle.Backoff{First: time.Second, Max: time.Minute}
	var memory tunnel.ProxyMemory
	for {
		for _, address := range token.Addresses {
			var done Identity
			if done, err = enrollAt(ctx, address, token, id, &memory, cfg); err == nil {
				return done, nil
			}
			if ctx.Err() != nil || !worthRetry(err) {
				return Identity{}, err
			}
			cfg.Log.WarnContext(ctx, "enrolment is tried again", logkey.Address, address, logkey.Error, err)
		}
		d := wait.Next()
		if f, ok := fault.As(err); ok {
			d = max(d, f.RetryAfter)
		}
		if lifecycle.Sleep(ctx, cfg.Clock, d) != nil {
			return Identity{}, err
		}
	}
}

// worthRetry reports whether an enrolment failed for a temporary reason.
func worthRetry(err error) bool {
	kind := fault.KindOf(err)
	return kind == fault.Offline || kind == fault.Exceeded
}

// pending makes the key and, where no identity would be overwritten, saves it
// first: if the hub's first response is lost, it accepts the same key again.
func pending(ctx context.Context, token tunnel.JoinToken, old Identity, cfg EnrolConfig) (Identity, error) {
	id := Identity{Addresses: token.Addresses, Pins: []string{token.Pin.String()}, Token: tokenHash(token)}
	if !old.Enrolled() && len(old.Key) > 0 && bytes.Equal(old.Token, id.Token) {
		id.Key = old.Key
		return id, nil
	}
	key, err := newKey()
	if err != nil {
		return Identity{}, err
	}
	id.Key = key
	if old.Enrolled() {
		return id, nil
	}
	if err := cfg.Vault.Save(ctx, id); err != nil {
		return Identity{}, fmt.Errorf("save the agent's key: %w", err)
	}
	return id, nil
}

func enrollAt(ctx context.Context, address string, token tunnel.JoinToken, id Identity, memory *tunnel.ProxyMemory, cfg EnrolConfig) (Identity, error) {
	facts, err := cfg.Cluster.Facts(ctx)
	if err != nil {
		return Identity{}, fmt.Errorf("read the cluster's facts: %w", err)
	}
	csr, err := newCSR(id.Key)
	if err != nil {
		return Identity{}, err
	}
	session, err := tunnel.Dial(ctx, address, tunnel.DialConfig{
		Lane: tunnel.Control(), Pins: []tunnel.Pin{token.Pin}, Proxy: cfg.Proxy, Memory: memory, Dial: cfg.Dial, Log: cfg.Log, Clock: cfg.Clock,
	})
	if err != nil {
		return Identity{}, err
	}
	defer session.Close(errEnrolled)
	conn, err := session.Conn()
	if err != nil {
		return Identity{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	res, err := linkv1.NewIdentityClient(conn).Enroll(ctx, &linkv1.EnrollRequest{
		Token: string(token.Secret), Csr: csr, Fingerprint: facts.Fingerprint, AgentVersion: cfg.Version,
	})
	if err != nil {
		return Identity{}, err
	}
	id.AgentID, id.ClusterName = res.GetAgentId(), res.GetClusterName()
	if id, err = id.with(res.GetChain(), res.GetCa()); err != nil {
		return Identity{}, fmt.Errorf("the hub's answer to the enrolment: %w", err)
	}
	if err := cfg.Vault.Save(ctx, id); err != nil {
		return Identity{}, fmt.Errorf("save the agent's identity: %w", err)
	}
	return id, nil
}

var errEnrolled = errors.New("enrolment is over")
