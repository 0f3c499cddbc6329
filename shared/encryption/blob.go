package encryption

import (
	"errors"
	"fmt"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/capstan-cd/capstan/shared/fault"
)

// MaxBlob is the largest text of a blob. A blob that would decompress to more
// is refused before memory is allocated.
const MaxBlob = 64 << 20

// SealBlob packs one canonical object for storage and transport: compressed
// with zstd, then sealed, with its digest as associated data, so that the
// decrypted bytes are those of the digest.
func SealBlob(key [KeySize]byte, digest [32]byte, plain []byte) ([]byte, error) {
	if len(plain) > MaxBlob {
		return nil, fault.New(fault.Exceeded, "an object of %d bytes is over the limit of %d", len(plain), MaxBlob)
	}
	enc, err := encoder()
	if err != nil {
		return nil, err
	}
	defer encoders.Put(enc)
	return Seal(key, digest[:], enc.EncodeAll(plain, make([]byte, 0, len(plain)/2+64)))
}

// OpenBlob decrypts what SealBlob returned. It returns at most MaxBlob bytes.
func OpenBlob(key [KeySize]byte, digest [32]byte, sealed []byte) ([]byte, error) {
	packed, err := Open(key, digest[:], sealed)
	if err != nil {
		return nil, err
	}
	dec, err := decoder()
	if err != nil {
		return nil, err
	}
	defer decoders.Put(dec)
	plain, err := dec.DecodeAll(packed, nil)
	if errors.Is(err, zstd.ErrDecoderSizeExceeded) || errors.Is(err, zstd.ErrWindowSizeExceeded) {
		return nil, fault.New(fault.Exceeded, "a blob decompresses to more than %d bytes", MaxBlob)
	}
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "a blob cannot be decompressed")
	}
	return plain, nil
}

// The pools keep scratch memory, not state: coders are expensive to create, and
// between two calls no caller can access a text through them.
//
//nolint:gochecknoglobals // caches of stateless coders
var encoders, decoders sync.Pool

func encoder() (*zstd.Encoder, error) {
	if enc, ok := encoders.Get().(*zstd.Encoder); ok {
		return enc, nil
	}
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(1<<20), zstd.WithEncoderCRC(false))
	if err != nil {
		return nil, fmt.Errorf("prepare compression: %w", err)
	}
	return enc, nil
}

func decoder() (*zstd.Decoder, error) {
	if dec, ok := decoders.Get().(*zstd.Decoder); ok {
		return dec, nil
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(MaxBlob), zstd.WithDecoderMaxWindow(8<<20))
	if err != nil {
		return nil, fmt.Errorf("prepare decompression: %w", err)
	}
	return dec, nil
}
