package replicas_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/replicas"
	"github.com/capstan-cd/capstan/shared/tunnel"
)

func TestStrangers(t *testing.T) {
	w := newWorld(t)
	_, _ = w.start("a")
	var addr hub.Replica
	eventually(t, func() bool {
		w.store.mu.Lock()
		defer w.store.mu.Unlock()
		addr = w.store.alive["a"]
		return addr.Address != ""
	})
	other := newWorld(t)
	hubCert, err := w.auth.Certificate()
	if err != nil {
		t.Fatal(err)
	}
	mine, err := w.auth.Replica(replicas.URI("x"))
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := other.auth.Replica(replicas.URI("a"))
	if err != nil {
		t.Fatal(err)
	}
	// What an agent has: a certificate of the same authority with its name.
	agent, err := w.auth.Replica((tunnel.Peer{Tenant: string(tenant), Cluster: string(cluster), AgentID: "a"}).URI())
	if err != nil {
		t.Fatal(err)
	}
	dial := func(certificate func() (*tls.Certificate, error)) error {
		cfg := &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true, NextProtos: []string{"h2"}}
		if certificate != nil {
			c, err := certificate()
			if err != nil {
				t.Fatal(err)
			}
			cfg.Certificates = []tls.Certificate{*c}
		}
		conn, err := tls.Dial("tcp", addr.Address, cfg)
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = conn.Read(make([]byte, 1)) // the verdict comes after the handshake
		return err
	}
	for name, certificate := range map[string]func() (*tls.Certificate, error){
		"SEC-K1 nobody":                   nil,
		"SEC-K1 an agent":                 agent,
		"SEC-K1 the hub's public face":    func() (*tls.Certificate, error) { return hubCert, nil },
		"SEC-K1 a replica of another hub": theirs,
	} {
		t.Run(name+" may not come in at the internal port", func(t *testing.T) {
			if err := dial(certificate); err == nil || errors.Is(err, io.EOF) {
				t.Errorf("%v, want a refusal of TLS", err)
			}
		})
	}
	t.Run("a replica may", func(t *testing.T) {
		if err := dial(mine); err != nil {
			t.Errorf("%v", err)
		}
	})
	t.Run("SEC-K1 a replica cannot pass as another one", func(t *testing.T) {
		b, _ := w.start("b")
		w.store.mu.Lock()
		w.store.alive["ghost"] = hub.Replica{ID: "ghost", Address: addr.Address} // a answers there
		w.store.mu.Unlock()
		w.store.put(cluster, "ghost", "s1")
		know(t, b, b, b)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if got, err := get(ctx, b, recent(), "x"); err == nil {
			t.Errorf("answer %q", got)
		}
	})
}
