package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/shardwatch/shardwatch/internal/version"
)

func newVersionCommand(s *session) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print cachectl's version",
		Args:  takes(),
		RunE: func(*cobra.Command, []string) error {
			if s.structured() {
				return s.document(struct {
					Version string `json:"version"`
				}{version.String()})
			}
			if _, err := fmt.Fprintln(s.p.stdout, "cachectl "+version.String()); err != nil {
				return fmt.Errorf("write: %w", err)
			}
			return nil
		},
	}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
