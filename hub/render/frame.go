package render

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

// A FrameKind is the content of a frame between hub and worker.
type FrameKind byte

// The frames. One render is Ask, then any number of Query and Reply, then any
// number of Made, then Finished or Failed.
const (
	FrameHello    FrameKind = 'H' // worker: Hello, once
	FrameAsk      FrameKind = 'R' // hub: Ask
	FrameQuery    FrameKind = 'Q' // worker: Question
	FrameReply    FrameKind = 'A' // hub: Reply; the body is the contents of all files
	FrameMade     FrameKind = 'O' // worker: hub.ObjectRef; the body is its canonical JSON
	FrameFinished FrameKind = 'D' // worker: Finished
	FrameFailed   FrameKind = 'E' // worker: Failure
)

// Hello is a worker's first message.
type Hello struct {
	Version string `json:"version"`
	Sandbox string `json:"sandbox"` // what holds it, for the hub's status
}

// Ask is a request without its trees.
type Ask struct {
	Application string       `json:"application"`
	Namespace   string       `json:"namespace,omitempty"`
	Sources     []hub.Source `json:"sources"`
	Limits      Limits       `json:"limits"`
	Describe    bool         `json:"describe,omitempty"`
}

// Finished ends a render that succeeded.
type Finished struct {
	Objects    int      `json:"objects"`
	SourceType string   `json:"sourceType"`
	Impure     bool     `json:"impure,omitempty"`
	Warnings   []string `json:"warnings,omitempty"`

	Details *hub.SourceDetails `json:"details,omitempty"`
}

// A Reply is an answer, or why there is none.
type Reply struct {
	Answer
	Failure *Failure `json:"failure,omitempty"`
}

// A Failure is a classified error on its way.
type Failure struct {
	Kind   fault.Kind `json:"kind"`
	Object string     `json:"object,omitempty"`
	Cause  string     `json:"cause"`
	Fix    string     `json:"fix,omitempty"`
}

// Fail makes the failure of an error. What has no class of its own is our
// defect, and its text stays on this side.
func Fail(err error) *Failure {
	e, ok := fault.As(err)
	if !ok {
		return &Failure{Kind: fault.Internal, Cause: err.Error()}
	}
	return &Failure{Kind: e.Kind, Object: e.Object, Cause: e.Cause, Fix: e.Fix}
}

// Err undoes Fail.
func (f *Failure) Err() error {
	return &fault.Error{Kind: f.Kind, Object: f.Object, Cause: f.Cause, Fix: f.Fix}
}

// A Frame is one message: a JSON head and, for some kinds, a body of bytes.
type Frame struct {
	Kind FrameKind
	Head json.RawMessage
	Body []byte
}

// frameHeader is kind, length of the head, length of the body.
const frameHeader = 1 + 4 + 4

// A Wire carries frames over one end of a socket pair. It is used by one
// reader and one writer at a time.
type Wire struct {
	file *os.File
	in   *bufio.Reader
	out  []byte
	// tick is called between reads while nothing arrives, and before a read
	// that is later than the next tick. An error ends the read.
	tick func() error
}

// NewWire makes a wire of one end of a socket pair in non-blocking mode.
func NewWire(file *os.File) *Wire {
	w := &Wire{file: file}
	w.in = bufio.NewReaderSize(wireReader{w}, 64<<10)
	return w
}

// OnWait sets what is called between reads while nothing arrives; an error ends
// the read.
func (w *Wire) OnWait(tick func() error) { w.tick = tick }

// WriteUntil lets writes fail that are not done by then.
func (w *Wire) WriteUntil(deadline time.Time) error {
	if err := w.file.SetWriteDeadline(deadline); err != nil {
		return fmt.Errorf("set deadline: %w", err)
	}
	return nil
}

// Close ends the connection.
func (w *Wire) Close() error {
	if err := w.file.Close(); err != nil {
		return fmt.Errorf("close wire: %w", err)
	}
	return nil
}

type wireReader struct{ w *Wire }

// Read reads what is there; it calls tick to find out whether to wait longer.
func (r wireReader) Read(p []byte) (int, error) {
	for {
		if r.w.tick != nil {
			if err := r.w.tick(); err != nil {
				return 0, err
			}
		}
		n, err := r.w.file.Read(p)
		if n == 0 && errors.Is(err, os.ErrDeadlineExceeded) {
			continue
		}
		return n, err
	}
}

// Receive reads one frame. A frame that is larger than limit is an error of
// kind Exceeded and leaves the wire unusable.
func (w *Wire) Receive(limit int64) (Frame, error) {
	var h [frameHeader]byte
	if _, err := io.ReadFull(w.in, h[:]); err != nil {
		return Frame{}, fmt.Errorf("read frame: %w", err)
	}
	head, body := binary.BigEndian.Uint32(h[1:]), binary.BigEndian.Uint32(h[5:])
	if int64(head)+int64(body) > limit {
		return Frame{}, fault.New(fault.Exceeded, "a message of %d bytes is over the limit of %d", int64(head)+int64(body), limit)
	}
	buf := make([]byte, int(head)+int(body))
	if _, err := io.ReadFull(w.in, buf); err != nil {
		return Frame{}, fmt.Errorf("read frame: %w", err)
	}
	return Frame{Kind: FrameKind(h[0]), Head: buf[:head:head], Body: buf[head:]}, nil
}

// Send writes one frame. The bodies are written one after the other.
func (w *Wire) Send(kind FrameKind, head any, bodies ...[]byte) error {
	text, err := json.Marshal(head)
	if err != nil {
		return fmt.Errorf("write frame %c: %w", kind, err)
	}
	size := 0
	for _, b := range bodies {
		size += len(b)
	}
	w.out = append(w.out[:0], byte(kind))
	w.out = binary.BigEndian.AppendUint32(w.out, uint32(len(text)))
	w.out = binary.BigEndian.AppendUint32(w.out, uint32(size))
	w.out = append(w.out, text...)
	for _, b := range bodies {
		if len(w.out)+len(b) > 256<<10 {
			if err := w.flush(); err != nil {
				return err
			}
			if len(b) > 64<<10 {
				if _, err := w.file.Write(b); err != nil {
					return fmt.Errorf("write frame: %w", err)
				}
				continue
			}
		}
		w.out = append(w.out, b...)
	}
	return w.flush()
}

func (w *Wire) flush() error {
	if len(w.out) == 0 {
		return nil
	}
	_, err := w.file.Write(w.out)
	w.out = w.out[:0]
	if err != nil {
		return fmt.Errorf("write frame: %w", err)
	}
	return nil
}

// ReadWithin makes reads return every step, so that tick is called.
func (w *Wire) ReadWithin(step time.Duration) error {
	if err := w.file.SetReadDeadline(time.Now().Add(step)); err != nil {
		return fmt.Errorf("set deadline: %w", err)
	}
	return nil
}

// decode reads the head of a frame.
func (f Frame) decode(into any) error {
	if err := json.Unmarshal(f.Head, into); err != nil {
		return fmt.Errorf("read frame %c: %w", f.Kind, err)
	}
	return nil
}

// Decode reads the head of a frame that must be of one kind.
func Decode[T any](f Frame, kind FrameKind) (T, error) {
	var v T
	if f.Kind != kind {
		return v, fmt.Errorf("frame %q instead of %q", f.Kind, kind)
	}
	return v, f.decode(&v)
}
