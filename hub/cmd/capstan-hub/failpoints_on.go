//go:build failpoints

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/capstan-cd/capstan/shared/failpoint"
)

// hidden are the commands of a binary that is built for fault tests.
func hidden() []*cobra.Command {
	return []*cobra.Command{{
		Use: "failpoints", Short: "Print the points at which a test can stop this process", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, p := range failpoint.Of("hub") {
				if _, err := fmt.Fprintln(cmd.OutOrStdout(), p); err != nil {
					return err
				}
			}
			return nil
		},
	}}
}
