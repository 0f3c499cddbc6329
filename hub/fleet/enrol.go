package fleet

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"errors"
	"fmt"

	"github.com/capstan-cd/capstan/hub"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/logkey"
	"github.com/capstan-cd/capstan/shared/tunnel"
)

// How far a failed attempt to enrol came; the words of hub.Attempt.Stage. One
// that went well is "issued".
const (
	stageToken   = "token"
	stageExpired = "expired"
	stageUsed    = "used"
	stageCSR     = "csr"
	stageStore   = "store"
)

// Bounds of what an agent says of itself.
const (
	mostCSR  = 4 << 10
	mostText = 128
)

// identity serves link.v1.Identity.
type identity struct {
	linkv1.UnimplementedIdentityServer
	s     *Server
	limit *enrolLimit
}

// Enroll trades a join token for a certificate. Every attempt whose token
// has the right form is recorded with the stage that it reached.
func (i *identity) Enroll(ctx context.Context, req *linkv1.EnrollRequest) (*linkv1.EnrollResponse, error) {
	session, ok := tunnel.SessionFrom(ctx)
	if !ok {
		return nil, errNoSession()
	}
	if err := i.limit.takeLookup(session.Address(), i.s.cfg.Clock.Now()); err != nil {
		return nil, err
	}
	secret := req.GetToken()
	if !tunnel.ValidSecret(secret) {
		i.limit.unknown(session.Address(), i.s.cfg.Clock.Now())
		i.s.cfg.Log.WarnContext(ctx, "enrolment refused", logkey.Stage, stageToken, logkey.Address, session.Address(),
			logkey.Security, 3, logkey.CWE, 287)
		i.s.cfg.Enrolled(stageToken)
		return nil, errToken()
	}
	res, stage, err := i.enroll(ctx, secret, session.Address(), req)
	if err != nil && stage != "" {
		i.record(ctx, secret[:prefixLength], session.Address(), stage, req.GetAgentVersion(), err)
	}
	return res, err
}

// record notes a failed attempt; the store notes one that went well together
// with the redemption.
func (i *identity) record(ctx context.Context, prefix, address, stage, version string, why error) {
	i.s.cfg.Enrolled(stage)
	if !plain(version, mostText) {
		version = ""
	}
	err := i.s.cfg.Enrolments.Attempted(ctx, prefix, hub.Attempt{
		At: i.s.cfg.Clock.Now(), Address: address, Stage: stage, Message: fault.Sentence(why), AgentVersion: version,
	})
	if err != nil {
		i.s.cfg.Log.ErrorContext(ctx, "an attempt to enrol was not recorded", logkey.Stage, stage, logkey.Error, err)
	}
	i.s.cfg.Log.WarnContext(ctx, "enrolment refused", logkey.Stage, stage, logkey.Address, address, logkey.Error, why, logkey.Security, 3, logkey.CWE, 287)
}

// enroll redeems a join token. With an error it returns the stage that is
// recorded; it is empty if none is.
func (i *identity) enroll(ctx context.Context, secret, address string, req *linkv1.EnrollRequest) (*linkv1.EnrollResponse, string, error) {
	inv, stage, err := i.admit(ctx, secret, address, req)
	if err != nil {
		return nil, stage, err
	}
	if req.GetProbe() {
		if inv.UsedAt != nil {
			return nil, stageUsed, errUsed()
		}
		return &linkv1.EnrollResponse{ClusterName: inv.ClusterName}, "", nil
	}
	key, err := parseCSR(req.GetCsr())
	if err != nil {
		return nil, stageCSR, err
	}
	if err := checkNames(req.GetFingerprint(), req.GetAgentVersion()); err != nil {
		return nil, stageCSR, err
	}
	made, stage, err := i.redeem(ctx, inv, key, address, req)
	if fault.KindOf(err) == fault.Conflict {
		// The same key may have redeemed it in between: its owner did not wait
		// for the first reply. Then the agent of that reply is the one.
		if inv, err = i.invitation(ctx, secret); err != nil {
			return nil, stageUsed, errUsed()
		}
		if made, stage, err = i.redeem(ctx, inv, key, address, req); fault.KindOf(err) == fault.Conflict {
			return nil, stageUsed, errUsed()
		}
	}
	if err != nil {
		return nil, stage, err
	}
	// The replaced agent is disconnected now, and not at the next poll.
	i.s.Recheck()
	i.s.cfg.Revoked()
	i.s.cfg.Enrolled("issued")
	i.s.cfg.Log.InfoContext(ctx, "agent enrolled", logkey.Tenant, inv.Tenant, logkey.Cluster, inv.Cluster, logkey.Agent, made.peer.AgentID, logkey.Address, address)
	return &linkv1.EnrollResponse{
		Chain: made.chain, Ca: i.s.cfg.Authority.Root(), AgentId: made.peer.AgentID,
		ClusterName: inv.ClusterName, NotAfterUnix: made.cert.NotAfter.Unix(),
	}, "", nil
}

// admit finds the invitation of a token and refuses one that is not valid any
// more, and an agent that is too old. With an error it returns the stage.
func (i *identity) admit(ctx context.Context, secret, address string, req *linkv1.EnrollRequest) (hub.Invitation, string, error) {
	inv, err := i.invitation(ctx, secret)
	now := i.s.cfg.Clock.Now()
	if fault.KindOf(err) == fault.Missing {
		i.limit.unknown(address, now)
		return inv, stageToken, errToken()
	}
	if err != nil {
		return inv, stageToken, err
	}
	if err := i.limit.takeKnown(inv, now); err != nil {
		return inv, "", err
	}
	if !now.Before(inv.ExpiresAt) {
		return inv, stageExpired, fault.With(fault.New(fault.Unknown, "it expired"), "join token", "create a new one")
	}
	return inv, stageVersion, checkVersion(i.s.cfg.MinVersion, req.GetAgentVersion())
}

