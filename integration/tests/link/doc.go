// Package link holds the tests of the link as a whole: hub/fleet and
// agent/link over real TLS on the loopback interface, with stores in memory.
// Nobody imports it.
package link
