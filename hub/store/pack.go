package store

import (
	"encoding/json"
	"fmt"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/capstan-cd/capstan/hub"
)

// maxPacked is the most that one packed column may unpack to.
const maxPacked = 64 << 20

// smallPacked is what is packed fast instead of well, in bytes.
const smallPacked = 16 << 10

// The coders are made once. EncodeAll and DecodeAll may be called by many
// goroutines.
//
//nolint:gochecknoglobals // stateless coders, expensive to make
var coders = sync.OnceValues(func() (c struct {
	enc   *zstd.Encoder
	small *zstd.Encoder
	dec   *zstd.Decoder
}, err error) {
	if c.enc, err = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(1<<20)); err != nil {
		return c, err
	}
	c.small, err = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(smallPacked), zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		return c, err
	}
	c.dec, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxPacked))
	return c, err
})

// pack encodes a long list that is only ever read whole: zstd of JSON.
func pack(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("pack %T: %w", v, err)
	}
	c, err := coders()
	if err != nil {
		return nil, fmt.Errorf("prepare compression: %w", err)
	}
	if len(text) <= smallPacked { // there are thousands of these, and little in each to be found
		return c.small.EncodeAll(text, nil), nil
	}
	return c.enc.EncodeAll(text, nil), nil
}

func unpack(packed []byte, into any) error {
	c, err := coders()
	if err != nil {
		return fmt.Errorf("prepare compression: %w", err)
	}
	text, err := c.dec.DecodeAll(packed, nil)
	if err != nil {
		return fmt.Errorf("unpack %T: %w", into, err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("unpack %T: %w", into, err)
	}
	return nil
}

// A packedRef is an object of a snapshot as it is packed: the digest is an
// index into the snapshot's column of digests, where it is found again
// without unpacking.
type packedRef struct {
	At int `json:"d"`
	hub.ObjectRef
}

// packRefs returns the packed list and the digests in it, each once, in order
// of first use.
func packRefs(refs []hub.ObjectRef) (packed []byte, each []hub.Digest, err error) {
	at := make(map[hub.Digest]int, len(refs))
	list := make([]packedRef, len(refs))
	for i, r := range refs {
		n, ok := at[r.Digest]
		if !ok {
			n = len(each)
			at[r.Digest] = n
			each = append(each, r.Digest)
		}
		list[i] = packedRef{n, r}
	}
	packed, err = pack(list)
	return packed, each, err
}

func unpackRefs(packed []byte, each [][]byte) ([]hub.ObjectRef, error) {
	var list []packedRef
	if err := unpack(packed, &list); err != nil {
		return nil, err
	}
	out := make([]hub.ObjectRef, len(list))
	for i, p := range list {
		if p.At < 0 || p.At >= len(each) || len(each[p.At]) != len(hub.Digest{}) {
			return nil, fmt.Errorf("object %d of a snapshot has no digest", i)
		}
		out[i] = p.ObjectRef
		out[i].Digest = hub.Digest(each[p.At])
	}
	return out, nil
}
