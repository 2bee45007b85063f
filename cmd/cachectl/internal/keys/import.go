package keys

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/cmd/cachectl/internal/cli"
)

// Bounds of a transaction: etcd accepts 128 changes and 1.5 MiB by default.
const (
	importKeys  = 100
	importBytes = 512 << 10
)

// importPage is the number of keys of the cluster in one list.
const importPage = 500

type importer struct {
	s      *cli.Session
	c      *client.Client
	dryRun bool
	batch  int // keys in a transaction

	conditions []client.Condition
	ops        []client.Op
	size       int // bytes of the transaction

	done   importJSON
	leases int64 // keys that had a lease
}

type importJSON struct {
	DryRun    bool  `json:"dry_run,omitempty"`
	Created   int64 `json:"created"`
	Changed   int64 `json:"changed"`
	Unchanged int64 `json:"unchanged"`
	cli.PositionJSON
}

func newImportCommand(s *cli.Session) *cobra.Command {
	i := &importer{s: s}
	cmd := &cobra.Command{
		Use:        "import FILE",
		SuggestFor: []string{"load", "restore"},
		Short:      "Write the keys of an export",
		Long: `import writes the keys of a cachectl export; FILE - is standard input. It skips keys
that already have their value, so a second run continues an import that ended early.
Keys that are not in the export stay.

Keys are written in transactions of at most --batch keys and 512 KiB. A transaction
fails if another client has changed one of its keys since the import read it; the
import then ends with exit code 5. The keys get new revisions, and no leases.

FILE is checked completely before anything is written; standard input is not.`,
		Example: `  cachectl import demo.jsonl --dry-run
  cachectl export --prefix /demo/ --context old | cachectl import - --context new`,
		Args: cli.Takes("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if i.batch < 1 {
				return cli.Usage(cmd, fmt.Errorf("--batch %d: at least 1", i.batch))
			}
			in := s.Process.Stdin
			if args[0] != "-" {
				f, err := os.Open(args[0])
				if err != nil {
					return fmt.Errorf("import: %w", err)
				}
				defer f.Close()
				if err := rewound(f); err != nil {
					return fmt.Errorf("import %s: %w", args[0], err)
				}
				in = f
			}
			return s.With(cmd, func(ctx context.Context, c *client.Client) error {
				i.c = c
				return i.run(ctx, cli.Input(ctx, in))
			})
		},
	}
	cmd.Flags().BoolVar(&i.dryRun, "dry-run", false, "print the changes, and write nothing")
	cmd.Flags().IntVar(&i.batch, "batch", importKeys, "maximum number of keys in a transaction; etcd's --max-txn-ops bounds it")
	return cmd
}

// rewound checks the export in a file, and rewinds the file. A pipe cannot be read twice, so
// it is not checked.
func rewound(f *os.File) error {
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return err //nolint:wrapcheck // it names the file
	}
	if err := checkExport(f); err != nil {
		return err
	}
	_, err := f.Seek(0, io.SeekStart)
	return err //nolint:wrapcheck // it names the file
}

func (i *importer) run(ctx context.Context, in io.Reader) error {
	err := i.merge(ctx, in)
	if err == nil {
		err = i.flush(ctx)
	}
	if i.leases > 0 {
		i.s.Advise(fmt.Sprintf("keys that had a lease and have none after the import: %d", i.leases))
	}
	var conflict *client.ConflictError
	switch {
	case errors.As(err, &conflict):
		return &cli.UnmetError{Err: fmt.Errorf("import: %w; run it again", err)}
	case err != nil && i.done.Created+i.done.Changed > 0:
		return fmt.Errorf("import: %w; run it again to continue after %d keys", err, i.done.Created+i.done.Changed+i.done.Unchanged)
	case err != nil:
		return fmt.Errorf("import: %w", err)
	}
	i.done.DryRun = i.dryRun
	if i.s.Structured() {
		return i.s.Document(i.done)
	}
	verb := ""
	if i.dryRun {
		verb = "would be "
	}
	return cli.Lines(i.s.Process.Stdout, fmt.Sprintf("%s%d created, %d changed, %d unchanged", verb, i.done.Created, i.done.Changed, i.done.Unchanged))
}

// merge iterates over the keys of the export and of the cluster, both in the order of keys,
// and writes the keys that differ.
func (i *importer) merge(ctx context.Context, in io.Reader) error {
	export, err := readExport(in)
	if err != nil {
		return err
	}
	next, stop := iter.Pull2(i.keys(ctx, export.rng))
	defer stop()
	there, err, more := next()
	p := cli.NewProgress(i.s.Process.Stderr)
	for {
		kv, ok, failed := export.next()
		if failed != nil || !ok {
			return failed
		}
		p.Tell(time.Now(), "%d keys read, %d created, %d changed", export.keys, i.done.Created, i.done.Changed)
		for more && err == nil && bytes.Compare(there.Key, kv.Key) < 0 {
			there, err, more = next()
		}
		if err != nil {
			return err
		}
		var at int64 // 0: the key does not exist
		if more && bytes.Equal(there.Key, kv.Key) {
			if bytes.Equal(there.Value, kv.Value) {
				i.done.Unchanged++
				continue
			}
			at = there.ModRevision
		}
		if err := i.write(ctx, kv, at); err != nil {
			return err
		}
	}
}

// keys yields the keys of a range of the cluster, each page at a new revision: an import may
// take longer than old revisions are kept.
func (i *importer) keys(ctx context.Context, rng client.Range) iter.Seq2[client.KeyValue, error] {
	return func(yield func(client.KeyValue, error) bool) {
		for n := importPage; n == importPage && (rng.End == "" || rng.Start < rng.End); {
			n = 0
			for kv, err := range i.c.List(ctx, rng, client.Limit(importPage)).All() {
				if !yield(kv, err) || err != nil {
					return
				}
				n++
				rng.Start = string(kv.Key) + "\x00"
			}
		}
	}
}

// write adds a key to the transaction; at is its mod revision; 0: it does not exist.
func (i *importer) write(ctx context.Context, kv client.KeyValue, at int64) error {
	size := 3*len(kv.Key) + len(kv.Value)
	if len(i.ops) == i.batch || len(i.ops) > 0 && i.size+size > importBytes {
		if err := i.flush(ctx); err != nil {
			return err
		}
	}
	i.conditions = append(i.conditions, client.Condition{Key: string(kv.Key), ModRevision: at})
	i.ops = append(i.ops, client.Op{Key: string(kv.Key), Value: kv.Value})
	i.size += size
	if kv.Lease != 0 {
		i.leases++
	}
	return nil
}

// flush commits the transaction.
func (i *importer) flush(ctx context.Context) error {
	if len(i.ops) == 0 {
		return nil
	}
	if !i.dryRun {
		at, err := i.c.Txn(ctx, i.conditions, i.ops...)
		if err != nil {
			return err //nolint:wrapcheck // says what it did
		}
		i.done.PositionJSON = cli.PositionOf(at)
	}
	for _, c := range i.conditions {
		if c.ModRevision == 0 {
			i.done.Created++
		} else {
			i.done.Changed++
		}
	}
	i.conditions, i.ops, i.size = nil, nil, 0
	return nil
}
