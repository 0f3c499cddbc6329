package main

import (
	"strings"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/agent/daemon"
)

func TestWaveDelay(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text  string
		given bool
		want  time.Duration
		why   string
	}{
		"ENG-13 none is asked for":           {"", false, 0, ""},
		"ENG-13 the environment, in seconds": {"2", false, 2 * time.Second, ""},
		"ENG-13 a flag wins":                 {"2", true, 0, ""},
		"ENG-13 what is no number":           {"2s", false, 0, "not a number of seconds"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got daemon.Config
			err := waveDelay(&got, c.text, c.given)
			if got.WaveDelay != c.want || (err != nil) != (c.why != "") || err != nil && !strings.Contains(err.Error(), c.why) {
				t.Errorf("%s, %v", got.WaveDelay, err)
			}
		})
	}
}
