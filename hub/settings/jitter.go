package settings

import (
	"strconv"
	"strings"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

// The keys about refreshes that a change of a repository causes (HOOKW-07).
const (
	refreshJitter    = "webhook.refresh.jitter"
	refreshThreshold = "webhook.refresh.jitter.threshold"
)

const (
	usualThreshold    = 10
	mostRefreshJitter = time.Hour // what a tenant asks for beyond that, it gets this
)

// JitterKeys are the keys that RefreshJitter reads, all of the map
// hub.SettingsMap.
func JitterKeys() []string { return []string{refreshJitter, refreshThreshold} }

// RefreshJitter is how long refreshes that one change of a repository causes
// are delayed at most, at random, if they are more than the threshold. Zero:
// they are not delayed.
func RefreshJitter(values map[string]string) (most time.Duration, threshold int) {
	most, err := duration(values[refreshJitter])
	if err != nil {
		return 0, usualThreshold
	}
	threshold = usualThreshold
	if n, err := strconv.Atoi(strings.TrimSpace(values[refreshThreshold])); err == nil && n >= 0 {
		threshold = n
	}
	return min(most, mostRefreshJitter), threshold
}

func (s *set) readRepositorySecret(end string, _ text) error {
	if !hub.ValidID(end) {
		return fault.With(fault.New(fault.Invalid, "%q is no id of a repository", short(end)), "", "write the id that `capstan repo list -o wide` shows")
	}
	return nil
}

func (s *set) readThreshold(_ string, t text) error {
	if strings.TrimSpace(t.value) == "" {
		return nil
	}
	if _, err := strconv.ParseUint(strings.TrimSpace(t.value), 10, 31); err != nil {
		return fault.With(fault.New(fault.Invalid, "%q is no number of applications", short(t.value)), "", "write it like 10")
	}
	return nil
}

// jitters are the keys that RefreshJitter reads.
func jitters() []Known {
	return []Known{
		{Map: hub.SettingsMap, Key: refreshJitter, About: "How long refreshes that a change of a repository causes are delayed at most, at random; at most 1h.", Sample: "30s", Used: true, read: (*set).readDuration},
		{Map: hub.SettingsMap, Key: refreshThreshold, About: "The number of applications of the repository up to which refreshes are not delayed.", Sample: "10", Used: true, read: (*set).readThreshold},
	}
}
