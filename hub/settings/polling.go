package settings

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

// The keys of the polling interval of repositories (CMPR-03).
const (
	pollEvery  = "timeout.reconciliation"
	pollJitter = "timeout.reconciliation.jitter"
)

const (
	leastPoll   = 30 * time.Second // what a tenant asks for below that, it gets this
	mostPoll    = 24 * time.Hour   // also where it is zero
	usualJitter = 60 * time.Second
)

// PollKeys are the keys that Polling reads, all of the map hub.SettingsMap.
func PollKeys() []string { return []string{pollEvery, pollJitter} }

// Polling is the polling interval of repositories, and how much at random is
// added; ok is false if the tenant has not set it.
func Polling(values map[string]string) (every, jitter time.Duration, ok bool) {
	text, set := values[pollEvery]
	if !set || strings.TrimSpace(text) == "" {
		return 0, 0, false
	}
	every, err := duration(text)
	if err != nil {
		return 0, 0, false
	}
	jitter = usualJitter
	if j, err := duration(values[pollJitter]); err == nil && strings.TrimSpace(values[pollJitter]) != "" {
		jitter = min(j, mostPoll)
	}
	if every == 0 {
		return mostPoll, jitter, true
	}
	return min(max(every, leastPoll), mostPoll), jitter, true
}

func duration(text string) (time.Duration, error) {
	text = strings.TrimSpace(text)
	if text == "" || text == "0" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, fault.With(fault.New(fault.Invalid, "%q is no duration", short(text)), "", "write it like 120s or 3m, or 0 for none")
	}
	return d, nil
}

func (s *set) readDuration(_ string, t text) error {
	_, err := duration(t.value)
	return err
}

func (s *set) readSeconds(_ string, t text) error {
	_, err := duration(strings.TrimSpace(t.value) + "s")
	return err
}

func (s *set) readSwitch(_ string, t text) error {
	_, err := t.truth()
	return err
}

// mostWaveDelay is the longest pause between two waves, in seconds.
const mostWaveDelay = 60

func (s *set) readWaveDelay(_ string, t text) error {
	if strings.TrimSpace(t.value) == "" {
		return nil
	}
	n, err := strconv.ParseUint(strings.TrimSpace(t.value), 10, 32)
	if err != nil || n > mostWaveDelay {
		return fault.With(fault.New(fault.Invalid, "%q is no number of seconds from 0 to %d", short(t.value), mostWaveDelay), "", "write it like 2")
	}
	s.out.WaveDelaySeconds = proto.Uint32(uint32(n))
	return nil
}

// eventReasons are those of Argo CD, of which OperationStarted,
// OperationCompleted and ResourceUpdated are written.
func eventReasons() []string {
	return []string{"all", "none", "StatusRefreshed", "ResourceCreated", "ResourceUpdated", "ResourceDeleted", "ResourceActionRan", "OperationStarted", "OperationCompleted"}
}

func (s *set) readEvents(_ string, t text) error {
	reasons := t.commas()
	for _, r := range reasons {
		if err := (node{}).among(r, eventReasons()...); err != nil {
			return err
		}
	}
	if slices.Contains(reasons, "none") {
		reasons = nil
	}
	s.out.EventReasons = reasons
	return nil
}

// timers are the keys about polling and reporting.
func timers() []Known {
	return []Known{
		{Map: hub.SettingsMap, Key: pollEvery, About: "Polling interval of a repository, at least 30s; 0 means webhooks and one poll a day.", Sample: "120s", Used: true, read: (*set).readDuration},
		{Map: hub.SettingsMap, Key: pollJitter, About: "What is added to timeout.reconciliation at random, at most.", Sample: "60s", Used: true, read: (*set).readDuration},
		{Map: hub.SettingsMap, Key: "timeout.hard.reconciliation", About: "How often everything is rendered again. It has no effect: " + noHard + ".", Sample: "0s", Instead: noHard, read: (*set).readDuration},
		{Map: paramsMap, Key: "controller.sync.wave.delay.seconds", About: "Pause between two waves of a sync, in seconds, at most 60; the option WaveDelay of an application wins. Without it: none, or what the agent was started with.", Sample: "2", Used: true, read: (*set).readWaveDelay},
		{Map: paramsMap, Key: "controller.enable.k8s.event", About: "Reasons of the Kubernetes events that agents write into the namespaces of applications, separated by commas: OperationStarted, OperationCompleted, ResourceUpdated, or all. Without it: none.", Sample: "OperationCompleted", Used: true, read: (*set).readEvents},
		{Map: paramsMap, Key: "controller.repo.error.grace.period.seconds", About: "How long a repository may be unreachable until its applications report it. It has no effect: " + noGrace + ".", Sample: "180", Instead: noGrace, read: (*set).readSeconds},
		{Map: paramsMap, Key: "controller.resource.health.persist", About: "Whether the health of objects is stored in the Application. It has no effect: " + noPersist + ".", Sample: "false", Instead: noPersist, read: (*set).readSwitch},
	}
}

const (
	paramsMap = "argocd-cmd-params-cm"
	noHard    = "every input of a render is recorded and checked, so an outdated result is never used; a hard refresh renders again"
	noGrace   = "180 seconds always, and what was fetched stays in force even after that"
	noPersist = "the health of objects is put into the Application whenever it is read"
)
