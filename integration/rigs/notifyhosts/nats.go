package notifyhosts

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
)

// A NATS is a server of NATS that accepts messages of the user bot.
type NATS struct {
	URL string

	mu  sync.Mutex
	all []Received
}

// NewNATS starts a server until the test ends.
func NewNATS(t testing.TB) *NATS {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &NATS{URL: "nats://" + listener.Addr().String()}
	var connections sync.WaitGroup
	connections.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			connections.Go(func() { s.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		connections.Wait()
	})
	return s
}

// All is what was published.
func (s *NATS) All() []Received {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Received(nil), s.all...)
}

func (s *NATS) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	say := func(line string) { _, _ = fmt.Fprintf(conn, "%s\r\n", line) } // the client may be gone
	say(`INFO {"server_id":"x","version":"2.10.0","headers":true,"max_payload":1048576,"auth_required":true,"nonce":"n0nce"}`)
	r, signedIn := bufio.NewReader(conn), false
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		verb, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch verb {
		case "CONNECT":
			var hello struct{ User, Pass, NKey, Sig string }
			_ = json.Unmarshal([]byte(rest), &hello) // what cannot be read signs nobody in
			if signedIn = hello.User == "bot" && hello.Pass == Token || hello.NKey != "" && hello.Sig != ""; !signedIn {
				say("-ERR 'Authorization Violation'")
				return
			}
		case "HPUB":
			var subject string
			var head, all int
			if _, err := fmt.Sscanf(rest, "%s %d %d", &subject, &head, &all); err != nil || head > all || all > 1<<20 {
				say("-ERR 'Parser Error'")
				return
			}
			body := make([]byte, all+2)
			if _, err := io.ReadFull(r, body); err != nil || !signedIn {
				return
			}
			s.mu.Lock()
			s.all = append(s.all, Received{Service: "nats", Recipient: subject, Text: string(body[head:all]), Body: body[:head]})
			s.mu.Unlock()
		case "PING":
			say("PONG")
		default:
			say("-ERR 'Unknown Protocol Operation'")
			return
		}
	}
}
