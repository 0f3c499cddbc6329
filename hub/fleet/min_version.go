package fleet

import (
	"strconv"
	"strings"

	"github.com/capstan-cd/capstan/shared/fault"
)

// span is how many minor versions behind the hub an agent may be.
const span = 3

// minVersionOf is the oldest agent that a hub of a version talks to. It is empty
// where the hub has no version, which lets everyone in.
func minVersionOf(hub string) string {
	v, ok := parseVersion(hub)
	if !ok {
		return ""
	}
	return strconv.Itoa(v[0]) + "." + strconv.Itoa(max(0, v[1]-span)) + ".0"
}

// checkVersion refuses an agent below the minimum version. One without a
// numeric version is admitted: features are negotiated by name anyway.
func checkVersion(floor, agent string) error {
	low, ok := parseVersion(floor)
	v, known := parseVersion(agent)
	if !ok || !known {
		return nil
	}
	for i := range low {
		if v[i] > low[i] {
			return nil
		}
		if v[i] < low[i] {
			return &fault.Error{
				Kind: fault.Denied, Code: CodeUpgrade,
				Cause: "the agent needs an upgrade: its version is " + agent + ", and the hub accepts " + floor + " and newer",
				Fix:   "upgrade the agent to the version of the hub",
			}
		}
	}
	return nil
}

// CodeUpgrade marks the refusal of an agent that is too old for the hub.
const CodeUpgrade = "agent-upgrade-needed"

// parseVersion reads the three numbers of a version such as
// "v0.4.1-rc.1+1a2b3c".
func parseVersion(text string) (out [3]int, ok bool) {
	text = strings.TrimPrefix(text, "v")
	if i := strings.IndexAny(text, "-+"); i >= 0 {
		text = text[:i]
	}
	parts := strings.Split(text, ".")
	if len(parts) != len(out) {
		return out, false
	}
	for i, p := range parts {
		n, err := strconv.ParseUint(p, 10, 31)
		if err != nil {
			return out, false
		}
		out[i] = int(n)
	}
	return out, true
}
