//go:build !failpoints

package main

import "github.com/spf13/cobra"

// hidden are the commands of a binary that is built for fault tests. This one
// is for users and has none.
func hidden() []*cobra.Command { return nil }
