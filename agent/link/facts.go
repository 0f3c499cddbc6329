package link

import "strings"

// Limits of what Hello reports about a cluster's API: the hub refuses more
// lines, and the message must fit into the lane.
const (
	mostServed     = 30000
	mostServedText = 768 << 10 // bytes
)

// fitting returns the part of a cluster's API list that fits into a Hello: all
// versions of groups, and as many kinds as possible, in order.
func fitting(all []string) []string {
	room, text := mostServed, mostServedText
	take := make([]bool, len(all))
	for _, kinds := range [...]bool{false, true} {
		for i, line := range all {
			if n := cost(line); names(line) == kinds && room > 0 && text >= n {
				take[i], room, text = true, room-1, text-n
			}
		}
	}
	out := make([]string, 0, len(all))
	for i, line := range all {
		if take[i] {
			out = append(out, line)
		}
	}
	return out
}

// cost is the size of a line in a message: text, length and tag.
func cost(line string) int { return len(line) + 3 }

// names reports whether a line names a kind, as "v1/Pod" and "apps/v1/Deployment"
// do, and not a version of a group alone. Kinds begin with a capital letter,
// which groups and versions never have.
func names(line string) bool {
	kind := line[strings.LastIndexByte(line, '/')+1:]
	return kind != "" && kind[0] >= 'A' && kind[0] <= 'Z'
}
