package packstore

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha1" //nolint:gosec // the format of Git's packs demands it
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/capstan-cd/capstan/shared/logkey"
)

// Merge puts small packs together into one once there are more than limit, so
// that finding an object stays cheap. The stored objects are copied as they
// are, in their order, so that the distances between deltas and bases hold;
// of an object that several packs have, the index names the newest.
func (o *Objects) Merge(ctx context.Context, limit int) error {
	s, err := o.acquire()
	if err != nil {
		return err
	}
	defer o.release(s)
	small := smallPacks(s.packs, limit)
	if len(small) < 2 {
		return nil
	}
	p, err := o.writeMerged(ctx, small)
	if err != nil {
		return err
	}
	if err := o.swap(p, small); err != nil {
		return errors.Join(err, p.close())
	}
	for _, old := range small {
		// The index goes first: without it the pack is not used.
		err := cmp.Or(os.Remove(old.name+".idx"), os.Remove(old.name+".pack"))
		if err != nil {
			o.lib.log.WarnContext(ctx, "merged pack not removed", logkey.File, old.name, logkey.Error, err)
		}
	}
	return nil
}

// smallPacks picks what to merge, newest first: all packs but those that are
// much larger than all smaller ones together.
func smallPacks(all []*heldPack, limit int) []*heldPack {
	if len(all) <= limit {
		return nil
	}
	bySize := slices.SortedStableFunc(slices.Values(all), func(a, b *heldPack) int { return cmp.Compare(a.size, b.size) })
	var sum int64
	picked := map[*heldPack]bool{}
	for i, p := range bySize {
		if i >= 2 && p.size > 4*sum && len(bySize)-i <= limit/2 {
			break
		}
		sum += p.size
		picked[p] = true
	}
	return slices.DeleteFunc(slices.Clone(all), func(p *heldPack) bool { return !picked[p] })
}

func (o *Objects) writeMerged(ctx context.Context, packs []*heldPack) (*pack, error) {
	f, err := os.CreateTemp(o.dir, "tmp_pack_")
	if err != nil {
		return nil, fmt.Errorf("create merged pack: %w", err)
	}
	entries, sum, err := copyPacks(ctx, f, packs)
	name := filepath.Join(o.dir, "pack-"+hex.EncodeToString(sum[:]))
	if err == nil {
		err = cmp.Or(f.Close(), rename(f.Name(), name+".pack"))
	}
	if err != nil {
		return nil, errors.Join(err, f.Close(), removed(f.Name()))
	}
	x, err := writeIndex(name+".idx", entries, sum)
	if err != nil {
		return nil, errors.Join(err, os.Remove(name+".pack"))
	}
	if err := x.close(); err != nil {
		return nil, err
	}
	return openPack(name, &o.lib.ids)
}

// removed removes a file that may be gone already.
func removed(name string) error {
	if err := os.Remove(name); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

func copyPacks(ctx context.Context, to io.Writer, packs []*heldPack) ([]idxEntry, [20]byte, error) {
	var sum [20]byte
	var head [packHead]byte
	total := uint32(0)
	for _, p := range packs {
		if _, err := p.file.ReadAt(head[:], 0); err != nil {
			return nil, sum, fmt.Errorf("%w: %w", ErrDamaged, err)
		}
		total += binary.BigEndian.Uint32(head[8:])
	}
	copy(head[:], "PACK\x00\x00\x00\x02")
	binary.BigEndian.PutUint32(head[8:], total)
	hash := sha1.New() //nolint:gosec // as above
	w := bufio.NewWriterSize(io.MultiWriter(to, hash), 1<<16)
	_, _ = w.Write(head[:]) // Flush reports the first error
	at := int64(packHead)
	var all []idxEntry
	for _, p := range packs {
		if err := ctx.Err(); err != nil {
			return nil, sum, err
		}
		entries, err := p.idx.entries()
		if err != nil {
			return nil, sum, err
		}
		for i := range entries {
			entries[i].offset += at - packHead
		}
		all = append(all, entries...)
		n, err := io.Copy(w, io.NewSectionReader(p.file, packHead, p.size-packHead-packTail))
		if err != nil {
			return nil, sum, fmt.Errorf("copy pack: %w", err)
		}
		at += n
	}
	if err := w.Flush(); err != nil {
		return nil, sum, fmt.Errorf("write merged pack: %w", err)
	}
	copy(sum[:], hash.Sum(nil))
	if _, err := to.Write(sum[:]); err != nil {
		return nil, sum, fmt.Errorf("write merged pack: %w", err)
	}
	return all, sum, nil
}
