package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/admin"
	"github.com/shardwatch/shardwatch/cmd/cachectl/internal/cli"
	"github.com/shardwatch/shardwatch/cmd/cachectl/internal/document"
)

func newVerifyCommand(s *cli.Session) *cobra.Command {
	var r admin.VerifyRequest
	var ids []uint
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Compare the copies of shards with each other, and with etcd",
		Long: `verify compares all copies of each shard at one revision, by digests that their
nodes compute from the bytes in memory, and prints a line for each shard. With
--etcd, it also compares one copy of each shard with etcd: this reads all keys of these
shards from etcd, at most 16 MiB a second, with one of the cluster's permits. If etcd's
authentication is on, this needs a --user that may read all keys.

If copies differ, verify names the node with the wrong copy, and the first differing
keys that --user may read. It decides by etcd's values of these keys, or by the majority
of the copies when etcd does not answer. It never prints values. The node with the wrong
copy stops serving the shard, reloads it from a good copy, and then serves it again; run
verify again to check.

Nodes do the same in the background: with each other every --verify-interval, with etcd
every --verify-etcd-interval. Each node uses at most 5 % of one CPU, so the comparison
of many gigabytes is slow; --timeout bounds only the connection.

Exit code 1: something differs, or a copy could not be compared.`,
		Example: `  cachectl verify
  cachectl verify --shard 7 --shard 9 --etcd
  cachectl verify -o json`,
		Args: cli.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, id := range ids {
				if id == 0 {
					return cli.Usage(cmd, errors.New("--shard 0: shards are numbered from 1; see cachectl shards"))
				}
				r.Shards = append(r.Shards, uint64(id))
			}
			return s.With(cmd, func(ctx context.Context, c *client.Client) error { return verify(ctx, s, c, r) })
		},
	}
	cmd.Flags().UintSliceVar(&ids, "shard", nil, "compare this shard only; repeatable")
	cmd.Flags().BoolVar(&r.Etcd, "etcd", false, "also compare with etcd")
	return cmd
}

type verifiedJSON struct {
	Shard       uint64             `json:"shard"`
	Revision    int64              `json:"revision"`
	Equal       bool               `json:"equal"`
	Etcd        bool               `json:"etcd"`
	EtcdError   string             `json:"etcd_error,omitempty"`
	Copies      []verifiedCopyJSON `json:"copies"`
	Differences []differenceJSON   `json:"differences,omitempty"`
	More        bool               `json:"more_differ,omitempty"`
}

type verifiedCopyJSON struct {
	Node   string `json:"node"`
	Keys   int64  `json:"keys"`
	Bytes  int64  `json:"bytes"`
	Digest string `json:"digest,omitempty"`
	Wrong  bool   `json:"wrong,omitempty"`
	Error  string `json:"error,omitempty"`
}

type differenceJSON struct {
	Key         string `json:"key"`
	Node        string `json:"node,omitempty"`
	ModRevision int64  `json:"mod_revision"`
}

// errDiffers reports that verify has found a difference or a copy that it could not compare.
var errDiffers = errors.New("copies differ, or could not be compared")

func verify(ctx context.Context, s *cli.Session, c *client.Client, r admin.VerifyRequest) error {
	out := []verifiedJSON{}
	done, bad := 0, 0
	if !s.Structured() {
		if _, err := fmt.Fprintf(s.Process.Stdout, "%-8s %-12s %-10s %-10s %s\n", "SHARD", "REVISION", "KEYS", "SIZE", "RESULT"); err != nil {
			return fmt.Errorf("write: %w", err)
		}
	}
	err := admin.New(c).Verify(ctx, r, func(v admin.VerifiedShard) error {
		if done++; !sound(v) || r.Etcd && !v.Etcd {
			bad++
		}
		if s.Structured() {
			out = append(out, verifiedOf(v))
			return nil
		}
		return printVerified(s, v, r.Etcd)
	})
	if done > 0 && errors.Is(err, client.ErrUnavailable) { // a node had answered
		return fmt.Errorf("the node that compares went away before all shards were done; run verify again: %v", err) //nolint:errorlint // see above
	}
	if err != nil {
		return err //nolint:wrapcheck // says what it did
	}
	if s.Structured() {
		if err := s.Document(struct {
			Shards []verifiedJSON `json:"shards"`
		}{out}); err != nil {
			return err
		}
	}
	if bad > 0 {
		return fmt.Errorf("%d of the shards: %w", bad, errDiffers)
	}
	return nil
}

// sound reports whether all copies were compared and are equal.
func sound(v admin.VerifiedShard) bool {
	return !v.Differs() && !slices.ContainsFunc(v.Copies, func(c admin.VerifiedCopy) bool { return c.Error != "" })
}

func verifiedOf(v admin.VerifiedShard) verifiedJSON {
	j := verifiedJSON{Shard: v.Shard, Revision: v.Revision, Equal: sound(v), Etcd: v.Etcd, EtcdError: v.EtcdError, More: v.More, Copies: []verifiedCopyJSON{}}
	for _, c := range v.Copies {
		digest := ""
		if c.Error == "" {
			digest = fmt.Sprintf("%016x", c.Digest)
		}
		j.Copies = append(j.Copies, verifiedCopyJSON{c.Node, c.Keys, c.Bytes, digest, c.Wrong, c.Error})
	}
	for _, d := range v.Differences {
		j.Differences = append(j.Differences, differenceJSON{document.Text(d.Key), d.Node, d.ModRevision})
	}
	return j
}

// printVerified prints a shard as soon as it is compared, to show the progress.
func printVerified(s *cli.Session, v admin.VerifiedShard, etcd bool) error {
	var keys, size int64
	var compared, lines []string
	for _, c := range v.Copies {
		switch {
		case c.Error != "":
			lines = append(lines, fmt.Sprintf("the copy at %s was not compared: %s", c.Node, c.Error))
		case c.Wrong:
			lines = append(lines, fmt.Sprintf("the copy at %s is wrong: it is reloaded", c.Node))
		}
		if c.Error == "" {
			keys, size = max(keys, c.Keys), max(size, c.Bytes)
			compared = append(compared, c.Node)
		}
	}
	result := "equal on " + strings.Join(compared, ", ")
	switch {
	case v.Differs():
		result = "DIFFERS"
	case len(compared) == 0:
		result = "not compared"
	case len(compared) == 1:
		result = "one copy, on " + compared[0]
	}
	if v.Etcd && !v.Differs() {
		result += ", and etcd"
	}
	if etcd && !v.Etcd {
		lines = append(lines, "not compared with etcd: "+v.EtcdError)
	}
	for _, d := range v.Differences {
		what := fmt.Sprintf("differs (as of revision %d)", d.ModRevision)
		if d.ModRevision == 0 {
			what = "is missing"
		}
		where := "some copy"
		if d.Node != "" {
			where = d.Node
		}
		lines = append(lines, fmt.Sprintf("%s: %s %s", where, document.Text(d.Key), what))
	}
	if v.More {
		lines = append(lines, "more keys differ")
	}
	text := fmt.Sprintf("%-8d %-12d %-10d %-10s %s\n", v.Shard, v.Revision, keys, cli.BytesOf(size), result)
	for _, l := range lines {
		text += "         " + l + "\n"
	}
	if _, err := fmt.Fprint(s.Process.Stdout, text); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}
