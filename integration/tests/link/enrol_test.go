package link_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/agent/link"
	"github.com/capstan-cd/capstan/hub"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/lifecycle/runtest"
	"github.com/capstan-cd/capstan/shared/tunnel"
)

func TestMain(m *testing.M) { runtest.Main(m) }

func TestEnrol(t *testing.T) {
	w := newWorld(t)
	r := w.start()
	org := tenant()
	token, prefix, cluster := w.token(r, r.addr, org)
	v, err := w.enrol(token)
	if err != nil {
		t.Fatalf("Enroll() = %v", err)
	}
	id, _ := v.Load(t.Context())
	cert, err := id.Certificate()
	if err != nil {
		t.Fatal(err)
	}
	peer, err := tunnel.ParsePeer(cert.Leaf)
	if err != nil || peer.Tenant != string(org) || peer.Cluster != string(cluster) || peer.AgentID != id.AgentID {
		t.Errorf("the certificate names %+v, %v", peer, err)
	}
	if life := cert.Leaf.NotAfter.Sub(cert.Leaf.NotBefore); life != 7*24*time.Hour+time.Hour {
		t.Errorf("the certificate lives %s, want 7 days and the backdated hour", life)
	}
	if age := time.Since(cert.Leaf.NotBefore); age < time.Hour || age > time.Hour+time.Minute {
		t.Errorf("the certificate is backdated %s, want an hour", age)
	}
	if slices.Contains(cert.Leaf.ExtKeyUsage, x509.ExtKeyUsageServerAuth) || cert.Leaf.IsCA {
		t.Error("SEC-K6 an agent could pose as a hub or an authority")
	}
	if id.ClusterName != "demo" {
		t.Errorf("cluster name %q", id.ClusterName)
	}
	if got := w.dir.stages(prefix); !slices.Equal(got, []string{"issued"}) {
		t.Errorf("attempts %q", got)
	}

	t.Run("a second start with the same token only loads the identity", func(t *testing.T) {
		again, err := link.Enroll(t.Context(), token, link.EnrolConfig{Vault: v, Cluster: someFacts(), Log: w.log.logger()})
		if err != nil || again.AgentID != id.AgentID {
			t.Errorf("Enroll() = %v", err)
		}
		if again, err = link.Enroll(t.Context(), "", link.EnrolConfig{Vault: v, Cluster: someFacts(), Log: w.log.logger()}); err != nil || again.AgentID != id.AgentID {
			t.Errorf("Enroll() without a token = %v", err)
		}
	})
	t.Run("SEC-K2 the token works once", func(t *testing.T) {
		_, err := w.enrol(token)
		if fault.KindOf(err) != fault.Unknown || !strings.Contains(fault.Sentence(err), "used before") {
			t.Errorf("Enroll() = %q", fault.Sentence(err))
		}
		if got := w.dir.stages(prefix); !slices.Equal(got, []string{"issued", "used"}) {
			t.Errorf("attempts %q", got)
		}
	})
	t.Run("a new token replaces the identity, a bad one does not", func(t *testing.T) {
		cfg := link.EnrolConfig{Vault: v, Cluster: someFacts(), Log: w.log.logger()}
		if same, err := link.Enroll(t.Context(), "capstan-join-v1.nonsense", cfg); err != nil || same.AgentID != id.AgentID {
			t.Errorf("Enroll() with nonsense = %v", err)
		}
		fresh, _ := w.dir.invite(t, r.inviter(t, r.addr), org, cluster, time.Now().Add(time.Hour))
		other, err := link.Enroll(t.Context(), fresh, cfg)
		if err != nil || other.AgentID == id.AgentID {
			t.Errorf("Enroll() = %v", err)
		}
		w.dir.await(func() bool { return slices.Contains(w.dir.revoked, hub.Revocation{AgentID: id.AgentID}) })
	})
	t.Run("SEC-C3 no log has a token, a secret or a key", func(t *testing.T) {
		parsed, err := tunnel.ParseJoinToken(token)
		if err != nil {
			t.Fatal(err)
		}
		text := w.log.String()
		for _, s := range []string{token, string(parsed.Secret), "PRIVATE KEY"} {
			if strings.Contains(text, s) {
				t.Errorf("the log contains %.12s…", s)
			}
		}
	})
}

