// Package recording copies responses while they are written and tells requests apart,
// for the repetition of a request that was answered before.
package recording

import (
	"bytes"
	"crypto/sha256"
	"io"
	"net/http"
)

// maxKept is the longest response that is stored for a repetition.
const maxKept = 1 << 20

// Hash distinguishes requests with the same key, and leaves the body
// readable.
func Hash(r *http.Request) ([32]byte, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return [32]byte{}, err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	h := sha256.New()
	for _, part := range [][]byte{[]byte(r.Method), []byte(r.URL.Path), []byte(r.URL.RawQuery), body} {
		h.Write(part)
		h.Write([]byte{0})
	}
	return [32]byte(h.Sum(nil)), nil
}

// Recorder copies the response.
type Recorder struct {
	http.ResponseWriter
	Body bytes.Buffer
	Over bool
}

// Write passes on and copies.
func (w *Recorder) Write(b []byte) (int, error) {
	if w.Body.Len()+len(b) > maxKept {
		w.Over = true
	} else if !w.Over {
		w.Body.Write(b)
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController reach the connection.
func (w *Recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }
