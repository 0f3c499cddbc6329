//go:build !soak

package replicas_test

// pressure is what the hubs' environment has beyond the usual: nothing.
func pressure() []string { return nil }
