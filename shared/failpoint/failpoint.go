// Package failpoint lets tests stop a process at a named step: it is killed,
// panics, sleeps, waits or gets an error exactly there. Releases do not contain
// it: without the build tag "failpoints" every call is an empty function that
// the compiler removes. Hub and agent call it with the constants of this
// package at each step where a crash could leave inconsistent state. The fault
// tests arm points through the environment. A point does nothing unless it is
// armed, and every hit of every point can be counted.
//
// Two variables of the environment arm points and are read at the first hit:
//
//	CAPSTAN_FAILPOINTS      hub.dispatch.write.after-rows=exit:1,agent.apply.sent=sleep(200ms):*
//	CAPSTAN_FAILPOINTS_FILE a file with such terms, one a line; it is read
//	                        again whenever it has changed, so that a running
//	                        process can be armed
//	CAPSTAN_FAILPOINTS_LOG  a file that every hit is appended to
//
// A term is POINT=ACTION or POINT=ACTION:N. The action happens at the N-th hit
// in this process since the point was armed (1 if it is left out), or at every
// hit with N "*". Actions:
// exit (SIGKILL to itself), panic, error, sleep(DURATION), pause (until the
// file no longer names the point), off.
package failpoint

// The steps of the hub.
const (
	HubCatalogWritten      = "hub.catalog.written"           // an API write is complete, its audit record is not there yet
	HubCatalogCommitted    = "hub.catalog.committed"         // an API write is committed, but not reported
	HubStoreBeforeFlush    = "hub.store.before-flush"        // a tenant's transaction has run; its work and feed rows are missing
	HubStoreBeforeCommit   = "hub.store.before-commit"       // ... and is about to be committed
	HubStoreAfterCommit    = "hub.store.after-commit"        // ... is committed, the caller is not notified
	HubSourceListed        = "hub.source.before-fetched"     // refs are fetched, but not stored
	HubSourceFetched       = "hub.source.after-fetched"      // refs are stored
	HubRenderDone          = "hub.render.before-store"       // snapshots are rendered, but not stored
	HubRenderStored        = "hub.render.after-store"        // snapshots are stored, the work item is not finished
	HubObjectsBefore       = "hub.dispatch.before-objects"   // before encrypted objects are stored
	HubSnapshotsAfter      = "hub.dispatch.after-snapshots"  // after snapshots were
	HubRowsBefore          = "hub.dispatch.before-rows"      // before rows of the desired log are appended
	HubRowsAfter           = "hub.dispatch.after-rows"       // after they were
	HubTombstonesAfter     = "hub.dispatch.after-tombstones" // after tombstones were opened or closed
	HubOperationsBefore    = "hub.dispatch.before-operations"
	HubOperationsAfter     = "hub.dispatch.after-operations"
	HubTargetsAfter        = "hub.dispatch.after-targets"
	HubWakeBefore          = "hub.dispatch.before-wake" // committed, the agent's stream was not woken
	HubOrderBefore         = "hub.dispatch.before-order"
	HubOrderAfter          = "hub.dispatch.after-order" // rows were sent, no acknowledgement was received
	HubAckBefore           = "hub.dispatch.before-ack"  // an acknowledgement was received, but not stored
	HubAckAfter            = "hub.dispatch.after-ack"
	HubBlobsBefore         = "hub.dispatch.before-blobs"
	HubReportBefore        = "hub.observe.before-report" // a report was received, but not stored
	HubReportAfter         = "hub.observe.after-report"  // it is stored, but not acknowledged
	HubOutcomeBefore       = "hub.dispatch.before-outcome"
	HubHistoryBefore       = "hub.dispatch.before-history"
	HubHistoryAfter        = "hub.dispatch.after-history"
	HubOutcomeAfter        = "hub.dispatch.after-outcome" // processed, the work item is not finished
	HubRemoveBefore        = "hub.dispatch.before-remove" // a deleted application is about to be removed
	HubRemoveAfter         = "hub.dispatch.after-remove"
	HubIdempotencyBegun    = "hub.api.idempotency-begun"    // the key is stored, the request is not executed
	HubIdempotencyAnswered = "hub.api.idempotency-answered" // it is executed, its response is not stored
)

// The steps of the agent.
const (
	AgentBatchBefore   = "agent.link.before-batch" // rows were received, but not stored
	AgentBatchAfter    = "agent.link.after-batch"  // rows are stored, nothing is acknowledged
	AgentAckAfter      = "agent.link.after-ack"
	AgentReportBefore  = "agent.link.before-report"
	AgentReportAfter   = "agent.link.after-report" // a report was sent, no acknowledgement was received
	AgentReportAcked   = "agent.link.report-acked" // ... it was received, but not processed
	AgentCommitBefore  = "agent.inventory.before-commit"
	AgentCommitAfter   = "agent.inventory.after-commit"
	AgentBlobsBefore   = "agent.inventory.before-blobs"
	AgentSecretBefore  = "agent.secret.before-write"
	AgentSecretAfter   = "agent.secret.after-write"
	AgentLeaseAfter    = "agent.lease.after-renew"
	AgentPlanAfter     = "agent.apply.after-plan"
	AgentSendBefore    = "agent.apply.before-send"
	AgentSendAfter     = "agent.apply.after-send"     // the cluster has it, but it is not recorded
	AgentRecordAfter   = "agent.apply.after-record"   // it is recorded in memory
	AgentNamespace     = "agent.apply.namespace-made" // the namespace exists
	AgentDeleteBefore  = "agent.apply.before-delete"
	AgentDeleteAfter   = "agent.apply.after-delete"
	AgentHookBefore    = "agent.apply.before-hook" // its intent is stored
	AgentHookAfter     = "agent.apply.after-hook"  // it exists, but is not recorded
	AgentHookRemoved   = "agent.apply.hook-removed"
	AgentHealBefore    = "agent.apply.before-heal"
	AgentLedgerBefore  = "agent.apply.before-ledger"
	AgentLedgerAfter   = "agent.apply.after-ledger"
	AgentResultBefore  = "agent.apply.before-result" // the operation has ended, its result is not stored
	AgentResultAfter   = "agent.apply.after-result"  // it is stored, but not reported to the hub
	AgentDeliveredLate = "agent.apply.delivered"     // the hub has it, the agent has not recorded that
	WaveStepBefore     = "agent.wave.before-step"
	WaveStepAfter      = "agent.wave.between-waves"
	WaveHookRunning    = "agent.wave.during-hook"
	WavePruned         = "agent.wave.during-prune"
	WaveCleanUp        = "agent.wave.before-clean-up"
)