func TestEnrolRefused(t *testing.T) {
	w := newWorld(t)
	r := w.start()
	other := newWorld(t)
	stranger := other.start()

	expired := func(t *testing.T) (string, string) {
		c := w.dir.cluster(t, "x")
		return w.dir.invite(t, r.inviter(t, r.addr), tenant(), c, time.Now().Add(-time.Second))
	}
	unknown := func(t *testing.T) (string, string) {
		token, prefix, _, err := r.inviter(t, r.addr).Invite()
		if err != nil {
			t.Fatal(err)
		}
		return token, prefix
	}
	elsewhere := func(t *testing.T) (string, string) { // leads to a hub that has another key
		token, prefix, _, err := r.inviter(t, stranger.addr).Invite()
		if err != nil {
			t.Fatal(err)
		}
		return token, prefix
	}
	cases := map[string]struct {
		token  func(*testing.T) (token, prefix string)
		says   string
		stages []string
	}{
		"SEC-K2 Expired":      {expired, "join token: it expired (create a new one)", []string{"expired"}},
		"SEC-K2 Unknown":      {unknown, "join token: the hub does not know it (create a new one)", []string{"token"}},
		"SEC-K4 AnotherHub":   {elsewhere, "not the hub's", nil},
		"SEC-K2 NotAToken":    {func(*testing.T) (string, string) { return "hello", "" }, "join token: ", nil},
		"SEC-K2 NoTokenAtAll": {func(*testing.T) (string, string) { return "", "" }, "not enrolled", nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			token, prefix := c.token(t)
			_, err := w.enrol(token)
			if err == nil || !strings.Contains(fault.Sentence(err), c.says) {
				t.Errorf("Enroll() = %q, want %q", fault.Sentence(err), c.says)
			}
			if got := w.dir.stages(prefix); !slices.Equal(got, c.stages) {
				t.Errorf("attempts %q, want %q", got, c.stages)
			}
			if got := other.dir.stages(prefix); len(got) > 0 {
				t.Errorf("the wrong hub heard of the token: %q", got)
			}
		})
	}
}

func TestEnrolRace(t *testing.T) {
	w := newWorld(t)
	r := w.start()
	token, prefix, _ := w.token(r, r.addr, tenant())
	var wait sync.WaitGroup
	results := make(chan error, 8)
	for range cap(results) {
		wait.Go(func() {
			_, err := w.enrol(token)
			results <- err
		})
	}
	wait.Wait()
	close(results)
	var won int
	for err := range results {
		if err == nil {
			won++
		} else if fault.KindOf(err) != fault.Unknown {
			t.Errorf("a loser hears %v", err)
		}
	}
	if won != 1 {
		t.Errorf("SEC-K2 the token worked %d times", won)
	}
	if got := w.dir.stages(prefix); len(got) != cap(results) {
		t.Errorf("%d of %d attempts were recorded", len(got), cap(results))
	}
}

func TestEnrolAnswerLost(t *testing.T) {
	w := newWorld(t)
	r := w.start()
	token, _, cluster := w.token(r, r.addr, tenant())
	full := errors.New("the disk is full")
	v := &vault{fail: func(save int) error {
		if save == 2 { // the key is saved, the certificate is not
			return full
		}
		return nil
	}}
	cfg := link.EnrolConfig{Vault: v, Cluster: someFacts(), Log: w.log.logger()}
	if _, err := link.Enroll(t.Context(), token, cfg); !errors.Is(err, full) {
		t.Fatalf("Enroll() = %v, want the vault's error", err)
	}
	id, err := link.Enroll(t.Context(), token, cfg)
	if err != nil {
		t.Fatalf("Enroll() once more = %v", err)
	}
	w.dir.await(func() bool { return w.dir.members[cluster].AgentID == id.AgentID })
}

func TestEnrolWhileHubIsUnreachable(t *testing.T) {
	w := newWorld(t)
	r := w.start()
	p := newProxy(t, r.addr, 0, 100, 1500, 2500) // the first connections are cut in the handshake and in the call
	token, _, _ := w.token(r, p.addr(), tenant())
	v := &vault{}
	clock := newSkipClock()
	if _, err := link.Enroll(t.Context(), token, link.EnrolConfig{Vault: v, Cluster: someFacts(), Log: w.log.logger(), Clock: clock}); err != nil {
		t.Fatalf("Enroll() = %v", err)
	}
	if n := p.dialled(); n != 5 {
		t.Errorf("%d connections were made, want 5", n)
	}
}

// skipClock is real time in which nobody waits.
type skipClock struct{ lifecycle.System }

func newSkipClock() lifecycle.Clock { return skipClock{} }

func (skipClock) After(time.Duration) (<-chan time.Time, func()) {
	ch := make(chan time.Time, 1)
	ch <- time.Now()
	return ch, func() {}
}

