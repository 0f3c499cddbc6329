//go:build !failpoints

package failpoint

// Enabled reports whether this binary contains the points.
const Enabled = false

// Here is a point at which a process may be killed, delayed or made to panic.
func Here(string) {}

// Fail is a point that can also return an error.
func Fail(string) error { return nil }
