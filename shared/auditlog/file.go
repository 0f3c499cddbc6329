package auditlog

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/capstan-cd/capstan/shared/fault"
)

// A Writer writes a file. It is for one goroutine.
type Writer struct {
	w    *bufio.Writer
	last Mark
	n    int64
}

// NewWriter writes the header; its kind and version are filled in.
func NewWriter(w io.Writer, h Header) (*Writer, error) {
	h.Kind, h.Version = kindHeader, version
	out := &Writer{w: bufio.NewWriter(w), last: h.Anchor}
	return out, out.line(h)
}

// Write adds a record.
func (w *Writer) Write(r Record) error {
	b, err := r.line()
	if err != nil {
		return fmt.Errorf("write audit record %d: %w", r.Seq, err)
	}
	w.last, w.n = Mark{r.Seq, r.Hash}, w.n+1
	if _, err := w.w.Write(b); err != nil {
		return fmt.Errorf("write audit record %d: %w", r.Seq, err)
	}
	return nil
}

// End writes the last line.
func (w *Writer) End() error {
	if err := w.line(end{kindEnd, w.n, w.last}); err != nil {
		return err
	}
	if err := w.w.Flush(); err != nil {
		return fmt.Errorf("write the end of an audit file: %w", err)
	}
	return nil
}

func (w *Writer) line(v any) error {
	b, err := json.Marshal(v)
	if err == nil {
		_, err = w.w.Write(append(b, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write an audit file: %w", err)
	}
	return nil
}

// detailed are the two forms of a detail: as JSON, or as text if it contains
// line breaks, which would end the line.
type detailed struct {
	Detail     json.RawMessage `json:"detail"`
	DetailText *string         `json:"detailText"`
}

// line is the record with its detail exactly as it is: an encoder of JSON would
// write it anew, and the hash is over its bytes.
func (r Record) line() ([]byte, error) {
	b, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	b = b[:len(b)-1]
	switch {
	case len(r.Detail) == 0:
	case bytes.ContainsAny(r.Detail, "\n\r"):
		text, err := json.Marshal(string(r.Detail))
		if err != nil {
			return nil, err
		}
		b = append(append(b, `,"detailText":`...), text...)
	default:
		b = append(append(b, `,"detail":`...), r.Detail...)
	}
	return append(b, "}\n"...), nil
}

// UnmarshalJSON reads a line of a file, with the bytes of the detail as they
// are.
func (r *Record) UnmarshalJSON(b []byte) error {
	type plain Record
	var d detailed
	if err := errors.Join(json.Unmarshal(b, (*plain)(r)), json.Unmarshal(b, &d)); err != nil {
		return err
	}
	r.Detail = d.Detail
	if d.DetailText != nil {
		r.Detail = json.RawMessage(*d.DetailText)
	}
	return nil
}

// A Report is what a check has found.
type Report struct {
	Header  Header
	Records int64
	Head    Mark // the last record
}

// maxLine bounds one line of a file, in bytes.
const maxLine = 1 << 20

// Verify reads a file and checks every record against its number, the hash of
// the one before it and its own hash, and the end line against what was read.
// see is called with each good record; it may be nil. The error names the first
// wrong line and is fault.Invalid.
func Verify(r io.Reader, see func(Record)) (Report, error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 64<<10), maxLine)
	var out Report
	n := 0
	bad := func(cause string) error {
		return &fault.Error{Kind: fault.Invalid, Object: "audit file", Cause: cause, Fix: "export the log again; if the hub's copy is the same, somebody has changed it", Line: n}
	}
	for lines.Scan() {
		n++
		b := lines.Bytes()
		var kind struct{ Kind string }
		if err := json.Unmarshal(b, &kind); err != nil {
			return out, bad(fmt.Sprintf("line %d is no JSON", n))
		}
		switch {
		case n == 1:
			if json.Unmarshal(b, &out.Header) != nil || kind.Kind != kindHeader || out.Header.Version != version {
				return out, bad("it does not begin like an audit file of this version")
			}
			out.Head = out.Header.Anchor
		case kind.Kind == kindEnd:
			return out, checkEnd(lines, b, out, bad)
		default:
			var rec Record
			if err := json.Unmarshal(b, &rec); err != nil {
				return out, bad(fmt.Sprintf("line %d is no record", n))
			}
			if !rec.follows(out.Head) {
				return out, bad(fmt.Sprintf("record %d in line %d was changed, or one before it was removed or added", rec.Seq, n))
			}
			out.Head, out.Records = Mark{rec.Seq, rec.Hash}, out.Records+1
			if see != nil {
				see(rec)
			}
		}
	}
	if err := lines.Err(); err != nil {
		return out, bad(fmt.Sprintf("line %d cannot be read: %v", n+1, err))
	}
	return out, bad("its end is missing: it was cut off")
}

// checkEnd checks the end line, behind which nothing may stand.
func checkEnd(lines *bufio.Scanner, b []byte, so Report, bad func(string) error) error {
	var e end
	if json.Unmarshal(b, &e) != nil || e.Records != so.Records || e.Head.Seq != so.Head.Seq || !bytes.Equal(e.Head.Hash, so.Head.Hash) {
		return bad("the end line does not fit the records before it")
	}
	if lines.Scan() {
		return bad("there is text behind the end line")
	}
	return nil
}
