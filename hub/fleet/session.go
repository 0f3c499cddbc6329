package fleet

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"slices"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"google.golang.org/grpc"

	"github.com/capstan-cd/capstan/hub"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/logkey"
	"github.com/capstan-cd/capstan/shared/tunnel"
	"github.com/capstan-cd/capstan/shared/version"
)

const (
	greetings       = 32 // Hellos that may ask the database at once
	greeting        = 10 * time.Second
	mostAPIVersions = 30000 // lines of a cluster's API list: 5,000 custom kinds in two versions are 11,000
	mostReadyz      = 1024
	mostFeatures    = 256
)

// session serves link.v1.Session.
type session struct {
	linkv1.UnimplementedSessionServer
	s     *Server
	slots chan struct{} // one for each Hello under way
	seed  maphash.Seed
	locks [64]sync.Mutex // by cluster: attachments are reported in order
}

func newSession(s *Server) *session {
	return &session{s: s, slots: make(chan struct{}, greetings), seed: maphash.MakeSeed()}
}

// lock orders the reports of two connections of one cluster about their
// attachments.
func (v *session) lock(cluster hub.ClusterID) func() {
	l := &v.locks[maphash.String(v.seed, string(cluster))%uint64(len(v.locks))]
	l.Lock()
	return l.Unlock
}

// Hello lets an agent in, or says why not. The newest connection of an agent
// wins once it has come this far.
func (v *session) Hello(ctx context.Context, req *linkv1.HelloRequest) (*linkv1.HelloResponse, error) {
	c, err := v.s.connFrom(ctx)
	if err != nil {
		return nil, err
	}
	if v.s.draining.Load() {
		return nil, errDraining()
	}
	res, err := v.hello(ctx, c, req)
	if err != nil && c.hello.refused.Add(1) >= mostRefused {
		c.part(errTooManyHellos())
	}
	return res, err
}

// hello serves one Hello of a session at a time. What the session itself shows
// to be wrong is refused before any limit shared by agents is used.
func (v *session) hello(ctx context.Context, c *conn, req *linkv1.HelloRequest) (*linkv1.HelloResponse, error) {
	if c.attached.Load() || !c.hello.running.CompareAndSwap(false, true) {
		return nil, errHelloTwice()
	}
	defer c.hello.running.Store(false)
	if err := checkHello(req, c.peer); err != nil {
		return nil, err
	}
	if err := v.s.admission.take(c.tenant(), c.cluster(), v.s.cfg.Clock.Now()); err != nil {
		return nil, err
	}
	select {
	case v.slots <- struct{}{}:
		defer func() { <-v.slots }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, greeting)
	defer cancel()
	defer v.lock(c.cluster())()
	return v.greet(ctx, c, req)
}

func (v *session) greet(ctx context.Context, c *conn, req *linkv1.HelloRequest) (*linkv1.HelloResponse, error) {
	if c.attached.Load() {
		return nil, errHelloTwice()
	}
	if err := v.s.restoreRevocations(ctx, c.tenant(), req.GetRevoked()); err != nil {
		return nil, err
	}
	if err := v.s.revoked.check(c.peer); err != nil {
		return nil, err // it brought the news of its own revocation
	}
	member, err := v.admit(ctx, c, req)
	if err != nil {
		if r := (refused{}); errors.As(err, &r) {
			v.s.refuse(ctx, c.peer, c.session.Address(), req.GetAgentVersion(), r.stage, err)
		}
		return nil, err
	}
	if req.GetProbe() {
		return &linkv1.HelloResponse{
			HubVersion: version.String(), ReplicaId: v.s.cfg.Replica, Features: v.s.cfg.Features,
			NowUnixNano: v.s.cfg.Clock.Now().UnixNano(), ClusterName: member.ClusterName,
		}, nil
	}
	object, mask, err := v.s.cfg.Keys.LinkKeys(ctx, c.tenant(), c.cluster())
	if err != nil {
		return nil, fmt.Errorf("keys of cluster %q: %w", c.cluster(), err)
	}
	c.id, c.epoch, c.features = string(hub.NewID[hub.TokenID]()), req.GetEpoch(), req.GetFeatures()
	now := v.s.cfg.Clock.Now()
	err = v.s.cfg.Presence.Connected(ctx, hub.Attachment{
		Tenant: c.tenant(), Cluster: c.cluster(), AgentID: c.peer.AgentID, Session: c.id, Replica: v.s.cfg.Replica,
		Epoch: c.epoch, Instance: req.GetInstance(), Leader: req.GetLeader(), AgentVersion: req.GetAgentVersion(), Features: req.GetFeatures(), Upgradable: req.GetUpgrades(), Fingerprint: req.GetFingerprint(), KubeVersion: req.GetKubeVersion(),
		APIVersions: req.GetApiVersions(), Readyz: req.GetReadyz(), Address: c.session.Address(), At: now,
	})
	if err != nil {
		return nil, fmt.Errorf("record the connection of cluster %q: %w", c.cluster(), err)
	}
	c.reported.begin(req.GetLeader())
	if err := v.replace(ctx, c); err != nil {
		return nil, err
	}
	revoked, sent := v.s.pendingRevocations(c.tenant())
	c.revocationsSent.Store(sent)
	v.s.cfg.Log.InfoContext(ctx, "agent connected", logkey.Tenant, c.tenant(), logkey.Cluster, c.cluster(), logkey.Agent, c.peer.AgentID,
		logkey.Session, c.id, logkey.Address, c.session.Address(), logkey.Version, req.GetAgentVersion())
	return &linkv1.HelloResponse{
		HubVersion: version.String(), ReplicaId: v.s.cfg.Replica, SessionId: c.id, Features: v.s.cfg.Features,
		HeartbeatSeconds: uint32(max(1, v.s.cfg.Heartbeat.Seconds())), NowUnixNano: now.UnixNano(),
		ObjectKey: object[:], MaskKey: mask[:], ClusterName: member.ClusterName, Revoked: revoked,
	}, nil
}

