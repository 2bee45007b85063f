package changes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/admin"
	"github.com/shardwatch/shardwatch/cmd/cachectl/internal/cli"
	"github.com/shardwatch/shardwatch/cmd/cachectl/internal/document"
)

// goesOn is the end of the help of every command that changes the shard map.
const goesOn = `
--dry-run prints the plan and changes nothing. After the voters have agreed, the
change proceeds without the command, which waits for the end and reports the remaining
steps on standard error. Ctrl-C, or an explicit --timeout, ends the wait but not the
change (exit code 3); --wait=false does not wait. Repeat the command to wait again.
A concurrent change of the map is an error only with --if-version. -o json prints a
line for each step: planned, progress, done.`

// changing has the flags of commands that change the shard map.
type changing struct {
	s         *cli.Session
	options   admin.ChangeOptions
	wait      bool
	confirms  bool              // show the plan first, and ask for confirmation
	yes       bool              // do not ask
	spellings map[string]string // flags of the API's fields
	done      string            // the text at the end; "": depends on the plan

	// The last reported progress, and its time.
	left int
	told time.Time
}

// tellEvery is the interval of progress reports.
const tellEvery = time.Second

func newChanging(s *cli.Session, cmd *cobra.Command, spellings map[string]string) *changing {
	c := &changing{s: s, spellings: spellings}
	cmd.Long += "\n" + goesOn
	cmd.Flags().BoolVar(&c.options.DryRun, "dry-run", false, "print the plan, and change nothing")
	cmd.Flags().BoolVar(&c.options.Force, "force", false, "override a safety check; the refusal says if --force can override it")
	cmd.Flags().Uint64Var(&c.options.IfVersion, "if-version", 0, "fail unless the shard map has this version; 0: any")
	cmd.Flags().BoolVar(&c.wait, "wait", true, "wait until the change is complete")
	return c
}

func newSplitCommand(s *cli.Session) *cobra.Command {
	var at []string
	cmd := &cobra.Command{
		Use:   "split SHARD",
		Short: "Split a shard",
		Long: `split divides a shard into two parts with about the same number of keys, or at the keys
given with --at. The parts are new shards with new IDs. They inherit the shard's state,
window and watches: no data is fetched, and clients do not notice. The first part stays
on the shard's nodes; the planner places the others.`,
		Example: `  cachectl split 3
  cachectl split 3 --at /pods/m --at /pods/t --dry-run`,
		Args:              cli.Takes("SHARD"),
		ValidArgsFunction: cli.Completes(s, cli.ShardIDs),
	}
	c := newChanging(s, cmd, map[string]string{"at": "--at"})
	cmd.Flags().StringArrayVar(&at, "at", nil, "the first `key` of the next part; may be given several times")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		id, err := shardArg(cmd, args[0])
		if err != nil {
			return err
		}
		return c.run(cmd, admin.SplitShard{Shard: id, At: at})
	}
	return cmd
}

func newMergeCommand(s *cli.Session) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "merge SHARD SHARD",
		Short: "Merge two adjacent shards",
		Long: `merge makes one shard of two with adjacent ranges. If they are on different nodes, the
smaller one first moves to the nodes of the larger one. The merged shard has a new ID
and inherits the windows and watches of both.`,
		Example: `  cachectl merge 3 4
  cachectl merge 3 4 --dry-run`,
		Args:              cli.Takes("SHARD", "SHARD"),
		ValidArgsFunction: cli.Completes(s, cli.ShardIDs),
	}
	c := newChanging(s, cmd, nil)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		id, err := shardArg(cmd, args[0])
		if err != nil {
			return err
		}
		with, err := shardArg(cmd, args[1])
		if err != nil {
			return err
		}
		return c.run(cmd, admin.MergeShards{Shard: id, With: with})
	}
	return cmd
}

