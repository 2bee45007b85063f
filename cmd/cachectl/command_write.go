package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/shardwatch/shardwatch/client"
)

func newPutCommand(s *session) *cobra.Command {
	return &cobra.Command{
		Use:        "put KEY VALUE",
		SuggestFor: []string{"set", "write"},
		Short:      "Write a key",
		Long: `put writes a key to etcd and prints the revision of the change. VALUE - is read
from standard input, to its end.`,
		Example: `  cachectl put /demo/a hello
  cachectl put /demo/config - < config.json`,
		Args: takes("KEY", "VALUE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] == "" {
				return &usageError{cmd.CommandPath(), errors.New("KEY is empty")}
			}
			value := []byte(args[1])
			if args[1] == "-" {
				var err error
				if value, err = io.ReadAll(s.p.stdin); err != nil {
					return fmt.Errorf("read the value: %w", err)
				}
			}
			return s.within(cmd, func(ctx context.Context, c *client.Client) error {
				at, err := c.Put(ctx, args[0], value)
				if err != nil {
					return err //nolint:wrapcheck // says what it did
				}
				return s.written(at, fmt.Sprintf("revision %d", at.Revision), nil)
			})
		},
	}
}

func newDelCommand(s *session) *cobra.Command {
	var prefix bool
	cmd := &cobra.Command{
		Use:        "del KEY",
		SuggestFor: []string{"delete", "remove", "rm"},
		Short:      "Delete a key, or all with a prefix",
		Long:       `del deletes in etcd, all in one revision, and prints how many keys there were.`,
		Example: `  cachectl del /demo/a
  cachectl del --prefix /demo/`,
		Args: takes("KEY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			rng, err := span(args[0], prefix, "")
			if err != nil {
				return &usageError{cmd.CommandPath(), err}
			}
			return s.within(cmd, func(ctx context.Context, c *client.Client) error {
				at, n, err := c.Delete(ctx, rng)
				if err != nil {
					return err //nolint:wrapcheck // says what it did
				}
				if n == 0 && !prefix {
					s.advise(isPrefix(ctx, c, "del", args[0]))
				}
				return s.written(at, fmt.Sprintf("%d deleted, revision %d", n, at.Revision), &n)
			})
		},
	}
	cmd.Flags().BoolVar(&prefix, "prefix", false, "delete all keys that begin with KEY")
	return cmd
}

func (s *session) written(at client.Position, text string, deleted *int64) error {
	if s.json() {
		return writeJSON(s.p.stdout, struct {
			positionJSON
			Deleted *int64 `json:"deleted,omitempty"`
		}{positionOf(at), deleted})
	}
	if _, err := fmt.Fprintln(s.p.stdout, text); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}