// replace makes c the agent's attachment and ends the one before it.
func (v *session) replace(ctx context.Context, c *conn) error {
	old, ok := v.s.agents.attach(c)
	if !ok { // it was disconnected during Hello, and nothing else removes its row
		own, cancel := context.WithTimeout(context.WithoutCancel(ctx), bookkeeping)
		defer cancel()
		v.s.forget(own, c)
		return fault.New(fault.Offline, "the session has ended")
	}
	if old == nil {
		return nil
	}
	if old.epoch == c.epoch {
		old.yield(errSecondConnection())
		return nil
	}
	reason := errReplaced()
	v.s.cfg.Log.WarnContext(ctx, "two processes use one agent identity, the newer one stays", logkey.Tenant, c.tenant(),
		logkey.Cluster, c.cluster(), logkey.Agent, c.peer.AgentID, logkey.Older, old.session.Address(), logkey.Newer, c.session.Address())
	old.part(reason)
	return nil
}

// admit decides whether the agent that the certificate names may attach.
func (v *session) admit(ctx context.Context, c *conn, req *linkv1.HelloRequest) (hub.Member, error) {
	if err := checkVersion(v.s.cfg.MinVersion, req.GetAgentVersion()); err != nil {
		return hub.Member{}, refused{err, stageVersion}
	}
	m, err := v.s.cfg.Presence.Member(ctx, c.tenant(), c.cluster())
	switch {
	case fault.KindOf(err) == fault.Missing:
		return m, fault.New(fault.Denied, "this cluster was removed from the hub")
	case err != nil:
		return m, fmt.Errorf("look up cluster %q: %w", c.cluster(), err)
	case m.Suspended:
		return m, refused{fault.With(fault.New(fault.Denied, "this cluster may not connect for now"), "", "ask an administrator of the hub"), stageSuspended}
	case m.AgentID != "" && m.AgentID != c.peer.AgentID:
		return m, refused{fault.With(fault.New(fault.Denied, "another agent has enrolled for this cluster since"), "", "enrol again with a new join token"), stageReplaced}
	case m.Quarantined:
		return m, refused{errQuarantined(), stageFingerprint}
	case slices.Contains(m.Rejected, req.GetFingerprint()), m.Fingerprint != "" && m.Fingerprint != req.GetFingerprint() && req.GetProbe():
		return m, refused{fault.With(fault.New(fault.Denied, "this identity belongs to another Kubernetes cluster; was it cloned or restored from a backup?"),
			"", "enrol this cluster with a join token of its own"), stageFingerprint}
	case m.Fingerprint != "" && m.Fingerprint != req.GetFingerprint():
		return m, refused{v.quarantine(ctx, c, m.Fingerprint, req.GetFingerprint()), stageFingerprint}
	}
	if err := v.s.agents.mayAttach(c.cluster(), req.GetEpoch()); err != nil {
		return m, refused{err, stageReplaced}
	}
	return m, nil
}

