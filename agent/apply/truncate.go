package apply

import (
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/capstan-cd/capstan/agent/wave"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
)

const (
	mostResults = 384 << 10 // bytes of the results in one report
	mostMessage = 4 << 10   // the same of what one of them says
)

// truncateResults omits results that would make a report too large: successful
// ones first; hooks and failures stay as long as possible.
func truncateResults(all []*linkv1.Result) []*linkv1.Result {
	size := 0
	for _, r := range all {
		if len(r.GetMessage()) > mostMessage {
			r.Message = strings.ToValidUTF8(r.GetMessage()[:mostMessage], "") + "…"
		}
		size += proto.Size(r) + 4
	}
	if size <= mostResults {
		return all
	}
	size = 0
	keep := make([]bool, len(all))
	for _, first := range []bool{true, false} {
		for i, r := range all {
			if first != (r.GetHookType() != "" || r.GetStatus() == wave.SyncFailed) {
				continue
			}
			if n := proto.Size(r) + 4; size+n <= mostResults {
				keep[i] = true
				size += n
			}
		}
	}
	out := make([]*linkv1.Result, 0, len(all))
	for i, r := range all {
		if keep[i] {
			out = append(out, r)
		}
	}
	return out
}
