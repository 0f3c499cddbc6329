//go:build !soak

package crossreads_test

import "time"

// How long the calls go on: calls ends them, unless duration is set.
const (
	calls    = 4000
	duration = time.Duration(0)
)