func newMoveCommand(s *cli.Session) *cobra.Command {
	var to []string
	var owner string
	cmd := &cobra.Command{
		Use:   "move SHARD --to NODE[,NODE...] | --owner NODE",
		Short: "Move a shard to other nodes",
		Long: `move places a shard on the nodes of --to; the first is its owner, which watches etcd.
With --owner it changes only the owner. A node without the shard fetches it from a node
that has it, and takes over when its copy is complete.

The shard is then pinned: it stays there until the next move or cachectl rebalance.
While a pinned node is away, another node replaces it.`,
		Example: `  cachectl move 3 --to node-2,node-4
  cachectl move 3 --owner node-2 --dry-run`,
		Args:              cli.Takes("SHARD"),
		ValidArgsFunction: cli.Completes(s, cli.ShardIDs),
	}
	c := newChanging(s, cmd, map[string]string{"to": "--to", "owner": "--owner"})
	cmd.Flags().StringSliceVar(&to, "to", nil, "the shard's new `nodes`, the owner first")
	cmd.Flags().StringVar(&owner, "owner", "", "the shard's new owner, a `node`")
	_ = cmd.RegisterFlagCompletionFunc("to", cli.Completes(s, cli.NodeNames)) // the flag is there
	_ = cmd.RegisterFlagCompletionFunc("owner", cli.Completes(s, cli.NodeNames))
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		id, err := shardArg(cmd, args[0])
		if err != nil {
			return err
		}
		if given := cmd.Flags().Changed; given("to") == given("owner") {
			return cli.Usage(cmd, errors.New("give either --to, the nodes that have the shard, or --owner, the one that owns it"))
		} else if given("owner") && owner == "" {
			return cli.Usage(cmd, errors.New("--owner is empty: name a node"))
		}
		return c.run(cmd, admin.MoveShard{Shard: id, To: to, Owner: owner})
	}
	return cmd
}

func newDrainCommand(s *cli.Session) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "drain NODE...",
		Short: "Move all shards off a node",
		Long: `drain moves all shards off the nodes and keeps shards off them until cachectl undrain,
also across restarts. A voter hands its vote to another eligible node, if there is one.
The watches of its clients move to other nodes gradually; a client that reaches no other
node is still served. The node may be stopped when the command has ended.

A node stopped with SIGTERM needs no drain: it hands its shards over, and takes them
back after its restart. Drain a node before longer maintenance, and before it is removed
permanently.

drain is refused if no node would be left; without --force also if fewer nodes would be
left than a shard has replicas, or too few voters for a majority.`,
		Example: `  cachectl drain node-3
  cachectl drain node-3 node-4 --dry-run`,
		Args:              takesSome("NODE"),
		ValidArgsFunction: cli.Completes(s, cli.NodeNames),
	}
	c := newChanging(s, cmd, nil)
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return c.run(cmd, admin.DrainNodes{Nodes: args}) }
	return cmd
}

func newUndrainCommand(s *cli.Session) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "undrain NODE...",
		Short: "Allow shards on a drained node again",
		Long: `undrain ends a cachectl drain: the planner places shards on the nodes again, and clients
return. For a node that is not drained it prints that, and does not wait.`,
		Example:           `  cachectl undrain node-3`,
		Args:              takesSome("NODE"),
		ValidArgsFunction: cli.Completes(s, cli.NodeNames),
	}
	c := newChanging(s, cmd, nil)
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return c.run(cmd, admin.UndrainNodes{Nodes: args}) }
	return cmd
}

func newRebalanceCommand(s *cli.Session) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rebalance",
		Short: "Move all shards to their planned nodes",
		Long: `rebalance removes the pins of earlier moves (cachectl shards shows them) and pending
merges. The planner then moves every shard to the nodes that hashing selects. The
planner also does this whenever nodes join or leave: rebalance --dry-run shows the
pending moves. Drained nodes stay drained.`,
		Example: `  cachectl rebalance --dry-run`,
		Args:    cli.Takes(),
	}
	c := newChanging(s, cmd, nil)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return c.run(cmd, admin.Rebalance{}) }
	return cmd
}

// shardArg returns the ID that an argument names.
func shardArg(cmd *cobra.Command, arg string) (uint64, error) {
	id, err := strconv.ParseUint(arg, 10, 64)
	if err != nil || id == 0 {
		return 0, cli.Usage(cmd, fmt.Errorf("%q: want the number of a shard; cachectl shards lists them", arg))
	}
	return id, nil
}

