package lifecycle

import (
	"log/slog"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"github.com/capstan-cd/capstan/shared/logkey"
)

// BoundMemory sets the soft memory limit of the runtime to a share, above 0 and
// at most 1, of the limit of the process's control group. Above that limit the
// kernel kills the process. Without such a group the limit is the share alone of
// the machine's memory; 0: there is none. GOMEMLIMIT in the environment takes
// precedence.
func BoundMemory(share, alone float64, log *slog.Logger) {
	boundMemory(memlimit.FromCgroup, memlimit.FromSystem, share, alone, log)
}

func boundMemory(group, machine memlimit.Provider, share, alone float64, log *slog.Logger) {
	allowed := memlimit.ApplyRatio(group, share)
	if alone > 0 {
		allowed = memlimit.ApplyFallback(allowed, memlimit.ApplyRatio(machine, alone))
	}
	if _, err := memlimit.Set(memlimit.WithProvider(allowed), memlimit.WithRatio(1)); err != nil {
		log.Info("memory is not bounded by what the control group may use", logkey.Error, err)
	}
}
