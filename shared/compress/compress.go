// Package compress compresses a text with another one that the reader already
// has as dictionary: the state of an application with its former state. Both
// sides of the link use it, the hub to compress rows of the desired log and the
// agent to restore them. It stores nothing. The hash chain of the log checks
// the result elsewhere; a wrong base is detected here, before anything is
// decompressed.
package compress

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"github.com/klauspost/compress/zstd"

	"github.com/capstan-cd/capstan/shared/fault"
)

// Least is the shortest text that is worth compressing, in bytes.
const Least = 4 << 10

// MaxText is the longest text that is decompressed, and the longest base that
// is used, in bytes.
const MaxText = 8 << 20

// Name is the short hash, 16 bytes, by which both sides name a base.
func Name(base []byte) []byte {
	sum := sha256.Sum256(base)
	return slices.Clone(sum[:16])
}

// ErrBase means that the base is not the one that the text was compressed with.
var ErrBase = errors.New("the text was compressed with another base")

// Pack returns text compressed with base as dictionary, which may be nil, and
// the base's name. ok reports whether the result is shorter than text.
func Pack(text, base []byte) (packed, name []byte, ok bool, err error) {
	if len(text) < Least || len(text) > MaxText {
		return nil, nil, false, nil
	}
	options := []zstd.EOption{zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false), zstd.WithEncoderLevel(zstd.SpeedFastest),
		zstd.WithWindowSize(window(len(text) + len(base)))}
	if len(base) >= minBase && len(base) <= MaxText {
		options = append(options, zstd.WithEncoderDictRaw(1, base))
		name = Name(base)
	}
	enc, err := zstd.NewWriter(nil, options...)
	if err != nil {
		return nil, nil, false, fmt.Errorf("prepare compression: %w", err)
	}
	defer enc.Close()
	packed = enc.EncodeAll(text, make([]byte, 0, len(text)/8+64))
	return packed, name, len(packed)+len(name) < len(text), nil
}

// minBase is the least size of a base.
const minBase = 8

// window is the power of two that covers n bytes, from 64 KiB on.
func window(n int) int {
	w := 64 << 10
	for w < n {
		w *= 2
	}
	return w
}

// Unpack returns the text. name is the one that Pack returned; base may be nil
// if it is empty.
func Unpack(packed, base, name []byte) ([]byte, error) {
	options := []zstd.DOption{zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(MaxText), zstd.WithDecoderMaxWindow(uint64(window(2 * MaxText)))}
	if len(name) > 0 {
		if !slices.Equal(Name(base), name) {
			return nil, ErrBase
		}
		options = append(options, zstd.WithDecoderDictRaw(1, base))
	}
	dec, err := zstd.NewReader(nil, options...)
	if err != nil {
		return nil, fmt.Errorf("prepare decompression: %w", err)
	}
	defer dec.Close()
	text, err := dec.DecodeAll(packed, nil)
	if errors.Is(err, zstd.ErrDecoderSizeExceeded) || errors.Is(err, zstd.ErrWindowSizeExceeded) {
		return nil, fault.New(fault.Exceeded, "a row decompresses to more than %d bytes", MaxText)
	}
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "a row cannot be decompressed")
	}
	return text, nil
}
