package faultproxy

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// A Statement is one that a client has sent to Postgres through an SQLWire.
type Statement struct {
	Conn int    // connection, counted from 1
	N    int    // of this connection, counted from 1
	All  int    // of all connections, counted from 1
	Role string // who runs it
	Tx   bool   // a transaction that may write is open, or is begun by it
	SQL  string
}

// An SQLAct is what happens to a statement.
type SQLAct struct {
	// CutBefore resets the connection before the server has the statement.
	CutBefore bool
	// Lose lets the server answer, and resets the connection before the
	// client sees it: a COMMIT has then happened.
	Lose bool
	// Error is answered instead of asking the server: an SQLSTATE such as
	// 40001. The open transaction has failed for the client.
	Error string
	Delay time.Duration
}

// An SQLWire is a proxy between a client and a Postgres server without TLS. It
// parses statements and injects faults into selected ones, whatever method of
// the store sent them.
type SQLWire struct {
	ln   net.Listener
	live sync.WaitGroup

	mu     sync.Mutex
	target string
	decide func(Statement) SQLAct
	open   map[*sqlConn]bool
	conns  int
	all    int
	done   bool
}

// NewSQLWire starts a wire to a server's TCP address. The caller must Stop it.
func NewSQLWire(target string) (*SQLWire, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start a wire to Postgres: %w", err)
	}
	w := &SQLWire{ln: ln, target: target, open: map[*sqlConn]bool{}}
	w.live.Go(w.accept)
	return w, nil
}

// Addr is where to dial.
func (w *SQLWire) Addr() string { return w.ln.Addr().String() }

// Point leads to another server from now on, as the address of a database
// does after a failover. What is connected stays where it is.
func (w *SQLWire) Point(target string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.target = target
}

// Decide is asked about every statement from now on; nil lets all pass. It
// must not block.
func (w *SQLWire) Decide(f func(Statement) SQLAct) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.decide = f
}

// Cut resets all connections.
func (w *SQLWire) Cut() {
	w.mu.Lock()
	var all []*sqlConn
	for c := range w.open {
		all = append(all, c)
	}
	w.mu.Unlock()
	for _, c := range all {
		c.reset()
	}
}

// Stop ends everything.
func (w *SQLWire) Stop() error {
	w.mu.Lock()
	w.done = true
	w.mu.Unlock()
	err := w.ln.Close()
	w.Cut()
	w.live.Wait()
	return err
}

func (w *SQLWire) accept() {
	for {
		conn, err := w.ln.Accept()
		if err != nil {
			return
		}
		w.live.Go(func() { w.serve(conn.(*net.TCPConn)) })
	}
}

func (w *SQLWire) serve(client *net.TCPConn) {
	w.mu.Lock()
	target := w.target
	w.mu.Unlock()
	conn, err := net.DialTimeout("tcp", target, 5*time.Second)
	if err != nil {
		drop(client)
		return
	}
	c := &sqlConn{w: w, client: client, server: conn.(*net.TCPConn), prepared: map[string]string{}, portals: map[string]string{}}
	w.mu.Lock()
	w.conns++
	c.id = w.conns
	w.open[c] = true
	done := w.done
	w.mu.Unlock()
	if done {
		c.reset()
	}
	var both sync.WaitGroup
	both.Go(c.up)
	both.Go(c.down)
	both.Wait()
	c.reset()
	w.mu.Lock()
	delete(w.open, c)
	w.mu.Unlock()
}

// An sqlConn is one connection. up alone touches what is not guarded.
type sqlConn struct {
	w              *SQLWire
	id, n          int
	role           string
	client, server *net.TCPConn
	once           sync.Once
	prepared       map[string]string // statement name → SQL
	portals        map[string]string // portal → SQL
	tx             bool
	skip           bool // until the next Sync: the statement was answered with an error

	mu    sync.Mutex
	fails []string // one for each answer that is to come: "", an SQLSTATE or lose
}

const lose = "lose"

func (c *sqlConn) reset() {
	c.once.Do(func() {
		drop(c.client)
		drop(c.server)
	})
}

// up reads what the client says.
func (c *sqlConn) up() {
	defer c.reset()
	if err := c.startup(); err != nil {
		return
	}
	for {
		kind, body, err := readMessage(c.client)
		if err != nil {
			return
		}
		if !c.request(kind, body) {
			return
		}
	}
}

// startup passes the first message on, which has no kind.
func (c *sqlConn) startup() error {
	head := make([]byte, 4)
	if _, err := io.ReadFull(c.client, head); err != nil {
		return err
	}
	size := int(binary.BigEndian.Uint32(head))
	if size < 8 || size > 10_000 {
		return errors.New("not a Postgres client")
	}
	rest := make([]byte, size-4)
	if _, err := io.ReadFull(c.client, rest); err != nil {
		return err
	}
	fields := bytes.Split(rest[4:], []byte{0})
	for i := 0; i+1 < len(fields); i += 2 {
		if string(fields[i]) == "user" {
			c.role = string(fields[i+1])
		}
	}
	_, err := c.server.Write(append(head, rest...))
	return err
}