// quarantine blocks both clusters of one identity: only a person can know the
// real one.
func (v *session) quarantine(ctx context.Context, c *conn, known, other string) error {
	q := hub.Quarantine{Since: v.s.cfg.Clock.Now(), Known: known, Other: other, Address: c.session.Address()}
	fresh, err := v.s.cfg.Refusals.Quarantine(ctx, c.tenant(), c.cluster(), q)
	if err != nil {
		return fmt.Errorf("put cluster %q into quarantine: %w", c.cluster(), err)
	}
	if fresh {
		v.s.cfg.Log.WarnContext(ctx, "an agent identity is used from another cluster; both are refused", logkey.Tenant, c.tenant(),
			logkey.Cluster, c.cluster(), logkey.Agent, c.peer.AgentID, logkey.Address, c.session.Address(), logkey.Known, known, logkey.Other, other)
	}
	if held := v.s.agents.current(c.cluster()); held != nil {
		held.part(errQuarantined()) // the other replicas follow within a poll
	}
	return errQuarantined()
}

// checkHello bounds what an agent says, and refuses an identity that is not
// the certificate's.
func checkHello(req *linkv1.HelloRequest, p tunnel.Peer) error {
	if req.GetAgentId() != "" && req.GetAgentId() != p.AgentID {
		return fault.New(fault.Denied, "Hello names another agent than the client certificate")
	}
	if req.GetEpoch() == "" {
		return fault.New(fault.Invalid, "Hello has no epoch")
	}
	if req.GetFingerprint() == "" {
		return fault.New(fault.Invalid, "Hello has no fingerprint of the cluster")
	}
	names := []string{req.GetEpoch(), req.GetInstance(), req.GetFingerprint(), req.GetAgentVersion(), req.GetKubeVersion()}
	if err := checkTexts("a text in", mostText, names...); err != nil {
		return err
	}
	if err := checkTexts("readyz in", mostReadyz, req.GetReadyz()); err != nil {
		return err
	}
	if len(req.GetApiVersions()) > mostAPIVersions {
		return fault.New(fault.Exceeded, "Hello names %d API versions; %d are allowed", len(req.GetApiVersions()), mostAPIVersions)
	}
	if len(req.GetFeatures()) > mostFeatures {
		return fault.New(fault.Exceeded, "Hello names %d features; %d are allowed", len(req.GetFeatures()), mostFeatures)
	}
	if err := checkTexts("a feature in", mostText, req.GetFeatures()...); err != nil {
		return err
	}
	return checkTexts("an API version in", 2*mostText, req.GetApiVersions()...)
}

// checkTexts bounds the texts of one kind.
func checkTexts(what string, most int, texts ...string) error {
	for _, s := range texts {
		if !plain(s, most) {
			return fault.New(fault.Invalid, "%s Hello is longer than %d characters or not plain text", what, most)
		}
	}
	return nil
}

// plain reports whether a text from outside may go into logs and rows.
func plain(s string, most int) bool {
	if len(s) > most || !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return true
}

// Heartbeat replies to each heartbeat. Any byte keeps a session alive, so a
// heartbeat that waits behind a report does no harm.
func (v *session) Heartbeat(stream grpc.BidiStreamingServer[linkv1.Beat, linkv1.BeatReply]) error {
	c, err := v.s.connFrom(stream.Context())
	if err != nil {
		return err
	}
	if !c.beats.open.CompareAndSwap(false, true) {
		return fault.New(fault.Conflict, "a heartbeat already runs on this session")
	}
	defer c.beats.open.Store(false)
	c.beats.set(stream) // for the drain notice
	defer c.beats.set(nil)
	for {
		beat, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		c.reported.store(beat)
		reply := &linkv1.BeatReply{Number: beat.GetNumber(), NowUnixNano: v.s.cfg.Clock.Now().UnixNano()}
		if revoked, version := v.s.pendingRevocations(c.tenant()); c.revocationsSent.Swap(version) != version {
			reply.Revoked = revoked
		}
		err = c.send(reply)
		if err != nil {
			return err
		}
	}
}

func errHelloTwice() error {
	return fault.New(fault.Conflict, "Hello was said before on this session")
}

func errTooManyHellos() error {
	return &fault.Error{
		Kind: fault.Exceeded, Cause: fmt.Sprintf("%d Hellos of this session were refused", mostRefused), Fix: "connect again, at the time that the hub said",
		RetryAfter: refusedPause,
	}
}
