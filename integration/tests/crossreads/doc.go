// Package crossreads lets two tenants of one running hub send random calls of
// the whole API at once, also with each other's names, ids, cursors and
// idempotency keys, and searches everything that comes back for what only the
// other one can know.
package crossreads
