package validation

import (
	"strconv"
	"strings"
	"time"

	"github.com/capstan-cd/capstan/shared/fault"
)

// ParseDuration reads a duration as people write it: Go's ("5s", "1h30m"),
// whole days ("30d"), or a bare number of seconds, as in Argo CD.
func ParseDuration(s string) (time.Duration, error) {
	wrong := fault.With(fault.New(fault.Invalid, "%q is no duration", Shorten(s)), "", "write it like 90s, 30m, 12h or 30d")
	if days, found := strings.CutSuffix(s, "d"); found {
		n, err := strconv.ParseUint(days, 10, 16)
		if err != nil {
			return 0, wrong
		}
		return time.Duration(n) * 24 * time.Hour, nil
	}
	if n, err := strconv.ParseUint(s, 10, 31); err == nil {
		return time.Duration(n) * time.Second, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return 0, wrong
	}
	return d, nil
}

// BoundedDuration reads an optional lifetime that has a default and a limit.
func BoundedDuration(s string, otherwise, most time.Duration) (time.Duration, error) {
	if s == "" {
		return otherwise, nil
	}
	d, err := ParseDuration(s)
	if err != nil {
		return 0, err
	}
	if d < time.Minute || d > most {
		return 0, fault.New(fault.Invalid, "%q is not between one minute and %s", Shorten(s), most)
	}
	return d, nil
}
