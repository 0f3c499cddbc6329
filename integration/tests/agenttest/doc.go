// Package agenttest tests whole agents against a real API server. The hub is
// its real link with a log, objects and reports in memory, so that a test
// writes rows and reads what the agent says of them.
package agenttest
