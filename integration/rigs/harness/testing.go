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

// NewCluster starts a cluster for one test and stops it with the test.
func NewCluster(tb testing.TB, name string, o ClusterOptions) *Cluster {
	tb.Helper()
	c, err := StartCluster(tb.Context(), name, o)
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

// MainWithCluster runs the tests of a package with one cluster for all of
// them, which it hands to use before the first test. Call it from TestMain
// and give its result to os.Exit.
func MainWithCluster(m *testing.M, o ClusterOptions, use func(*Cluster)) int {
	c, err := StartCluster(context.Background(), "test", o)
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

// NewGit starts a Git server for one test and stops it with the test.
func NewGit(tb testing.TB, o GitOptions) *Git {
	tb.Helper()
	g, err := StartGit(tb.Context(), o)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	tb.Cleanup(func() {
		if err := g.Stop(); err != nil {
			tb.Errorf("stop the Git server: %v", err)
		}
	})
	return g
}

// NewSSH starts an SSH server for one test and stops it with the test.
func NewSSH(tb testing.TB, o SSHOptions) *SSH {
	tb.Helper()
	s, err := StartSSH(tb.Context(), o)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	tb.Cleanup(func() {
		if err := s.Stop(); err != nil {
			tb.Errorf("stop the SSH server: %v", err)
		}
	})
	return s
}
