package apply

import (
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/capstan-cd/capstan/agent/wave"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
)

const (
	mostResults = 384 << 10 // bytes of the results in one report
	mostMessage = 4 << 10   // bytes of the message of one result
)

// truncateResults omits results that would make a report too large: successful
// ones first; hooks and failures stay as long as possible.
func truncateResults(all []*linkv1.Result) []*linkv1.Result {
	size := 0
	for _, r := range all {
		if len(r.GetMessage()) > mostMessage {
			r.Message = strings.ToValidUTF8(r.GetMessage()[:mostMessage], "") + "…"
		}
		size += sizeOf(r)
	}
	if size <= mostResults {
		return all
	}
	size = 0
	keep := make([]bool, len(all))
	choose := func(wanted func(*linkv1.Result) bool) {
		for i, r := range all {
			if n := sizeOf(r); wanted(r) && size+n <= mostResults {
				keep[i] = true
				size += n
			}
		}
	}
	choose(important)
	choose(func(r *linkv1.Result) bool { return !important(r) })
	out := make([]*linkv1.Result, 0, len(all))
	for i, r := range all {
		if keep[i] {
			out = append(out, r)
		}
	}
	return out
}

// sizeOf is the size of a result in a report, in bytes.
func sizeOf(r *linkv1.Result) int { return proto.Size(r) + 4 }

// important reports whether a result is one of a hook or a failure.
func important(r *linkv1.Result) bool {
	return r.GetHookType() != "" || r.GetStatus() == wave.SyncFailed
}
