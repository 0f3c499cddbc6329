package tunnel

import (
	"time"

	"google.golang.org/grpc/credentials"
)

// CredentialsForTest lets a test make a client of its own on a stream.
func CredentialsForTest() credentials.TransportCredentials { return sessionCreds{} }

// StallForTest shortens how long a write may wait, once all is set up. Nobody
// may write meanwhile.
func (s *Session) StallForTest(d time.Duration) { s.lane.Stall = d }
