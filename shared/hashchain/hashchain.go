// Package hashchain computes the hashes by which hub and agent prove that they
// have the same desired state: a chain over the rows of a cluster's desired
// log, and a root over the newest state of each application. It stores nothing
// and does no I/O. Both sides call it on the bytes as sent, so equal rows
// always have equal hashes.
package hashchain

import (
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"slices"
)

// First is the chain hash before the first row of a log: SHA-256 of a fixed
// text and the log's incarnation.
func First(incarnation string) []byte {
	sum := sha256.Sum256([]byte("capstan desired log v1" + incarnation))
	return sum[:]
}

// Next is the chain hash after one row: SHA-256 of the hash before it, the
// sequence number (8 bytes, big-endian), the kind (4), the length of the
// application's id (4), the id, and the body.
func Next(prev []byte, seq uint64, kind int32, appID string, body []byte) []byte {
	head := make([]byte, 0, len(prev)+16+len(appID))
	head = append(head, prev...)
	head = binary.BigEndian.AppendUint64(head, seq)
	head = binary.BigEndian.AppendUint32(head, uint32(kind))
	head = binary.BigEndian.AppendUint32(head, uint32(len(appID)))
	head = append(head, appID...)
	h := sha256.New()
	h.Write(head)
	h.Write(body)
	return h.Sum(nil)
}

// Leaf is the hash of the newest state of one application: SHA-256 of its id, a
// zero byte, and the body of its newest state row.
func Leaf(appID string, body []byte) [32]byte {
	h := sha256.New()
	h.Write([]byte(appID))
	h.Write([]byte{0})
	h.Write(body)
	return [32]byte(h.Sum(nil))
}

// Root is the hash of the newest states of all applications of a cluster:
// SHA-256 over id, a zero byte and leaf of each, in order of id. Without
// applications it is the hash of the empty text.
func Root(leaves map[string][32]byte) []byte {
	h := sha256.New()
	for _, id := range slices.Sorted(maps.Keys(leaves)) {
		leaf := leaves[id]
		h.Write([]byte(id))
		h.Write([]byte{0})
		h.Write(leaf[:])
	}
	return h.Sum(nil)
}
