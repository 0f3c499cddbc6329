// Package buckethash finds which of many values differ between two sides by
// comparing a few hashes. Values are distributed by their keys over 256
// buckets, and each of these over 256 again; the sides compare one number per
// bucket. It stores nothing and does no I/O. Agent and hub call it with equal
// keys and values, so equal values are never sent. The numbers find differences
// and prove nothing: a side that sends wrong numbers harms only itself.
package buckethash

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/capstan-cd/capstan/shared/fault"
)

const (
	// Width is how many buckets a level has.
	Width = 256
	size  = 8 // bytes of a number
)

// separator separates the parts of a key; no Kubernetes name contains it.
const separator = "\x1f"

// Resource is the key of an object of an application.
func Resource(app, group, kind, namespace, name string) string {
	return "resource" + separator + app + separator + group + separator + kind + separator + namespace + separator + name
}

// Application is the key of the report on a whole application.
func Application(app string) string { return "application" + separator + app }

// Of returns the bucket of a key: the first byte selects the bucket of the
// first level, the second that of the second.
func Of(key string) uint16 {
	sum := sha256.Sum256([]byte(key))
	return binary.BigEndian.Uint16(sum[:])
}

// Leaf is what one value adds to its bucket. It is never 0.
func Leaf(key string, value []byte) uint64 {
	h := sha256.New()
	h.Write([]byte(key))
	h.Write([]byte{0})
	h.Write(value)
	return max(1, binary.BigEndian.Uint64(h.Sum(nil)))
}

// Sums are the numbers of all buckets that are not empty.
type Sums map[uint16]uint64

// Add adds a leaf to a bucket, or removes it.
func (s Sums) Add(bucket uint16, leaf uint64) {
	if s[bucket] ^= leaf; s[bucket] == 0 {
		delete(s, bucket)
	}
}

// First returns the encoded numbers of the first level.
func (s Sums) First() []byte {
	var sums [Width]uint64
	for b, v := range s {
		sums[b>>8] ^= v
	}
	out := make([]byte, 0, Width*size)
	for _, v := range sums {
		out = binary.BigEndian.AppendUint64(out, v)
	}
	return out
}

// Second returns the numbers inside one bucket of the first level: which of its
// buckets are not empty, and their numbers.
func (s Sums) Second(first uint8) (index, sums []byte) {
	for b := range s {
		if uint8(b>>8) == first {
			index = append(index, uint8(b))
		}
	}
	slices.Sort(index)
	for _, low := range index {
		sums = binary.BigEndian.AppendUint64(sums, s[uint16(first)<<8|uint16(low)])
	}
	return index, sums
}

// DiffFirst returns the buckets of the first level in which the other side
// differs.
func (s Sums) DiffFirst(other []byte) ([]uint8, error) {
	if len(other) != Width*size {
		return nil, fault.New(fault.Invalid, "hashes of %d buckets were given, not of %d", len(other)/size, Width)
	}
	mine := s.First()
	var out []uint8
	for i := range Width {
		if !slices.Equal(mine[i*size:(i+1)*size], other[i*size:(i+1)*size]) {
			out = append(out, uint8(i))
		}
	}
	return out, nil
}

// DiffSecond returns the buckets inside one of the first level in which the
// other side differs.
func (s Sums) DiffSecond(first uint8, index, sums []byte) ([]uint16, error) {
	if len(sums) != len(index)*size {
		return nil, fault.New(fault.Invalid, "%d bytes of hashes do not fit %d buckets", len(sums), len(index))
	}
	theirs := make(map[uint8]uint64, len(index))
	for i, low := range index {
		theirs[low] = binary.BigEndian.Uint64(sums[i*size:])
	}
	var out []uint16
	for low := range Width {
		b := uint16(first)<<8 | uint16(low)
		if s[b] != theirs[uint8(low)] {
			out = append(out, b)
		}
	}
	return out, nil
}
