package settings

import (
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

// SessionKey of hub.SettingsMap says how long people stay signed in (AUTH-05).
const SessionKey = "users.session.duration"

const (
	usualSession = 24 * time.Hour
	leastSession = time.Minute
	mostSession  = 366 * 24 * time.Hour
)

// SessionDuration is how long a session lasts. Values are those of
// hub.SettingsMap; what is not set, or 0, is 24 hours.
func SessionDuration(values map[string]string) time.Duration {
	d, err := duration(values[SessionKey])
	if err != nil || d == 0 {
		return usualSession
	}
	return min(max(d, leastSession), mostSession)
}

func (s *set) readSession(_ string, t text) error {
	d, err := duration(t.value)
	if err == nil && d != 0 && (d < leastSession || d > mostSession) {
		err = fault.With(fault.New(fault.Invalid, "a session of %s is too short or too long", d), "", "write a time from 1m to 8784h, or 0 for 24h")
	}
	return err
}

// sessions are the keys about those who are signed in.
func sessions() []Known {
	return []Known{{
		Map: hub.SettingsMap, Key: SessionKey, About: "How long a session lasts that begins from now on; one that is unused for a third of it is over.", Sample: "24h",
		Used: true, read: (*set).readSession,
	}}
}
