package apply

import (
	"fmt"
	"slices"
	"strings"
)

// mostCauses is how many objects the health of an application names (HLT-26).
const mostCauses = 3

// healthCauses are the objects that determine an application's health: if there
// are many, always the same ones.
type healthCauses struct {
	first []string // in order
	more  int
}

func (c *healthCauses) add(cause string) {
	at, _ := slices.BinarySearch(c.first, cause)
	c.first = slices.Insert(c.first, at, cause)
	if len(c.first) > mostCauses {
		c.first = c.first[:mostCauses]
		c.more++
	}
}

func (c *healthCauses) String() string {
	out := strings.Join(c.first, "; ")
	if c.more > 0 {
		out = fmt.Sprintf("%s; and %d more", out, c.more)
	}
	return out
}
