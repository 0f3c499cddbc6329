package charts

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
	"sigs.k8s.io/yaml"

	"github.com/capstan-cd/capstan/shared/fault"
)

// An Index is an index.yaml as it was read, compressed: large ones have tens of
// megabytes, most of which are never used.
type Index struct {
	Packed         []byte
	ETag, Modified string // the validators that the server sent
	checked        time.Time
}

// A Published chart is one version of an index.
type Published struct {
	Version string   `json:"version"`
	URLs    []string `json:"urls"`
	Digest  string   `json:"digest"`
}

// maxEntry is how large the part of an index about one chart may be, in bytes.
const maxEntry = 16 << 20

var errNoEntry = errors.New("the index does not name the chart")

// packIndex compresses an index.
func packIndex(text []byte) ([]byte, error) {
	w, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		return nil, fmt.Errorf("compress an index: %w", err)
	}
	defer func() { _ = w.Close() }() // nothing was streamed
	return w.EncodeAll(text, nil), nil
}

// Versions returns the versions of one chart in an index. Most indices are
// written in block style, one chart below the other; then only the part of that
// chart is parsed. JSON is read as it comes. Other styles are refused.
func (i Index) Versions(name string) ([]Published, error) {
	r, err := zstd.NewReader(bytes.NewReader(i.Packed), zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(256<<20))
	if err != nil {
		return nil, fmt.Errorf("read an index: %w", err)
	}
	defer r.Close()
	text := bufio.NewReaderSize(r, 64<<10)
	start, err := text.Peek(1)
	if err != nil {
		return nil, errNoEntry
	}
	if start[0] == '{' {
		return jsonEntry(text, name)
	}
	return blockEntry(text, name)
}

// jsonEntry reads an index in JSON up to the chart.
func jsonEntry(text io.Reader, name string) ([]Published, error) {
	dec := json.NewDecoder(text)
	if err := enter(dec, "entries"); err != nil {
		return nil, err
	}
	if err := enter(dec, name); err != nil {
		return nil, err
	}
	var out []Published
	if err := dec.Decode(&out); err != nil {
		return nil, malformed(err)
	}
	return out, nil
}

// enter goes on to the value of a key in the object that comes next.
func enter(dec *json.Decoder, key string) error {
	open, err := dec.Token()
	if err != nil {
		return malformed(err)
	}
	if open != json.Delim('{') {
		return malformed(fmt.Errorf("%v instead of an object", open))
	}
	for dec.More() {
		found, err := dec.Token()
		if err != nil {
			return malformed(err)
		}
		if found == key {
			return nil
		}
		if err := skip(dec); err != nil {
			return malformed(err)
		}
	}
	return errNoEntry
}

// skip reads one value and discards it.
func skip(dec *json.Decoder) error {
	depth := 0
	for {
		t, err := dec.Token()
		if err != nil {
			return fmt.Errorf("read a token: %w", err)
		}
		switch t {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
		if depth == 0 {
			return nil
		}
	}
}

// blockEntry cuts the lines of one chart out of an index in block style: those
// from its key below "entries" to the next line that is not deeper.
func blockEntry(text *bufio.Reader, name string) ([]Published, error) {
	lines := &lineReader{in: text}
	if !lines.until(func(l string) bool { return strings.TrimRight(l, " \r") == "entries:" }) {
		if lines.err == nil && !lines.flow {
			return nil, errNoEntry
		}
		return nil, malformed(lines.err)
	}
	cut := entryCutter{name: name, indent: -1}
	for {
		line, ok := lines.next()
		if !ok {
			break
		}
		over, err := cut.add(line)
		if err != nil {
			return nil, err
		}
		if over {
			break
		}
	}
	if lines.err != nil {
		return nil, malformed(lines.err)
	}
	if cut.part.Len() == 0 {
		return nil, errNoEntry
	}
	var out []Published
	if err := yaml.Unmarshal([]byte(cut.part.String()), &out); err != nil {
		return nil, malformed(err)
	}
	return out, nil
}

// An entryCutter collects the lines of one chart from those below "entries".
type entryCutter struct {
	name   string
	indent int  // of the charts' names; below 0: not known yet
	inside bool // the lines that come are the chart's
	part   strings.Builder
}

// add takes the next line. It reports whether no line of the chart can follow.
func (c *entryCutter) add(line string) (over bool, err error) {
	body := strings.TrimLeft(line, " ")
	if trimmed := strings.TrimRight(body, " \r"); trimmed == "" || trimmed[0] == '#' {
		return false, nil
	}
	indent := len(line) - len(body)
	if c.indent < 0 {
		c.indent = indent
	}
	isKey := indent == c.indent && !strings.HasPrefix(body, "- ")
	switch {
	case indent < c.indent, isKey && c.inside, c.indent == 0:
		return true, nil
	case isKey:
		c.inside = keyOf(body) == c.name
	case c.inside:
		if c.part.Len()+len(line) > maxEntry {
			return false, fault.New(fault.Exceeded, "the index says more than %d bytes about the chart", maxEntry)
		}
		c.part.WriteString(line)
		c.part.WriteByte('\n')
	}
	return false, nil
}

// keyOf is the key of a line such as `name:` or `"name":`.
func keyOf(line string) string {
	key, _, _ := strings.Cut(strings.TrimRight(line, " \r"), ":")
	return strings.Trim(key, `"' `)
}

// maxLine is the longest line of an index, in bytes.
const maxLine = 1 << 20

// A lineReader reads lines of at most maxLine bytes.
type lineReader struct {
	in   *bufio.Reader
	err  error
	over bool
	flow bool // the entries were written in flow style
}

func (r *lineReader) next() (string, bool) {
	if r.over || r.err != nil {
		return "", false
	}
	var line []byte
	for {
		part, err := r.in.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > maxLine:
			r.err = fmt.Errorf("a line has more than %d bytes", maxLine)
			return "", false
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF):
			r.over = true
			return string(line), len(line) > 0
		case err != nil:
			r.err = err
			return "", false
		}
		return strings.TrimSuffix(string(line), "\n"), true
	}
}

// until reads lines up to one that fits.
func (r *lineReader) until(fits func(string) bool) bool {
	for {
		line, ok := r.next()
		if !ok {
			return false
		}
		if strings.HasPrefix(line, "entries:") && strings.Contains(line, "{") {
			r.flow = !strings.HasSuffix(strings.TrimRight(line, " \r"), "{}")
		}
		if fits(line) {
			return true
		}
	}
}

func malformed(err error) error {
	if errors.Is(err, errNoEntry) {
		return err
	}
	if err == nil {
		return fault.With(fault.New(fault.Invalid, "the index is written in a style that is not read"), "", "write it in block style or as JSON, as helm repo index does")
	}
	return fault.Wrap(fault.Invalid, err, "the index is no index of charts: %s", short(err.Error()))
}
