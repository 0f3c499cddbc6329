// Package eventpack compresses event streams. Each event can be read as soon as
// it is written, and refers to those before it: one that resembles them takes
// some hundred bytes. A stream keeps its last 8 KiB and nothing else, so that
// thousands of them may be open. The API calls it.
package eventpack

import (
	"encoding/binary"
	"hash/crc32"
	"io"
	"strconv"
	"strings"

	"github.com/klauspost/compress/flate"
)

// window is how much of the stream an event may refer to, in bytes: what
// [flate.StatelessDeflate] takes.
const window = 8 << 10

// A Writer compresses what is written to it as one gzip member (RFC 1952). It
// is for one goroutine.
type Writer struct {
	w     io.Writer
	begun bool
	last  []byte // the end of what was written
	size  uint32
	sum   uint32
}

// NewWriter returns a writer that writes to w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// header is that of a member without name and time, compressed for speed, by an
// unknown system.
var header = []byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 4, 255}

// Write writes p so that all of it can be read at the other end.
func (w *Writer) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if err := w.begin(); err != nil {
		return 0, err
	}
	if err := flate.StatelessDeflate(w.w, p, false, w.last); err != nil {
		return 0, err
	}
	w.size += uint32(len(p)) // the format has it modulo 2^32
	w.sum = crc32.Update(w.sum, crc32.IEEETable, p)
	w.keep(p)
	return len(p), nil
}

func (w *Writer) begin() error {
	if w.begun {
		return nil
	}
	w.begun = true
	_, err := w.w.Write(header)
	return err
}

// keep notes the end of what was written.
func (w *Writer) keep(p []byte) {
	if over := len(w.last) + len(p) - window; over > 0 {
		w.last = w.last[:copy(w.last, w.last[min(over, len(w.last)):])]
	}
	w.last = append(w.last, p[max(0, len(p)-window):]...)
}

// Close ends the member. It does not close the writer below.
func (w *Writer) Close() error {
	if err := w.begin(); err != nil {
		return err
	}
	if err := flate.StatelessDeflate(w.w, nil, true, nil); err != nil {
		return err
	}
	_, err := w.w.Write(binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, w.sum), w.size))
	return err
}

// Accepted reports whether a client that sends these values of Accept-Encoding
// can read a compressed stream.
func Accepted(values []string) bool {
	for _, part := range strings.Split(strings.Join(values, ","), ",") {
		name, parameters, _ := strings.Cut(part, ";")
		if !strings.EqualFold(strings.TrimSpace(name), "gzip") {
			continue
		}
		weight, has := strings.CutPrefix(strings.ToLower(strings.TrimSpace(parameters)), "q=")
		if !has {
			return true
		}
		q, err := strconv.ParseFloat(strings.TrimSpace(weight), 64)
		return err == nil && q > 0
	}
	return false
}