// request passes one message on, or does what is to be done instead.
func (c *sqlConn) request(kind byte, body []byte) bool {
	var act SQLAct
	switch kind {
	case 'P': // Parse: name, SQL
		name, rest := text(body)
		c.prepared[name], _ = text(rest)
	case 'B': // Bind: portal, name
		portal, rest := text(body)
		name, _ := text(rest)
		c.portals[portal] = c.prepared[name]
	case 'E': // Execute: portal
		portal, _ := text(body)
		if !c.skip {
			act = c.decide(c.portals[portal])
		}
	case 'Q':
		sql, _ := text(body)
		act = c.decide(sql)
	}
	if act.Delay > 0 {
		time.Sleep(act.Delay)
	}
	if act.CutBefore {
		return false
	}
	switch {
	case act.Error != "" && kind == 'Q':
		// An empty query stands for it, and its answer becomes the error.
		c.expect(act.Error)
		return writeMessage(c.server, 'Q', []byte{0}) == nil
	case act.Error != "":
		c.skip = true
		c.expectNow(act.Error)
		return true
	case act.Lose && kind == 'Q':
		c.expect(lose)
		return writeMessage(c.server, kind, body) == nil
	case act.Lose:
		c.expectNow(lose)
	}
	if kind == 'S' {
		c.skip = false
		c.settle()
	} else if kind == 'Q' {
		c.expect("")
	}
	if c.skip {
		return true
	}
	return writeMessage(c.server, kind, body) == nil
}

// decide follows transactions and has the statement judged.
func (c *sqlConn) decide(sql string) SQLAct {
	c.n++
	word := bytes.ToLower([]byte(sql))
	if bytes.HasPrefix(word, []byte("begin")) {
		c.tx = !bytes.Contains(word, []byte("read only"))
	}
	c.w.mu.Lock()
	c.w.all++
	s := Statement{Conn: c.id, N: c.n, All: c.w.all, Role: c.role, Tx: c.tx, SQL: sql}
	decide := c.w.decide
	c.w.mu.Unlock()
	if bytes.HasPrefix(word, []byte("commit")) || bytes.HasPrefix(word, []byte("rollback")) {
		c.tx = false
	}
	if decide == nil {
		return SQLAct{}
	}
	return decide(s)
}

// pendingMark stands for the answer of a pipeline whose Sync has not come.
const pendingMark = "pending:"

// expect notes what becomes of the answer that ends with the next
// ReadyForQuery not spoken for.
func (c *sqlConn) expect(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fails = append(c.fails, what)
}

func (c *sqlConn) expectNow(what string) { c.expect(pendingMark + what) }

// settle is the Sync of a pipeline.
func (c *sqlConn) settle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.fails); n > 0 && bytes.HasPrefix([]byte(c.fails[n-1]), []byte(pendingMark)) {
		c.fails[n-1] = c.fails[n-1][len(pendingMark):]
		return
	}
	c.fails = append(c.fails, "")
}

// losing reports whether the answer that comes now is not to be seen.
func (c *sqlConn) losing() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.fails) > 0 && (c.fails[0] == lose || c.fails[0] == pendingMark+lose)
}

// down passes on what the server says.
func (c *sqlConn) down() {
	defer c.reset()
	begun := false // the first ReadyForQuery ends the start
	for {
		kind, body, err := readMessage(c.server)
		if err != nil {
			return
		}
		switch {
		case begun && kind == 'Z':
			if !c.finish(body) {
				return
			}
			continue
		case kind == 'Z':
			begun = true
		case begun && c.losing():
			continue
		}
		if writeMessage(c.client, kind, body) != nil {
			return
		}
	}
}

// finish passes on the ReadyForQuery that ends an answer, with the error that
// the client is to see, if any. It reports whether the connection goes on.
func (c *sqlConn) finish(body []byte) bool {
	fail := c.outcome()
	if fail == lose {
		return false
	}
	if fail != "" {
		if writeMessage(c.client, 'E', failure(fail)) != nil {
			return false
		}
		if body[0] == 'T' {
			body[0] = 'E'
		}
	}
	return writeMessage(c.client, 'Z', body) == nil
}

// outcome takes what becomes of the answer that ends now.
func (c *sqlConn) outcome() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.fails) == 0 {
		return ""
	}
	fail := c.fails[0]
	c.fails = c.fails[1:]
	return fail
}

// failure is the body of an ErrorResponse.
func failure(code string) []byte {
	var b bytes.Buffer
	for _, f := range []string{"SERROR", "VERROR", "C" + code, "Minjected"} {
		b.WriteString(f)
		b.WriteByte(0)
	}
	b.WriteByte(0)
	return b.Bytes()
}

// text reads a string that ends with a zero byte.
func text(b []byte) (string, []byte) {
	head, rest, _ := bytes.Cut(b, []byte{0})
	return string(head), rest
}

func readMessage(r io.Reader) (kind byte, body []byte, err error) {
	head := make([]byte, 5)
	if _, err := io.ReadFull(r, head); err != nil {
		return 0, nil, err
	}
	size := int(binary.BigEndian.Uint32(head[1:]))
	if size < 4 || size > 1<<30 {
		return 0, nil, fmt.Errorf("a message of %d bytes", size)
	}
	body = make([]byte, size-4)
	_, err = io.ReadFull(r, body)
	return head[0], body, err
}

func writeMessage(w io.Writer, kind byte, body []byte) error {
	b := make([]byte, 5, 5+len(body))
	b[0] = kind
	binary.BigEndian.PutUint32(b[1:], uint32(len(body)+4))
	_, err := w.Write(append(b, body...))
	return err
}
