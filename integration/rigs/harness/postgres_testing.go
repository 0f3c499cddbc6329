package harness

import (
	"context"
	"fmt"
	"os"
	"testing"
)

// NewPostgres starts a server for one test and stops it with the test.
func NewPostgres(tb testing.TB, o PostgresOptions) *Postgres {
	tb.Helper()
	p, err := StartPostgres(tb.Context(), o)
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

// MainWithPostgres runs the tests of a package with one server for all of
// them, which it hands to use before the first test. Call it from TestMain
// and give its result to os.Exit.
func MainWithPostgres(m *testing.M, use func(*Postgres)) int {
	ctx, cancel := context.WithTimeout(context.Background(), postgresStart)
	defer cancel()
	p, err := StartPostgres(ctx, PostgresOptions{})
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
