// Package replicas_test runs several hubs over one database behind plain TCP
// balancers, with a real agent, a real API server and real Git, and stops,
// kills and freezes them while they work.
package replicas_test