// takesSome requires one or more arguments of one kind.
func takesSome(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cli.Usage(cmd, fmt.Errorf("%s is missing", name))
		}
		return nil
	}
}

// GoesOnError reports that a change was accepted, and continues without the command.
type GoesOnError struct{ why string }

func (e *GoesOnError) Error() string {
	return e.why + ": the change continues; cachectl shards shows its progress, and the same command waits for it"
}

// spelledError is a refusal in terms of the command line.
type spelledError struct {
	text string
	err  error
}

func (e *spelledError) Error() string { return e.text }

func (e *spelledError) Unwrap() error { return e.err }

// errTimeout reports that the wait for a change has timed out.
var errTimeout = errors.New("--timeout has passed")

// run requests the change, and reports its progress.
func (c *changing) run(cmd *cobra.Command, change admin.PlacementChange) error {
	return c.s.With(cmd, func(ctx context.Context, api *client.Client) error {
		asked, err := c.ask(ctx, cmd, api, change)
		if err != nil {
			return err
		}
		ctx, stop := context.WithCancelCause(ctx)
		defer stop(nil)
		late := time.AfterFunc(c.s.Timeout, func() { stop(errTimeout) })
		defer late.Stop()
		run, err := admin.New(api).ChangePlacement(ctx, change, c.options)
		switch {
		case err != nil && errors.Is(context.Cause(ctx), errTimeout):
			return fmt.Errorf("%w within --timeout %v: it is not known whether the change was made (%w)", client.ErrUnavailable, c.s.Timeout, err)
		case err != nil:
			return c.spell(cmd, err)
		}
		defer run.Close()
		if !cmd.Flags().Changed("timeout") {
			late.Stop()
		}
		if !asked {
			err = c.printPlan(run)
		}
		if err != nil || c.options.DryRun {
			return err
		}
		if !c.wait {
			return nil
		}
		var broken error
		err = run.Wait(func(p admin.PlacementProgress) {
			if broken = c.printProgress(p); broken != nil {
				stop(broken)
			}
		})
		switch {
		case broken != nil:
			return broken
		case err != nil && ctx.Err() != nil && cmd.Context().Err() != nil:
			return &GoesOnError{"interrupted"}
		case err != nil && ctx.Err() != nil:
			return &GoesOnError{context.Cause(ctx).Error()}
		case err != nil:
			return &GoesOnError{err.Error()}
		}
		return c.printDone(cmd, run)
	})
}

// ask shows the plan and asks the operator for confirmation, if the command requires it.
// The change is then made only if the map still has the version of that plan.
func (c *changing) ask(ctx context.Context, cmd *cobra.Command, api *client.Client, change admin.PlacementChange) (asked bool, err error) {
	if !c.confirms || c.yes || c.options.DryRun {
		return false, nil
	}
	within, cancel := context.WithTimeout(ctx, c.s.Timeout)
	defer cancel()
	dry := c.options
	dry.DryRun = true
	run, err := admin.New(api).ChangePlacement(within, change, dry)
	if err != nil {
		return false, c.spell(cmd, err)
	}
	defer run.Close()
	if len(run.Plan.Steps) == 0 && len(run.Plan.Warnings) == 0 {
		return false, nil
	}
	c.options.IfVersion = run.Plan.MapVersion
	if err := c.printPlan(run); err != nil {
		return false, err
	}
	return true, c.s.Confirm(ctx, "")
}

// spell replaces the API's field names by flags or arguments.
func (c *changing) spell(cmd *cobra.Command, err error) error {
	var invalid *client.InvalidError
	var refused *admin.RefusedError
	switch {
	case errors.As(err, &invalid):
		refused = &admin.RefusedError{Field: invalid.Field, Reason: invalid.Reason}
	case !errors.As(err, &refused):
		return err
	}
	text := refused.Reason
	switch refused.Field {
	case "":
	case "if_version":
		text = "--if-version: " + text
	default:
		typed := strings.Join(append([]string{cmd.Name()}, cmd.Flags().Args()...), " ")
		text = cmp.Or(c.spellings[refused.Field], typed) + ": " + text
	}
	if refused.Force {
		text += "; --force overrides this"
	}
	return &spelledError{text, err}
}

