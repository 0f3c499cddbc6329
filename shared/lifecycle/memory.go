package lifecycle

import (
	"log/slog"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"github.com/capstan-cd/capstan/shared/logkey"
)

// BoundMemory sets the soft memory limit of the runtime to a share, above 0 and
// at most 1, of the limit of the process's control group. Above that limit the
// kernel kills the process. GOMEMLIMIT in the environment takes precedence.
// Without such a group nothing is set.
func BoundMemory(part float64, log *slog.Logger) { boundMemory(memlimit.FromCgroup, part, log) }

func boundMemory(allowed memlimit.Provider, part float64, log *slog.Logger) {
	if _, err := memlimit.Set(memlimit.WithProvider(allowed), memlimit.WithRatio(part)); err != nil {
		log.Info("memory is not bounded by what the control group may use", logkey.Error, err)
	}
}
