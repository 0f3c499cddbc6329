package kube

import (
	"context"
	"fmt"
	"os"
	"testing"
)

// New starts a cluster for one test and stops it with the test.
func New(tb testing.TB, name string, o Options) *Cluster {
	tb.Helper()
	c, err := Start(tb.Context(), name, o)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	tb.Cleanup(func() {
		if err := c.Stop(); err != nil {
			tb.Errorf("stop cluster %q: %v", name, err)
		}
	})
	return c
}

// Main runs the tests of a package with one cluster for all of
// them, which it hands to use before the first test. Call it from TestMain
// and give its result to os.Exit.
func Main(m *testing.M, o Options, use func(*Cluster)) int {
	c, err := Start(context.Background(), "test", o)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	use(c)
	code := m.Run()
	if err := c.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stop the cluster:", err)
		return 1
	}
	return code
}