func TestEnrolBadRequests(t *testing.T) {
	w := newWorld(t)
	r := w.start()
	p256, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	p384, _ := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	rsaKey, _ := rsa.GenerateKey(rand.Reader, 2048)
	csr := func(key any) []byte {
		der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
		if err != nil {
			t.Fatal(err)
		}
		return der
	}
	forged := csr(p256)
	forged[len(forged)-1] ^= 1
	cases := map[string]*linkv1.EnrollRequest{
		"NoCSR":           {Fingerprint: "f"},
		"Garbage":         {Fingerprint: "f", Csr: []byte("hello")},
		"Huge":            {Fingerprint: "f", Csr: make([]byte, 100<<10)},
		"RSA":             {Fingerprint: "f", Csr: csr(rsaKey)},
		"P384":            {Fingerprint: "f", Csr: csr(p384)},
		"SEC-K7 Forged":   {Fingerprint: "f", Csr: forged},
		"NoFingerprint":   {Csr: csr(p256)},
		"LongFingerprint": {Fingerprint: strings.Repeat("f", 1000), Csr: csr(p256)},
		"SEC-L1 NewLine":  {Fingerprint: "f\nlevel=ERROR", Csr: csr(p256)},
	}
	for name, req := range cases {
		t.Run(name, func(t *testing.T) {
			token, prefix, _ := w.token(r, r.addr, tenant())
			parsed, _ := tunnel.ParseJoinToken(token)
			req.Token = string(parsed.Secret)
			c := dialPlain(t, r)
			_, err := linkv1.NewIdentityClient(c).Enroll(t.Context(), req)
			if fault.KindOf(err) != fault.Invalid {
				t.Errorf("Enroll() = %v, want invalid", err)
			}
			if got := w.dir.stages(prefix); !slices.Equal(got, []string{"csr"}) {
				t.Errorf("attempts %q", got)
			}
			if _, err := w.enrol(token); err != nil {
				t.Errorf("a bad request has spent the token: %v", err)
			}
		})
	}
}

func TestEnrolFlood(t *testing.T) {
	w := newWorld(t)
	r := w.start()
	c := linkv1.NewIdentityClient(dialPlain(t, r))
	var refused error
	for range 200 {
		if _, err := c.Enroll(t.Context(), &linkv1.EnrollRequest{Token: "guess"}); fault.KindOf(err) == fault.Exceeded {
			refused = err
			break
		}
	}
	if !strings.Contains(fault.Sentence(refused), "too many attempts") {
		t.Errorf("SEC-K2 guessing is not slowed down: %v", refused)
	}
	if !strings.Contains(w.log.String(), "security=3 cwe=287") {
		t.Error("OBS-08 a refused enrolment carries no severity and CWE")
	}
}

func TestEnrolOutage(t *testing.T) {
	w := newWorld(t)
	r := w.start()
	token, _, _ := w.token(r, r.addr, tenant())
	w.dir.fail(errors.New("postgres: password=hunter2 refused"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err := link.Enroll(ctx, token, link.EnrolConfig{Vault: &vault{}, Cluster: someFacts(), Log: w.log.logger()})
	if err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("SEC-C3 Enroll() during an outage = %v", err)
	}
	w.dir.fail(nil)
	if _, err := w.enrol(token); err != nil {
		t.Errorf("an outage has spent the token: %v", err)
	}
}

func TestReplayedToken(t *testing.T) {
	w := newWorld(t)
	r := w.start()
	org := tenant()
	token, _, cluster := w.token(r, r.addr, org)
	first, err := w.enrol(token)
	if err != nil {
		t.Fatal(err)
	}
	second, prefix := w.dir.invite(t, r.inviter(t, r.addr), org, cluster, w.hub.Now().Add(time.Hour))
	v, err := w.enrol(second)
	if err != nil {
		t.Fatal(err)
	}
	owner := w.run(v, nil)
	owner.sessions.awaitOpened(1)
	t.Run("SEC-K1 SEC-K2 an agent that was replaced gets nothing for its used token, and its successor stays", func(t *testing.T) {
		before := w.dir.version
		parsed, err := tunnel.ParseJoinToken(token)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			replay := &vault{id: &link.Identity{Addresses: parsed.Addresses, Pins: []string{parsed.Pin.String()}, Key: first.id.Key, Token: first.id.Token}}
			_, err := link.Enroll(t.Context(), token, link.EnrolConfig{Vault: replay, Cluster: someFacts(), Log: w.log.logger(), Version: "test"})
			if fault.KindOf(err) != fault.Unknown {
				t.Errorf("Enroll() = %v", err)
			}
		}
		w.dir.mu.Lock()
		defer w.dir.mu.Unlock()
		if w.dir.version != before || w.dir.members[cluster].AgentID != v.id.AgentID || len(owner.sessions.closed) > 0 {
			t.Errorf("the present agent is %q, sessions ended: %v", w.dir.members[cluster].AgentID, owner.sessions.closed)
		}
	})
	t.Run("SEC-K2 a lost reply is repeated to the enrolled agent", func(t *testing.T) {
		parsed, err := tunnel.ParseJoinToken(second)
		if err != nil {
			t.Fatal(err)
		}
		again := &vault{id: &link.Identity{Addresses: parsed.Addresses, Pins: []string{parsed.Pin.String()}, Key: v.id.Key, Token: v.id.Token}}
		id, err := link.Enroll(t.Context(), second, link.EnrolConfig{Vault: again, Cluster: someFacts(), Log: w.log.logger(), Version: "test"})
		if err != nil || id.AgentID != v.id.AgentID {
			t.Errorf("Enroll() = %q, %v", id.AgentID, err)
		}
		if got := w.dir.stages(prefix); !slices.Equal(got, []string{"issued", "issued"}) {
			t.Errorf("attempts %q", got)
		}
	})
}
