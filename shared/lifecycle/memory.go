package lifecycle

import (
	"log/slog"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"github.com/capstan-cd/capstan/shared/logkey"
)

// BoundMemory has the process collect garbage in time to stay below a part,
// above 0 and at most 1, of the memory that its control group may use: beyond
// all of it the kernel kills the process. Without such a group the bound is the
// part alone, above 0 and at most 1, of the machine's memory; 0: there is none.
// GOMEMLIMIT in the environment goes before.
func BoundMemory(part, alone float64, log *slog.Logger) {
	boundMemory(memlimit.FromCgroup, memlimit.FromSystem, part, alone, log)
}

func boundMemory(group, machine memlimit.Provider, part, alone float64, log *slog.Logger) {
	allowed := memlimit.ApplyRatio(group, part)
	if alone > 0 {
		allowed = memlimit.ApplyFallback(allowed, memlimit.ApplyRatio(machine, alone))
	}
	if _, err := memlimit.Set(memlimit.WithProvider(allowed), memlimit.WithRatio(1)); err != nil {
		log.Info("memory is not bounded by what the control group may use", logkey.Error, err)
	}
}
