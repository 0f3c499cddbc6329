package tunnel

import (
	"context"
	"fmt"
	"github.com/capstan-cd/capstan/shared/logkey"
	"log/slog"
	"net"

	"github.com/hashicorp/yamux"
)

// A Mux runs many streams over one connection. Both sides use yamux: the side
// that dialled with the library, the other side, which has many sessions, with
// serverMux.
type Mux interface {
	Open() (net.Conn, error)
	// Accept waits for a stream that the other side opened.
	Accept() (net.Conn, error)
	// Close ends all streams and the connection. It may be called twice.
	Close() error
	// Done is closed when the connection has ended, for any reason.
	Done() <-chan struct{}
	// Streams is how many are open.
	Streams() int
}

// yamuxMux is yamux with our settings.
type yamuxMux struct{ *yamux.Session }

// newYamux starts the library on a connection that this side opened.
func newYamux(conn net.Conn, lane Lane, log *slog.Logger) (Mux, error) {
	cfg := &yamux.Config{
		AcceptBacklog: backlog,
		// Our own heartbeats contain more, and never end a busy connection.
		EnableKeepAlive:        false,
		KeepAliveInterval:      lane.Stall, // not used, but must not be zero
		ConnectionWriteTimeout: lane.Stall,
		MaxStreamWindowSize:    max(lane.Window, minWindow),
		StreamOpenTimeout:      lane.Stall,
		StreamCloseTimeout:     streamLinger,
		Logger:                 yamuxLog{log},
	}
	s, err := yamux.Client(&gate{Conn: conn}, cfg)
	if err != nil {
		return nil, fmt.Errorf("start the multiplexer: %w", err)
	}
	return yamuxMux{s}, nil
}

func (m yamuxMux) Done() <-chan struct{} { return m.CloseChan() }
func (m yamuxMux) Streams() int          { return m.NumStreams() }

// yamuxLog logs the messages of yamux at Debug: the session has the relevant
// reason.
type yamuxLog struct{ log *slog.Logger }

func (l yamuxLog) Print(v ...any)            { l.write(fmt.Sprint(v...)) }
func (l yamuxLog) Printf(f string, v ...any) { l.write(fmt.Sprintf(f, v...)) }
func (l yamuxLog) Println(v ...any)          { l.write(fmt.Sprintln(v...)) }

func (l yamuxLog) write(text string) {
	l.log.DebugContext(context.Background(), "multiplexer", logkey.Text, text)
}