// invitation finds the invitation of a token.
func (i *identity) invitation(ctx context.Context, secret string) (hub.Invitation, error) {
	inv, err := i.s.cfg.Enrolments.EnrolmentByHash(ctx, hashSecret(secret))
	if err != nil {
		return inv, fmt.Errorf("find the enrolment: %w", err)
	}
	return inv, nil
}

// redeem makes an agent of an invitation and its certificate, and stores both.
// With an error it returns the stage.
func (i *identity) redeem(ctx context.Context, inv hub.Invitation, key *ecdsa.PublicKey, address string, req *linkv1.EnrollRequest) (enrolled, string, error) {
	agent, err := i.agentFor(inv, key)
	if err != nil {
		return enrolled{}, stageUsed, err
	}
	made := enrolled{peer: tunnel.Peer{Tenant: string(inv.Tenant), Cluster: string(inv.Cluster), AgentID: agent}}
	if made.chain, made.cert, err = i.s.cfg.Authority.issue(made.peer, key); err != nil {
		return enrolled{}, stageCSR, err
	}
	err = i.s.cfg.Enrolments.Redeem(ctx, hub.Redemption{
		Enrolment: inv.ID, Key: keyHash(key), Fingerprint: req.GetFingerprint(), AgentVersion: req.GetAgentVersion(),
		Certificate: made.cert, Address: address, At: i.s.cfg.Clock.Now(),
	})
	if err != nil {
		return enrolled{}, stageStore, fmt.Errorf("redeem enrolment %q: %w", inv.ID, err)
	}
	return made, "", nil
}

// An enrolled is an agent that an invitation made, with its certificate.
type enrolled struct {
	peer  tunnel.Peer
	chain [][]byte
	cert  hub.Certificate
}

// agentFor returns the id of the agent that an invitation makes. One that was
// used before is valid for the same key only: its owner did not receive the
// first reply.
func (i *identity) agentFor(inv hub.Invitation, key *ecdsa.PublicKey) (string, error) {
	if inv.UsedAt == nil {
		return string(hub.NewID[hub.TokenID]()), nil
	}
	if inv.AgentID == "" || subtle.ConstantTimeCompare(inv.Key, keyHash(key)) != 1 {
		return "", errUsed()
	}
	return inv.AgentID, nil
}

// Renew returns the caller a fresh certificate for the identity that its
// session has already proved.
func (i *identity) Renew(ctx context.Context, req *linkv1.RenewRequest) (*linkv1.RenewResponse, error) {
	peer, ok := tunnel.PeerFrom(ctx)
	if !ok {
		return nil, errNoSession()
	}
	key, err := parseCSR(req.GetCsr())
	if err != nil {
		return nil, err
	}
	chain, cert, err := i.s.cfg.Authority.issue(peer, key)
	if err != nil {
		return nil, err
	}
	if err := i.s.cfg.Enrolments.Renewed(ctx, cert); err != nil {
		return nil, fmt.Errorf("record a certificate of agent %q: %w", peer.AgentID, err)
	}
	i.s.cfg.Log.InfoContext(ctx, "certificate renewed", logkey.Tenant, peer.Tenant, logkey.Cluster, peer.Cluster, logkey.Agent, peer.AgentID)
	return &linkv1.RenewResponse{Chain: chain, Ca: i.s.cfg.Authority.Root(), NotAfterUnix: cert.NotAfter.Unix()}, nil
}

// parseCSR uses nothing of a request but the key, whose possession it must
// prove.
func parseCSR(der []byte) (*ecdsa.PublicKey, error) {
	bad := func(err error) error {
		return fault.Wrap(fault.Invalid, err, "the certificate request must be PKCS#10 with an ECDSA P-256 key, signed by it")
	}
	if len(der) == 0 || len(der) > mostCSR {
		return nil, bad(errors.New("empty or too large"))
	}
	req, err := x509.ParseCertificateRequest(der)
	if err != nil {
		return nil, bad(err)
	}
	key, ok := req.PublicKey.(*ecdsa.PublicKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil, bad(errors.New("another kind of key"))
	}
	if err := req.CheckSignature(); err != nil {
		return nil, bad(err)
	}
	return key, nil
}

func keyHash(key *ecdsa.PublicKey) []byte {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil { // cannot fail for a key that parseCSR accepted; no key has this hash then
		return nil
	}
	sum := sha256.Sum256(der)
	return sum[:]
}

// checkNames bounds what an agent says of itself at enrolment.
func checkNames(fingerprint, version string) error {
	if fingerprint == "" {
		return fault.New(fault.Invalid, "the agent did not give the fingerprint of its cluster")
	}
	if !plain(fingerprint, mostText) || !plain(version, mostText) {
		return fault.New(fault.Invalid, "fingerprint or version is longer than %d characters or not plain text", mostText)
	}
	return nil
}

func errToken() error {
	return fault.With(fault.New(fault.Unknown, "the hub does not know it"), "join token", "create a new one")
}

func errUsed() error {
	return fault.With(fault.New(fault.Unknown, "it was used before, and works once"), "join token", "create a new one")
}

func errNoSession() error {
	return fault.New(fault.Unknown, "the call did not come over a link session")
}
