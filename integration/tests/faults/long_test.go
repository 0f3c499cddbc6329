//go:build soak

package faults_test

// soak is whether the long forms of tests run.
const soak = true
