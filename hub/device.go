package hub

import "time"

// A DeviceLogin is the sign-in of a device without a browser (RFC 8628). Somebody
// approves it in a browser, by the code that the device shows.
type DeviceLogin struct {
	Hash      [32]byte // of the secret that only the device has
	UserCode  [32]byte // keyed hash of the code that people type
	Address   string   // where the device asked from
	Client    string   // program, as it calls itself
	CreatedAt time.Time
	ExpiresAt time.Time
	Pace      int // seconds that the device has to wait between two questions
	Decision  DeviceDecision
	User      UserID   // who has approved it
	Session   [32]byte // hash of the session that has approved it
}

// A DeviceDecision is what somebody has said to the sign-in of a device.
type DeviceDecision string

// Decisions; empty: nobody has decided yet.
const (
	DeviceApproved DeviceDecision = "approved"
	DeviceDenied   DeviceDecision = "denied"
)

// DevicePace is how many seconds a device has to wait between two questions, at
// first and with each one that comes too early.
const DevicePace = 5

// DeviceLoginLasts is how long a sign-in of a device may take.
const DeviceLoginLasts = 10 * time.Minute
