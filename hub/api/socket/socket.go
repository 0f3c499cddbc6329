// Package socket speaks the WebSockets of terminals and forwarded ports: with
// clients of Capstan in binary messages, and with those of Argo CD in JSON. It
// knows no rights; package api checks them before and while a socket is open.
package socket

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/coder/websocket"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/relay"
	"github.com/capstan-cd/capstan/shared/apimodel"
	"github.com/capstan-cd/capstan/shared/fault"
)

// Subprotocols of our clients. A token can stand beside them.
const (
	Terminal    = "capstan.terminal.v1"
	PortForward = "capstan.port-forward.v1"
	bearer      = "bearer."
)

// Channels are the first byte of a message of a terminal.
const (
	ChannelStdin   = 0
	ChannelStdout  = 1
	ChannelStderr  = 2
	ChannelEnd     = 3
	ChannelResize  = 4
	ChannelStarted = 5
	ChannelEOF     = 255
)

const (
	maxInput  = 64 << 10         // bytes of one message of a client
	pingEvery = 5 * time.Second  // so that proxies keep the connection (TERM-04)
	pingWait  = 20 * time.Second // for its answer
	writeWait = 30 * time.Second // for a client that does not read
)

// Asked reports whether a request asks for a WebSocket.
func Asked(r *http.Request) bool {
	return strings.EqualFold(r.Header.Get("Upgrade"), "websocket")
}

// Token is the one that stands among the subprotocols; empty: none does.
func Token(r *http.Request) string {
	if !Asked(r) {
		return ""
	}
	for _, line := range r.Header.Values("Sec-WebSocket-Protocol") {
		for _, name := range strings.Split(line, ",") {
			text, is := strings.CutPrefix(strings.TrimSpace(name), bearer)
			if !is {
				continue
			}
			if token, err := base64.RawURLEncoding.DecodeString(text); err == nil {
				return string(token)
			}
		}
	}
	return ""
}

// ErrNoSocket is the error of a request that asks for no WebSocket.
func ErrNoSocket() error {
	return fault.With(fault.New(fault.Invalid, "this address is a WebSocket"), "", "connect with a WebSocket client, such as the console or `capstan app exec`")
}

// A Socket is an open WebSocket. One goroutine may read, and one may write.
type Socket struct {
	ws      *websocket.Conn
	argo    bool
	pending []byte // the beginning of a character, for clients that read text
	in      chan []byte
	gone    chan struct{} // closed when the client has gone

	// Received and Sent are bytes of what was typed and written.
	Received, Sent int64
}

// Accept opens the WebSocket of a request. The caller has checked its origin. A
// client without a subprotocol speaks Argo CD's messages, if that is possible.
func Accept(w http.ResponseWriter, r *http.Request, protocol string) (*Socket, error) {
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{
		Subprotocols: []string{protocol}, InsecureSkipVerify: true, CompressionMode: websocket.CompressionDisabled,
	})
	if err != nil {
		return nil, err
	}
	ws.SetReadLimit(maxInput)
	return &Socket{ws: ws, argo: ws.Subprotocol() == "" && protocol == Terminal, in: make(chan []byte), gone: make(chan struct{})}, nil
}

// Run receives messages and keeps the connection alive, until ctx ends or the
// client goes. It closes the connection.
func (s *Socket) Run(ctx context.Context) {
	defer func() { _ = s.ws.CloseNow() }()
	done := make(chan struct{})
	go func() { // ends with the connection, which is closed above
		defer close(done)
		defer close(s.gone)
		for {
			_, data, err := s.ws.Read(context.WithoutCancel(ctx))
			if err != nil {
				return
			}
			select {
			case s.in <- data:
			case <-ctx.Done():
				return
			}
		}
	}()
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-done:
			return
		case <-tick.C:
		}
		alive, cancel := context.WithTimeout(ctx, pingWait)
		err := s.ws.Ping(alive)
		cancel()
		if err != nil {
			return
		}
	}
}

