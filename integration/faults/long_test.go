//go:build soak

package faults_test

const soak = true
