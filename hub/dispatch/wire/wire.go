// Package wire is the form in which desired state travels to agents: the bodies
// of rows, the lists that are too long for them, and what a stream need not
// send again. It refuses what the link cannot carry, never reads the store and
// decides nothing. Dispatch writes rows with it, dispatch/stream sends them.
// Equal states give equal bytes.
package wire
