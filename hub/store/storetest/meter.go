package storetest

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// A Meter counts what clients send to a database. It reads what they send and
// changes nothing.
type Meter struct {
	target string
	live   sync.WaitGroup

	mu    sync.Mutex
	open  []net.Conn
	done  bool
	texts []string
	trips int
}

// A Cost is what clients sent to the database.
type Cost struct {
	Statements []string // in the order in which they were sent
	Trips      int      // how often a client waited for an answer
}

// Metered puts a meter in front of a database, which ends with the test.
func Metered(t testing.TB, u URLs) (URLs, *Meter) {
	t.Helper()
	app, err := url.Parse(u.App)
	if err != nil {
		t.Fatal(err)
	}
	const name = ".s.PGSQL.5432"
	dir := t.TempDir()
	m := &Meter{target: filepath.Join(app.Query().Get("host"), name)}
	ln, err := net.Listen("unix", filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	m.live.Go(func() { m.accept(ln) })
	t.Cleanup(func() {
		_ = ln.Close()
		m.close()
		m.live.Wait()
	})
	for _, s := range []*string{&u.App, &u.System} {
		*s = strings.Replace(*s, url.QueryEscape(filepath.Dir(m.target)), url.QueryEscape(dir), 1)
	}
	return u, m
}

// Take returns what was sent since the last call.
func (m *Meter) Take() Cost {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := Cost{m.texts, m.trips}
	m.texts, m.trips = nil, 0
	return c
}

func (m *Meter) accept(ln net.Listener) {
	for {
		client, err := ln.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("unix", m.target)
		if err != nil || !m.keep(client, server) {
			_ = client.Close()
			continue
		}
		m.live.Go(func() { m.up(client, server) })
		m.live.Go(func() {
			_, _ = io.Copy(client, server)
			_ = client.Close()
			_ = server.Close()
		})
	}
}

func (m *Meter) keep(conns ...net.Conn) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open = append(m.open, conns...)
	return !m.done
}

func (m *Meter) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.done = true
	for _, c := range m.open {
		_ = c.Close()
	}
}

// up forwards what a client sends.
func (m *Meter) up(client, server net.Conn) {
	defer client.Close()
	defer server.Close()
	prepared, portals := map[string]string{}, map[string]string{}
	head := make([]byte, 5)
	first := head[1:] // the first message has no kind
	for kind := byte(0); ; {
		if _, err := io.ReadFull(client, first); err != nil {
			return
		}
		if len(first) == len(head) {
			kind = head[0]
		}
		size := binary.BigEndian.Uint32(head[1:])
		if size < 4 || size > 1<<28 {
			return
		}
		message := append(slices.Clone(first), make([]byte, size-4)...)
		body := message[len(first):]
		if _, err := io.ReadFull(client, body); err != nil {
			return
		}
		m.count(kind, body, prepared, portals)
		if _, err := server.Write(message); err != nil {
			return
		}
		first = head
	}
}

func (m *Meter) count(kind byte, body []byte, prepared, portals map[string]string) {
	name, rest, _ := bytes.Cut(body, []byte{0})
	second, _, _ := bytes.Cut(rest, []byte{0})
	m.mu.Lock()
	defer m.mu.Unlock()
	switch kind {
	case 'P': // Parse: statement, text
		prepared[string(name)] = string(second)
	case 'B': // Bind: portal, statement
		portals[string(name)] = prepared[string(second)]
	case 'E': // Execute: portal
		m.texts = append(m.texts, portals[string(name)])
	case 'Q': // text
		if string(name) == "-- ping" {
			return // the pool checks a connection that was idle for a second
		}
		m.texts = append(m.texts, string(name))
		m.trips++
	case 'S':
		m.trips++
	}
}