// The JSON forms of a plan and its progress; their field names are stable.
type (
	plannedJSON struct {
		Event      string     `json:"event"` // planned
		RequestID  string     `json:"request_id"`
		DryRun     bool       `json:"dry_run"`
		MapVersion uint64     `json:"map_version"`
		Steps      []stepJSON `json:"steps"`
		Warnings   []string   `json:"warnings,omitempty"`
	}
	stepJSON struct {
		From        []plannedShardJSON `json:"from"`
		To          []plannedShardJSON `json:"to"`
		Filling     []string           `json:"filling,omitempty"`
		BytesToCopy *int64             `json:"bytes_to_copy"` // null: unknown
		BytesToFree *int64             `json:"bytes_to_free"` // null: unknown
	}
	plannedShardJSON struct {
		ID       uint64   `json:"id,omitempty"` // 0: not assigned yet
		Start    string   `json:"start,omitempty"`
		End      string   `json:"end,omitempty"`
		Replicas []string `json:"replicas"`
	}
	progressJSON struct {
		Event      string        `json:"event"` // progress
		MapVersion uint64        `json:"map_version"`
		ShardsLeft int           `json:"shards_left"`
		Filling    []fillingJSON `json:"filling,omitempty"`
	}
	fillingJSON struct {
		Shard   uint64 `json:"shard"`
		Node    string `json:"node"`
		Bytes   int64  `json:"bytes"`
		OfBytes int64  `json:"of_bytes,omitempty"`
	}
	doneJSON struct {
		Event string `json:"event"` // done
	}
)

func plannedShards(shards []admin.Shard) []plannedShardJSON {
	out := make([]plannedShardJSON, 0, len(shards))
	for _, s := range shards {
		j := plannedShardJSON{ID: s.ID, Replicas: s.Replicas}
		if s.Range.Start != "" {
			j.Start = document.Text([]byte(s.Range.Start))
		}
		if s.Range.End != "" {
			j.End = document.Text([]byte(s.Range.End))
		}
		out = append(out, j)
	}
	return out
}

func (c *changing) printPlan(run *admin.PlacementRun) error {
	p := run.Plan
	if c.s.Structured() {
		out := plannedJSON{
			Event: "planned", RequestID: run.RequestID(), DryRun: c.options.DryRun, MapVersion: p.MapVersion,
			Steps: []stepJSON{}, Warnings: p.Warnings,
		}
		for _, s := range p.Steps {
			j := stepJSON{From: plannedShards(s.From), To: plannedShards(s.To), Filling: s.Filling, BytesToCopy: &s.Bytes, BytesToFree: &s.Freed}
			if s.Bytes < 0 {
				j.BytesToCopy = nil
			}
			if s.Freed < 0 {
				j.BytesToFree = nil
			}
			out.Steps = append(out.Steps, j)
		}
		return c.s.OneDocument(out)
	}
	for _, w := range p.Warnings {
		fmt.Fprintf(c.s.Process.Stderr, "cachectl: warning: %s\n", w)
	}
	switch {
	case len(p.Steps) > 0:
	case c.options.DryRun:
		_, err := fmt.Fprintln(c.s.Process.Stdout, "no shard would change")
		return err //nolint:wrapcheck // standard output is gone
	default:
		return nil
	}
	t := &cli.Table{}
	t.Row("SHARD", "FROM", "TO", "IS ON", "WILL BE ON", "TO COPY")
	var total memory
	for _, s := range p.Steps {
		total.add(s)
		copied := "-"
		switch {
		case s.Bytes < 0:
			copied = "? to " + strings.Join(s.Filling, ", ")
		case len(s.Filling) > 0:
			copied = cli.BytesOf(s.Bytes) + " to " + strings.Join(s.Filling, ", ")
		}
		if len(s.From) == 1 && len(s.To) == 1 && s.From[0].ID == s.To[0].ID {
			from, to := s.From[0], s.To[0]
			t.Row(fmt.Sprint(from.ID), cli.Boundary(from.Range.Start), cli.Boundary(from.Range.End), strings.Join(from.Replicas, ", "), strings.Join(to.Replicas, ", "), copied)
			continue
		}
		for _, from := range s.From {
			t.Row(fmt.Sprint(from.ID), cli.Boundary(from.Range.Start), cli.Boundary(from.Range.End), strings.Join(from.Replicas, ", "), "is gone", "-")
		}
		for _, to := range s.To {
			id := "new"
			if to.ID != 0 {
				id = fmt.Sprintf("new, %d", to.ID)
			}
			here := "-" // shown once, in the first row that needs it
			if slices.ContainsFunc(to.Replicas, func(n string) bool { return slices.Contains(s.Filling, n) }) {
				here, copied = copied, "-"
			}
			t.Row(id, cli.Boundary(to.Range.Start), cli.Boundary(to.Range.End), "-", strings.Join(to.Replicas, ", "), here)
		}
	}
	if err := t.Write(c.s.Process.Stdout); err != nil || !c.confirms {
		return err
	}
	_, err := fmt.Fprintln(c.s.Process.Stdout, total)
	return err //nolint:wrapcheck // standard output is gone
}

