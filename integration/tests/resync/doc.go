// Package resync lets a real agent's link and outbox meet the real hub
// services on a real database, cuts them apart in every way, and measures what
// it costs to find out that nothing has changed.
package resync
