//go:build !soak

package releases_test

// upgradedApplications is how many applications an upgrade changes.
const upgradedApplications = 60
