package wire

import "slices"

// maxSentBlobs is how many numbers a stream remembers one by one: 4 KiB.
const maxSentBlobs = 512

// SentBlobs are the numbers of the bodies that a stream has taken along, or need
// not. Applications are rendered beside each other, so rows come in another
// order than their bodies were stored in: the highest number alone would leave
// out the bodies of those that came late.
type SentBlobs struct {
	upTo uint64   // it and all below
	more []uint64 // others, ascending
}

// NewSentBlobs makes those of a stream that need not take along what was
// stored before it began.
func NewSentBlobs(newest uint64) SentBlobs { return SentBlobs{upTo: newest} }

// Has reports whether a number counts as carried.
func (c *SentBlobs) Has(number uint64) bool {
	if number <= c.upTo {
		return true
	}
	_, found := slices.BinarySearch(c.more, number)
	return found
}

// Add remembers a number. Of too many, the lower half counts as carried whole:
// what was not is fetched.
func (c *SentBlobs) Add(number uint64) {
	if number <= c.upTo {
		return
	}
	at, found := slices.BinarySearch(c.more, number)
	if found {
		return
	}
	c.more = slices.Insert(c.more, at, number)
	if len(c.more) > maxSentBlobs {
		c.skip(maxSentBlobs / 2)
	}
	n := 0
	for n < len(c.more) && c.more[n] == c.upTo+uint64(n)+1 {
		n++
	}
	c.skip(n)
}

// skip counts everything up to the n-th number as carried.
func (c *SentBlobs) skip(n int) {
	if n > 0 {
		c.upTo = c.more[n-1]
		c.more = append(c.more[:0], c.more[n:]...)
	}
}
