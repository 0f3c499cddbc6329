// Package auditlog is the form in which the audit log of a tenant leaves the
// hub: one JSON object in each line, first a header, then every record in
// order, last an end line. Each record has the hash of the one before it, so
// anybody can check a file without the hub. The hub writes files, the CLI checks
// them. It reads no network and keeps no state.
//
// What a check proves: no record in the file was changed, removed, added or
// moved by itself. Somebody who writes a whole new file passes it too, so the
// last hash is compared with one that the hub shows or that was noted earlier.
package auditlog

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"time"
)

// A Record is one act.
type Record struct {
	Seq      int64     `json:"seq"` // from 1, without gaps
	At       time.Time `json:"at"`  // microseconds count
	Actor    string    `json:"actor"`
	Via      string    `json:"via,omitempty"`
	Address  string    `json:"address,omitempty"`
	Action   string    `json:"action"`
	Resource string    `json:"resource"`
	Object   string    `json:"object,omitempty"`
	Result   string    `json:"result"`
	Reason   string    `json:"reason,omitempty"`
	Request  string    `json:"request,omitempty"`
	Prev     Hash      `json:"prev"`
	Hash     Hash      `json:"hash"`
	// Detail is JSON, byte for byte as it was hashed.
	Detail json.RawMessage `json:"-"`
}

// A Hash is written in hexadecimal digits. That before the first record is
// empty.
type Hash []byte

// MarshalText writes it.
func (h Hash) MarshalText() ([]byte, error) { return []byte(hex.EncodeToString(h)), nil }

// UnmarshalText reads it.
func (h *Hash) UnmarshalText(b []byte) error {
	out, err := hex.DecodeString(string(b))
	*h = out
	return err
}

// ChainHash is the hash that links a record to the one before it: SHA-256
// over a version text and every field but Hash, each with its length in
// front, so that no two records give the same bytes.
func (r Record) ChainHash() []byte {
	h := sha256.New()
	field := func(b []byte) {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(b)))
		h.Write(n[:])
		h.Write(b)
	}
	number := func(n int64) {
		var b [8]byte
		binary.BigEndian.PutUint64(b[:], uint64(n))
		field(b[:])
	}
	field([]byte("capstan audit v1"))
	field(r.Prev)
	number(r.Seq)
	number(r.At.UnixMicro())
	for _, s := range []string{
		r.Actor, r.Via, r.Address, r.Action, r.Resource, r.Object, r.Result, r.Reason, string(r.Detail), r.Request,
	} {
		field([]byte(s))
	}
	return h.Sum(nil)
}

// follows reports whether the record is whole and the next after a mark.
func (r Record) follows(m Mark) bool {
	return r.Seq == m.Seq+1 && bytes.Equal(r.Prev, m.Hash) && bytes.Equal(r.Hash, r.ChainHash())
}

// A Mark is a place in a log: the number and hash of a record. The zero Mark is
// before the first record.
type Mark struct {
	Seq  int64 `json:"seq"`
	Hash Hash  `json:"hash"`
}

// A Header begins a file.
type Header struct {
	Kind       string    `json:"kind"`
	Version    int       `json:"version"`
	Tenant     string    `json:"tenant"`
	TenantID   string    `json:"tenantId"`
	ExportedAt time.Time `json:"exportedAt"`
	// Anchor is the last record that the hub has removed because of its age.
	Anchor Mark `json:"anchor"`
}

// end ends a file. Without it the file is cut off.
type end struct {
	Kind    string `json:"kind"`
	Records int64  `json:"records"`
	Head    Mark   `json:"head"`
}

const (
	kindHeader = "capstan-audit"
	kindEnd    = "capstan-audit-end"
	version    = 1
)
