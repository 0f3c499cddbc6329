// Package charts holds the tests of both Helm charts: what they render to for
// every switch, what their schemas refuse, and that a real API server takes
// them.
package charts
