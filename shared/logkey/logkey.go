// Package logkey holds the names under which log lines carry values, so that
// one thing has one name in every log of hub and agent. It holds names only.
// Everyone who logs uses it. No value logged under these keys is a secret.
package logkey

// The keys.
const (
	Address     = "address"
	Agent       = "agent"
	Application = "application"
	Attempt     = "attempt"
	Carrier     = "carrier"
	Cluster     = "cluster"
	Component   = "component"
	Count       = "count"
	Digest      = "digest"
	Duration    = "duration"
	Epoch       = "epoch"
	Error       = "error"
	File        = "file"
	Kind        = "kind"
	Lane        = "lane"
	Method      = "method"
	Name        = "name"
	Namespace   = "namespace"
	Object      = "object"
	Operation   = "operation"
	Phase       = "phase"
	Project     = "project"
	Reason      = "reason"
	Replica     = "replica"
	Repository  = "repository"
	Request     = "request"
	Revision    = "revision"
	Seq         = "seq"
	Session     = "session"
	Snapshot    = "snapshot"
	Stage       = "stage"
	Tenant      = "tenant"
	User        = "user"
	Version     = "version"
	Wait        = "wait"
)