// memory estimates the bytes that the steps of a plan take and free, on all nodes.
type memory struct {
	loads, frees     int64
	unknown, unfreed bool // the plan also loads or frees bytes that no node has reported
}

func (m *memory) add(s admin.PlacementStep) {
	m.loads, m.unknown = m.loads+max(s.Bytes, 0), m.unknown || s.Bytes < 0
	m.frees, m.unfreed = m.frees+max(s.Freed, 0), m.unfreed || s.Freed < 0
}

func (m memory) String() string {
	and := func(unknown bool) string {
		if unknown {
			return " and keys of unknown size"
		}
		return ""
	}
	return fmt.Sprintf("memory of all nodes: %s%s to load, %s%s to free", cli.BytesOf(m.loads), and(m.unknown), cli.BytesOf(m.frees), and(m.unfreed))
}

func (c *changing) printProgress(p admin.PlacementProgress) error {
	if c.s.Structured() {
		out := progressJSON{Event: "progress", MapVersion: p.MapVersion, ShardsLeft: p.ShardsLeft}
		for _, f := range p.Filling {
			out.Filling = append(out.Filling, fillingJSON(f))
		}
		return c.s.OneDocument(out)
	}
	if p.ShardsLeft == 0 || (p.ShardsLeft == c.left && time.Since(c.told) < tellEvery) {
		return nil
	}
	c.left, c.told = p.ShardsLeft, time.Now()
	var filling []string
	for i, f := range p.Filling {
		if i == 4 {
			filling = append(filling, fmt.Sprintf("%d more", len(p.Filling)-i))
			break
		}
		filling = append(filling, fillingOf(f))
	}
	line := fmt.Sprintf("%d shards left", p.ShardsLeft)
	if p.ShardsLeft == 1 {
		line = "1 shard left"
	}
	if len(filling) > 0 {
		line += ", loading: " + strings.Join(filling, "; ")
	}
	fmt.Fprintln(c.s.Process.Stderr, line)
	return nil
}

// fillingOf describes a replica that is being loaded.
func fillingOf(f admin.ReplicaFilling) string {
	at := fmt.Sprintf("%d at %s", f.Shard, f.Node)
	if f.Bytes > 0 && f.OfBytes > 0 {
		return fmt.Sprintf("%s %d %%", at, cli.LoadedShare(f.Bytes, f.OfBytes))
	}
	return at
}

func (c *changing) printDone(cmd *cobra.Command, run *admin.PlacementRun) error {
	if c.s.Structured() {
		return c.s.OneDocument(doneJSON{Event: "done"})
	}
	text := "done"
	switch {
	case cmd.Name() == "drain":
		text = strings.Join(cmd.Flags().Args(), ", ") + ": no shards left"
	case c.done != "":
		text = c.done
	case len(run.Plan.Steps) > 0, c.confirms && len(run.Plan.Warnings) > 0:
	case cmd.Name() == "undrain" && len(run.Plan.Warnings) == 0: // the node is absent, or gets no shards
		text = strings.Join(cmd.Flags().Args(), ", ") + ": no longer drained"
	default:
		text = "nothing to do"
	}
	_, err := fmt.Fprintln(c.s.Process.Stdout, text)
	return err //nolint:wrapcheck // standard output is gone
}
