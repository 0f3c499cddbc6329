package apply

import (
	"testing"
	"time"
)

func TestWaveDelay(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		options []string
		set     time.Duration // by the tenant, or at the agent's start
		want    time.Duration
	}{
		"ENG-13 no delay is configured":                  {nil, 0, 0},
		"ENG-13 the tenant's setting":                    {[]string{"CreateNamespace=true"}, 2 * time.Second, 2 * time.Second},
		"ENG-13 the application's option wins":           {[]string{"WaveDelay=5s"}, 2 * time.Second, 5 * time.Second},
		"ENG-13 the application may want none":           {[]string{"WaveDelay=0s"}, 2 * time.Second, 0},
		"ENG-13 the operation's option takes precedence": {[]string{"WaveDelay=5s", "WaveDelay=1s"}, 0, time.Second},
		"ENG-13 a pause is a minute at most":             {[]string{"WaveDelay=2h"}, 0, time.Minute},
		"ENG-13 an option that is no time asks for none": {[]string{"WaveDelay=soon"}, 2 * time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := &Engine{Config: Config{Settings: func() Settings { return Settings{WaveDelay: c.set} }}}
			if got := e.waveDelay(c.options); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}
