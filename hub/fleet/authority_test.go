package fleet

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle/runtest"
	"github.com/capstan-cd/capstan/shared/tunnel"
)

// memoryVault keeps one authority; before is called before each put.
type memoryVault struct {
	mu     sync.Mutex
	secret []byte
	before func()
	fail   error
}

func (v *memoryVault) Authority(context.Context) ([]byte, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.fail != nil {
		return nil, v.fail
	}
	if v.secret == nil {
		return nil, fault.New(fault.Missing, "none")
	}
	return v.secret, nil
}

func (v *memoryVault) PutAuthority(_ context.Context, secret []byte) error {
	if v.before != nil {
		v.before()
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.secret != nil {
		return fault.New(fault.Conflict, "there is one")
	}
	v.secret = secret
	return nil
}

func open(t *testing.T, v Vault, clock *runtest.Clock) *Authority {
	t.Helper()
	a, err := OpenAuthority(t.Context(), v, clock, []string{"hub.example.org", "127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func pin(t *testing.T, a *Authority) tunnel.Pin {
	t.Helper()
	p, err := a.Pin()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestAuthority(t *testing.T) {
	t.Parallel()
	clock := runtest.NewClock(time.Now())
	v := &memoryVault{}
	first := open(t, v, clock)
	again := open(t, v, clock)
	if pin(t, first) != pin(t, again) || !bytes.Equal(first.Root(), again.Root()) {
		t.Error("a restart changes the key or the authority")
	}
	t.Run("the hub's certificate is renewed at half its lifetime, for the same key", func(t *testing.T) {
		old, err := first.Certificate()
		if err != nil {
			t.Fatal(err)
		}
		same, _ := first.Certificate()
		if same != old {
			t.Error("it is made anew at each use")
		}
		clock.Advance(hubLife/2 + time.Hour)
		fresh, err := first.Certificate()
		if err != nil {
			t.Fatal(err)
		}
		if fresh.Leaf.SerialNumber.Cmp(old.Leaf.SerialNumber) == 0 || tunnel.PinOf(fresh.Leaf) != tunnel.PinOf(old.Leaf) {
			t.Error("the certificate is the old one, or the key a new one")
		}
		if err := fresh.Leaf.VerifyHostname("hub.example.org"); err != nil {
			t.Error(err)
		}
		if err := fresh.Leaf.VerifyHostname("127.0.0.1"); err != nil {
			t.Error(err)
		}
	})
	t.Run("two replicas that start together agree", func(t *testing.T) {
		shared := &memoryVault{}
		var meet sync.WaitGroup
		meet.Add(2)
		shared.before = func() { meet.Done(); meet.Wait() } // both found none
		var wait sync.WaitGroup
		pins := make([]tunnel.Pin, 2)
		for i := range pins {
			wait.Go(func() {
				a, err := OpenAuthority(context.Background(), shared, clock, nil)
				if err != nil {
					t.Error(err)
					return
				}
				pins[i], _ = a.Pin()
			})
		}
		wait.Wait()
		if pins[0] != pins[1] {
			t.Error("they have different keys")
		}
	})
}

func TestAuthorityDamaged(t *testing.T) {
	t.Parallel()
	clock := runtest.NewClock(time.Now())
	good := &memoryVault{}
	open(t, good, clock)
	other := &memoryVault{}
	open(t, other, clock)
	cut := strings.Index(string(other.secret), "-----BEGIN PRIVATE KEY")
	mixed := append([]byte(nil), good.secret[:strings.Index(string(good.secret), "-----BEGIN PRIVATE KEY")]...)
	mixed = append(mixed, other.secret[cut:]...)
	cases := map[string][]byte{
		"Empty": {}, "Text": []byte("hello"), "Half": good.secret[:len(good.secret)/2], "ForeignKey": mixed,
		"NotCertificate": bytes.Replace(good.secret, []byte("MII"), []byte("AAA"), 1),
	}
	for name, secret := range cases {
		_, err := OpenAuthority(t.Context(), &memoryVault{secret: secret}, clock, nil)
		if !errors.Is(err, errDamaged) {
			t.Errorf("%s: %v, want that it is damaged", name, err)
		}
	}
	away := errors.New("the database is away")
	if _, err := OpenAuthority(t.Context(), &memoryVault{fail: away}, clock, nil); !errors.Is(err, away) {
		t.Errorf("an outage: %v; a second authority must never be made of it", err)
	}
}

func agentPeer() tunnel.Peer {
	return tunnel.Peer{
		Tenant: string(hub.NewID[hub.TenantID]()), Cluster: string(hub.NewID[hub.ClusterID]()), AgentID: string(hub.NewID[hub.TokenID]()),
	}
}

func TestIdentify(t *testing.T) {
	t.Parallel()
	clock := runtest.NewClock(time.Now())
	a := open(t, &memoryVault{}, clock)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	issue := func(p tunnel.Peer) []*x509.Certificate {
		chain, record, err := a.issue(p, &key.PublicKey)
		if err != nil {
			t.Fatal(err)
		}
		leaf, err := x509.ParseCertificate(chain[0])
		if err != nil {
			t.Fatal(err)
		}
		if record.Serial != tunnel.Serial(leaf) || !record.NotAfter.Truncate(time.Second).Equal(leaf.NotAfter) {
			t.Errorf("what is recorded, %+v, is not what was issued", record)
		}
		return []*x509.Certificate{leaf}
	}
	want := agentPeer()
	certs := issue(want)
	got, until, err := a.identify(certs)
	want.Serial = got.Serial
	if err != nil || got != want || !until.Equal(certs[0].NotAfter) {
		t.Errorf("identify() = %+v, %s, %v", got, until, err)
	}
	bad := map[string]struct {
		certs []*x509.Certificate
		move  time.Duration
	}{
		"None":               {certs: nil},
		"SEC-K7 NoUUID":      {certs: issue(tunnel.Peer{Tenant: "../../etc", Cluster: "c", AgentID: "a"})},
		"SEC-J1 Expired":     {certs: certs, move: agentLife + time.Second},
		"SEC-K7 NotYetValid": {certs: certs, move: -backdate - 2*time.Second},
	}
	for name, c := range bad {
		clock.Advance(c.move)
		if _, _, err := a.identify(c.certs); fault.KindOf(err) != fault.Unknown {
			t.Errorf("%s: identify() = %v, want unknown", name, err)
		}
		clock.Advance(-c.move)
	}
}

func TestInvite(t *testing.T) {
	t.Parallel()
	a := open(t, &memoryVault{}, runtest.NewClock(time.Now()))
	i := Inviter{Addresses: []string{"hub.example.org:443"}, Pin: pin(t, a)}
	token, prefix, hash, err := i.Invite()
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := tunnel.ParseJoinToken(token)
	if err != nil {
		t.Fatal(err)
	}
	if hashSecret(string(parsed.Secret)) != hash || !strings.HasPrefix(string(parsed.Secret), prefix) || len(prefix) != 8 || parsed.Pin != i.Pin {
		t.Error("hash, prefix or pin do not belong to the token")
	}
	other, _, _, _ := i.Invite()
	if other == token {
		t.Error("two tokens are the same")
	}
	if _, _, _, err := (Inviter{}).Invite(); err == nil {
		t.Error("a token without an address was made")
	}
}
