//go:build failpoints

package failpoint

import (
	"slices"
	"strings"
)

// Points lists all points, in order. A test compares it with the constants.
func Points() []string { return slices.Sorted(slices.Values(points)) }

// Of lists the points of one process: "hub" or "agent".
func Of(process string) []string {
	return slices.DeleteFunc(Points(), func(p string) bool { return !strings.HasPrefix(p, process+".") })
}

var points = []string{
	HubCatalogWritten,
	HubCatalogCommitted,
	HubStoreBeforeFlush,
	HubStoreBeforeCommit,
	HubStoreAfterCommit,
	HubSourceListed,
	HubSourceFetched,
	HubRenderDone,
	HubRenderStored,
	HubObjectsBefore,
	HubSnapshotsAfter,
	HubRowsBefore,
	HubRowsAfter,
	HubTombstonesAfter,
	HubOperationsBefore,
	HubOperationsAfter,
	HubTargetsAfter,
	HubWakeBefore,
	HubOrderBefore,
	HubOrderAfter,
	HubAckBefore,
	HubAckAfter,
	HubBlobsBefore,
	HubReportBefore,
	HubReportAfter,
	HubOutcomeBefore,
	HubHistoryBefore,
	HubHistoryAfter,
	HubOutcomeAfter,
	HubRemoveBefore,
	HubRemoveAfter,
	HubIdempotencyBegun,
	HubIdempotencyAnswered,
	AgentBatchBefore,
	AgentBatchAfter,
	AgentAckAfter,
	AgentReportBefore,
	AgentReportAfter,
	AgentReportAcked,
	AgentCommitBefore,
	AgentCommitAfter,
	AgentBlobsBefore,
	AgentSecretBefore,
	AgentSecretAfter,
	AgentLeaseAfter,
	AgentPlanAfter,
	AgentSendBefore,
	AgentSendAfter,
	AgentRecordAfter,
	AgentNamespace,
	AgentDeleteBefore,
	AgentDeleteAfter,
	AgentHookBefore,
	AgentHookAfter,
	AgentHookRemoved,
	AgentHealBefore,
	AgentLedgerBefore,
	AgentLedgerAfter,
	AgentResultBefore,
	AgentResultAfter,
	AgentDeliveredLate,
	WaveStepBefore,
	WaveStepAfter,
	WaveHookRunning,
	WavePruned,
	WaveCleanUp,
}