// next waits for a message.
func (s *Socket) next(ctx context.Context) ([]byte, error) {
	select {
	case data := <-s.in:
		return data, nil
	case <-s.gone:
		return nil, relay.ErrGone
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Bytes returns the next bytes of a connection; none are its end.
func (s *Socket) Bytes(ctx context.Context) ([]byte, error) {
	data, err := s.next(ctx)
	s.Received += int64(len(data))
	return data, err
}

// Input returns the next message of a terminal.
func (s *Socket) Input(ctx context.Context) (hub.TerminalInput, error) {
	for {
		data, err := s.next(ctx)
		if err != nil {
			return hub.TerminalInput{}, err
		}
		m, ok := s.read(data)
		if ok {
			s.Received += int64(len(m.Data))
			return m, nil
		}
	}
}

// read decodes a message; false: it says nothing.
func (s *Socket) read(data []byte) (hub.TerminalInput, bool) {
	if s.argo {
		var m struct {
			Operation, Data string
			Rows, Cols      uint32
		}
		if json.Unmarshal(data, &m) != nil {
			return hub.TerminalInput{}, false
		}
		switch m.Operation {
		case "stdin":
			return hub.TerminalInput{Data: []byte(m.Data)}, m.Data != ""
		case "resize":
			return hub.TerminalInput{Size: &hub.TerminalSize{Columns: m.Cols, Rows: m.Rows}}, m.Rows > 0 && m.Cols > 0
		}
		return hub.TerminalInput{}, false
	}
	if len(data) == 0 {
		return hub.TerminalInput{}, false
	}
	switch data[0] {
	case ChannelStdin:
		return hub.TerminalInput{Data: data[1:]}, len(data) > 1
	case ChannelResize:
		var size hub.TerminalSize
		err := json.Unmarshal(data[1:], &size)
		return hub.TerminalInput{Size: &size}, err == nil && size.Rows > 0 && size.Columns > 0
	case ChannelEOF:
		return hub.TerminalInput{End: true}, true
	}
	return hub.TerminalInput{}, false
}

// Write sends bytes of a connection; none are its end.
func (s *Socket) Write(data []byte) error {
	s.Sent += int64(len(data))
	return s.send(websocket.MessageBinary, data)
}

func (s *Socket) send(kind websocket.MessageType, data []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), writeWait)
	defer cancel()
	return s.ws.Write(ctx, kind, data)
}

// Output sends what a command writes.
func (s *Socket) Output(m hub.TerminalOutput) error {
	s.Sent += int64(len(m.Stdout) + len(m.Stderr))
	if s.argo {
		return s.text(append(m.Stdout, m.Stderr...))
	}
	if len(m.Stderr) > 0 {
		return s.channel(ChannelStderr, m.Stderr)
	}
	if len(m.Stdout) > 0 {
		return s.channel(ChannelStdout, m.Stdout)
	}
	return nil
}

func (s *Socket) channel(channel byte, data []byte) error {
	return s.send(websocket.MessageBinary, append([]byte{channel}, data...))
}

// text sends output to a client of Argo CD. A character that is not complete
// waits for the rest of it.
func (s *Socket) text(data []byte) error {
	data = append(s.pending, data...)
	end := len(data)
	for i := 1; i < utf8.UTFMax && i <= len(data); i++ {
		if at := len(data) - i; utf8.RuneStart(data[at]) {
			if !utf8.FullRune(data[at:]) {
				end = at
			}
			break
		}
	}
	s.pending = append([]byte(nil), data[end:]...)
	if end == 0 {
		return nil
	}
	return s.argoMessage(strings.ToValidUTF8(string(data[:end]), "\ufffd"))
}

func (s *Socket) argoMessage(text string) error {
	m, err := json.Marshal(struct {
		Operation string `json:"operation"`
		Data      string `json:"data"`
		Rows      int    `json:"rows"`
		Cols      int    `json:"cols"`
	}{"stdout", text, 0, 0})
	if err != nil {
		return err
	}
	return s.send(websocket.MessageText, m)
}

// Started says what was started.
func (s *Socket) Started(m apimodel.TerminalStarted) error {
	if s.argo {
		return nil
	}
	return s.json(ChannelStarted, m)
}

func (s *Socket) json(channel byte, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return s.channel(channel, text)
}

// End says why a session ends, and ends the connection in order.
func (s *Socket) End(m apimodel.TerminalEnd) {
	switch {
	case !s.argo:
		_ = s.json(ChannelEnd, m) // the client has gone otherwise
	case m.Message != "":
		_ = s.argoMessage("\r\n" + m.Message + "\r\n")
	}
	s.Close(m.Message)
}

// Close ends the connection; a reason says that it was not in order.
func (s *Socket) Close(reason string) {
	code := websocket.StatusNormalClosure
	if reason != "" {
		code = websocket.StatusPolicyViolation
	}
	_ = s.ws.Close(code, strings.ToValidUTF8(reason[:min(len(reason), maxReason)], ""))
}

// maxReason is what the protocol has room for, in bytes.
const maxReason = 120
