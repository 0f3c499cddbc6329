// Package harness starts the real things that Capstan meets in the world, on
// this machine and without containers: Postgres, Kubernetes control planes
// and a Git server. It never fakes them, never asks for a fixed port, and
// never leaves anything behind: what it starts ends with the process that
// started it, even if that process is killed. Integration tests, the demo and
// the benchmarks call it; nothing that is shipped does.
//
// Everything listens on 127.0.0.1 only. Logs go to files, and every error
// that comes from a started process names its log file and shows its end.
package harness
