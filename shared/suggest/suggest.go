// Package suggest finds the word that a misspelled one probably means. It does
// not depend on commands or files. Code that reports an unknown word calls it.
package suggest

import "strings"

// Nearest returns the candidate that is closest to a word, or "" if none is
// close. Case does not count. A candidate that begins with the word, of three or
// more letters, is the closest; of others up to a third of the letters, at least
// one and at most three, may differ. Of equally close candidates the first one
// is returned.
func Nearest(word string, candidates []string) string {
	low := strings.ToLower(word)
	if low == "" || len(low) > maxWord {
		return ""
	}
	if len(low) >= minPrefix {
		for _, c := range candidates {
			if strings.HasPrefix(strings.ToLower(c), low) {
				return c
			}
		}
	}
	best, least := "", min(max(1, len(low)/3), maxDistance)+1
	for _, c := range candidates {
		if d := Distance(low, strings.ToLower(c)); d < least {
			best, least = c, d
		}
	}
	return best
}

// Question returns "; did you mean "x"?" for the nearest candidate, or "".
func Question(word string, candidates []string) string {
	if near := Nearest(word, candidates); near != "" {
		return `; did you mean "` + near + `"?`
	}
	return ""
}

const (
	maxDistance = 3
	minPrefix   = 3
	maxWord     = 100 // bytes; a longer word is no misspelled name
)

// Distance counts the letters to insert, delete, replace or swap with their
// neighbour to make b of a.
func Distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
