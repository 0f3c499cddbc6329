package hub

import (
	"crypto/sha256"
	"encoding/binary"
)

// ChainHash is the hash that links a record to the one before it: SHA-256
// over a version text and every field but Hash, each with its length in
// front, so that no two records give the same bytes. Times count in
// microseconds.
func (r AuditRecord) ChainHash() []byte {
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
		r.Actor, r.Via, r.Address, r.Action, r.Resource, r.Object, r.Result, r.Reason, string(r.Detail), string(r.Request),
	} {
		field([]byte(s))
	}
	return h.Sum(nil)
}
