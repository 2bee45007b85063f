//go:build nodev

package main

import (
	"errors"

	"github.com/spf13/cobra"
)

// newDevCommand returns a command whose error names the builds that have dev. The image
// leaves dev out, because it includes a whole etcd.
func newDevCommand(process) *cobra.Command {
	return &cobra.Command{
		Use:                "dev",
		Short:              "Not in this build, which has no embedded etcd",
		Hidden:             true,
		DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error {
			return errors.New("this cachenode, like the one in the image, was built without the etcd that 'dev' runs (build tag nodev): use the binary of a release, or `go run ./cmd/cachenode dev`")
		},
	}
}
