package postgres

import (
	"context"
	"fmt"
	"os"
	"testing"
)

// New starts a server for one test and stops it with the test.
func New(tb testing.TB, o Options) *Server {
	tb.Helper()
	p, err := Start(tb.Context(), o)
	if err != nil {
		tb.Fatalf("start Postgres: %v", err)
	}
	tb.Cleanup(func() {
		if err := p.Stop(StopImmediate); err != nil {
			tb.Errorf("stop Postgres: %v", err)
		}
	})
	return p
}

// Main runs the tests of a package with one server for all of
// them, which it hands to use before the first test. Call it from TestMain
// and give its result to os.Exit.
func Main(m *testing.M, use func(*Server)) int {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	p, err := Start(ctx, Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, "start Postgres:", err)
		return 1
	}
	use(p)
	code := m.Run()
	if err := p.Stop(StopImmediate); err != nil {
		fmt.Fprintln(os.Stderr, "stop Postgres:", err)
		return 1
	}
	return code
}
