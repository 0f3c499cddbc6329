// Package process runs programs of this machine beside a test: the processes,
// their folders and their ports. Every server of the other rigs starts with
// it. It never asks for a fixed port and never leaves anything behind: what
// it starts ends with the process that started it, even if that is killed.
// It also reads what processes use: memory, CPU time, children.
//
// Everything listens on 127.0.0.1 only. Logs go to files, and every error
// that comes from a started process names its log file and shows its end.
package process
