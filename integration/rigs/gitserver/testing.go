package gitserver

import (
	"testing"
)

// New starts a Git server for one test and stops it with the test.
func New(tb testing.TB, o Options) *Server {
	tb.Helper()
	g, err := Start(tb.Context(), o)
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
