package hub

import (
	"regexp"
	"strings"
	"time"

	"github.com/capstan-cd/capstan/shared/fault"
)

// The phases of an Upgrade.
const (
	UpgradePending    = "Pending"    // the agent has not received it
	UpgradeRunning    = "Running"    // the agent has
	UpgradeSucceeded  = "Succeeded"  // the new version is connected
	UpgradeRolledBack = "RolledBack" // it was not in time, and the former one runs again
	UpgradeFailed     = "Failed"     // nothing was exchanged, or nothing is known of it
)

// An Upgrade is the newest request to replace the image of a cluster's agent,
// and its result.
type Upgrade struct {
	ID        string        `json:"id"`
	Image     string        `json:"image"`
	From      string        `json:"from,omitempty"` // image before; empty: not known yet
	Phase     string        `json:"phase"`
	Message   string        `json:"message,omitempty"`
	By        string        `json:"by"`
	OrderedAt time.Time     `json:"orderedAt"`
	ExpiresAt time.Time     `json:"expiresAt"` // after that it does not begin any more
	Deadline  time.Duration `json:"deadline"`  // in which the new version has to connect
	EndedAt   *time.Time    `json:"endedAt,omitempty"`
}

// Over reports whether nothing more will happen.
func (u Upgrade) Over() bool { return u.Phase != UpgradePending && u.Phase != UpgradeRunning }

// End returns the upgrade as it is once it is over.
func (u Upgrade) End(phase, message string, at time.Time) Upgrade {
	u.Phase, u.Message, u.EndedAt = phase, message, &at
	return u
}

const (
	// UpgradeDeadline is the default time for a new version to connect.
	UpgradeDeadline = 5 * time.Minute
	// UpgradeExpiry is how long an order waits for its agent.
	UpgradeExpiry = time.Hour

	leastUpgradeDeadline = 5 * time.Second
	mostUpgradeDeadline  = 30 * time.Minute
)

// imageReference is a path, a tag, a digest, or both.
var imageReference = regexp.MustCompile(`^([a-z0-9]+(?:[._-]+[a-z0-9]+)*(?::[0-9]{1,5})?(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*)(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@sha256:[0-9a-f]{64})?$`)

// CheckUpgrade refuses an order that cannot be meant.
func CheckUpgrade(image string, deadline time.Duration) error {
	parts := imageReference.FindStringSubmatch(image)
	switch {
	case image == "":
		return fault.With(fault.New(fault.Invalid, "the order names no image"), "upgrade", "give the full reference of an image, such as registry.example.com/capstan-agent:v1.2.3")
	case parts == nil || len(image) > 1024 || !strings.Contains(parts[1], "/"):
		return fault.With(fault.New(fault.Invalid, "image %.200q is no full reference", image), "upgrade", "write registry, name, and tag or digest, such as registry.example.com/capstan-agent:v1.2.3")
	case parts[2] == "" && parts[3] == "":
		return fault.With(fault.New(fault.Invalid, "image %.200q has neither a tag nor a digest", image), "upgrade", "name the version, such as "+image+":v1.2.3")
	case deadline < leastUpgradeDeadline || deadline > mostUpgradeDeadline:
		return fault.With(fault.New(fault.Invalid, "the deadline %s is not between %s and %s", deadline, leastUpgradeDeadline, mostUpgradeDeadline), "upgrade", "")
	}
	return nil
}
