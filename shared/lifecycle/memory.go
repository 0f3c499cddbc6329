package lifecycle

import (
	"log/slog"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"github.com/capstan-cd/capstan/shared/logkey"
)

// BoundMemory has the process collect garbage in time to stay below a part,
// above 0 and at most 1, of the memory that its control group may use: beyond
// all of it the kernel kills the process. GOMEMLIMIT in the environment goes
// before. Without such a group nothing is bounded.
func BoundMemory(part float64, log *slog.Logger) { boundMemory(memlimit.FromCgroup, part, log) }

func boundMemory(allowed memlimit.Provider, part float64, log *slog.Logger) {
	if _, err := memlimit.Set(memlimit.WithProvider(allowed), memlimit.WithRatio(part)); err != nil {
		log.Info("memory is not bounded by what the control group may use", logkey.Error, err)
	}
}
