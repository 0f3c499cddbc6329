package git_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/source/git"
	"github.com/capstan-cd/capstan/integration/rigs/gittest"
	"github.com/capstan-cd/capstan/shared/fault"
)

// A rogue is an SSH server that lets everybody in and then does what it wants.
type rogue struct {
	address string
	line    string // of known_hosts
}

func newRogue(t *testing.T, serve func(ssh.Channel)) rogue {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		t.Fatal(err)
	}
	cfg := &ssh.ServerConfig{NoClientAuth: true}
	cfg.AddHostKey(signer)
	l := listener(t, func(conn net.Conn) {
		_, chans, reqs, err := ssh.NewServerConn(conn, cfg)
		if err != nil {
			return
		}
		go ssh.DiscardRequests(reqs)
		for c := range chans {
			channel, requests, err := c.Accept()
			if err != nil {
				return
			}
			asked := make(chan struct{}, 1)
			go func() {
				for r := range requests {
					_ = r.Reply(true, nil)
					select {
					case asked <- struct{}{}:
					default:
					}
				}
				close(asked)
			}()
			<-asked
			serve(channel)
		}
	})
	_, port, _ := net.SplitHostPort(l)
	return rogue{l, "[127.0.0.1]:" + port + " " + string(ssh.MarshalAuthorizedKey(signer.PublicKey()))}
}

// listener serves connections until the test ends.
func listener(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wait sync.WaitGroup
	var mu sync.Mutex
	open := map[net.Conn]bool{}
	wait.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open[conn] = true
			mu.Unlock()
			wait.Go(func() {
				defer conn.Close()
				serve(conn)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		for c := range open {
			c.Close()
		}
		mu.Unlock()
		wait.Wait()
	})
	return l.Addr().String()
}

func TestSSHServersThatMisbehave(t *testing.T) {
	t.Parallel()
	pkt := func(text string) string { return fmt.Sprintf("%04x%s", len(text)+4, text) }
	advert := pkt(strings.Repeat("a", 40)+" refs/heads/main\x00ofs-delta\n") + "0000"
	endless := func(head string, chunk string) func(ssh.Channel) {
		return func(c ssh.Channel) {
			_, err := io.WriteString(c, head)
			for err == nil {
				_, err = io.WriteString(c, chunk)
			}
		}
	}
	hang := func(head string) func(ssh.Channel) {
		return func(c ssh.Channel) {
			_, _ = io.WriteString(c, head)
			_, _ = io.Copy(io.Discard, c) // and the channel stays open
		}
	}
	cut := func(head string) func(ssh.Channel) {
		return func(c ssh.Channel) {
			_, _ = io.WriteString(c, head)
			_ = c.Close()
		}
	}
	cases := map[string]struct {
		serve func(ssh.Channel)
		raw   func(net.Conn)
		kind  fault.Kind
		want  string
	}{
		"FT-G2 it hangs before its greeting": {raw: func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }, kind: fault.Offline, want: "did not answer within"},
		"FT-G2 it hangs in the handshake": {raw: func(c net.Conn) {
			_, _ = io.WriteString(c, "SSH-2.0-Rogue\r\n")
			_, _ = io.Copy(io.Discard, c)
		}, kind: fault.Offline, want: "did not answer within"},
		"FT-G2 it greets for ever": {raw: func(c net.Conn) {
			for {
				if _, err := io.WriteString(c, strings.Repeat("x", 100)); err != nil {
					return
				}
			}
		}, kind: fault.Invalid, want: "does not speak SSH"},
		"FT-G2 it hangs before its listing":   {serve: hang(""), kind: fault.Offline, want: "did not answer within"},
		"FT-G2 it hangs in its listing":       {serve: hang(advert[:30]), kind: fault.Offline, want: "did not answer within"},
		"FT-G2 it hangs in place of the pack": {serve: hang(advert), kind: fault.Offline, want: "did not answer within"},
		"SEC-A its listing never ends": {
			serve: endless(advert[:len(advert)-4], pkt(strings.Repeat("b", 40)+" refs/heads/twice\n")), kind: fault.Exceeded, want: "too many bytes",
		},
		"SEC-A its pack never ends":       {serve: endless(advert+"0008NAK\n", strings.Repeat("x", 4096)), kind: fault.Exceeded, want: "too many bytes"},
		"FT-G2 it cuts the listing":       {serve: cut(advert[:30]), kind: fault.Offline, want: ""},
		"FT-G2 it sends no pack":          {serve: cut(advert + "0008NAK\n"), kind: fault.Offline, want: ""},
		"FT-G2 it says something else":    {serve: cut("Welcome! Only SFTP is served here.\n"), kind: fault.Offline, want: "cannot be understood"},
		"FT-G2 it says nothing":           {serve: cut(""), kind: fault.Invalid, want: "does not serve Git"},
		"an error in the protocol's form": {serve: cut(pkt("ERR Repository not found.")), kind: fault.Missing, want: "knows no such repository"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			creds := &sshCredentials{}
			var r rogue
			if c.raw != nil {
				r.address = listener(t, c.raw)
			} else {
				r = newRogue(t, c.serve)
				creds.trust(t, r.line)
			}
			cfg := git.Config{MaxListBytes: 64 << 10, MaxBytes: 256 << 10}
			if strings.Contains(name, "it hangs") {
				cfg.ListTimeout, cfg.FetchTimeout = 2*time.Second, 2*time.Second
			}
			m := sshMirrors(t, cfg, creds, slog.New(slog.DiscardHandler))
			_, err := m.Fetch(gittest.Context(t), tenant, sshRepository(t, "ssh://"+r.address+"/repo"), hub.Credential{})
			if fault.KindOf(err) != c.kind || !strings.Contains(fault.Sentence(err), c.want) {
				t.Errorf("Fetch() = kind %q, %v; want kind %q and %q", fault.KindOf(err), err, c.kind, c.want)
			}
		})
	}
}
