package changes

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/admin"
	"github.com/shardwatch/shardwatch/cmd/cachectl/internal/cli"
	"github.com/shardwatch/shardwatch/cmd/cachectl/internal/document"
)

func newSettingsCommand(s *cli.Session) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "settings",
		Short: "Show or change the number of replicas and the served keys",
		Long: `settings shows the settings that all nodes share: the number of replicas of each shard,
and the served keys. They are part of the shard map. The flags --replicas and --prefix
of cachenode run apply only to a new cluster. A node that is started with different
flags later ignores them, and reports that in its log and here.`,
		Args: cli.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return s.ClusterStatus(cmd, func(cs admin.ClusterStatus) error { return printSettings(s, cs) })
		},
	}
	cmd.AddCommand(newSettingsSetCommand(s))
	return cmd
}

func newSettingsSetCommand(s *cli.Session) *cobra.Command {
	var replicas int
	var prefixes []string
	var allKeys bool
	cmd := &cobra.Command{
		Use:   "set [--replicas N] [--prefix KEY... | --all-keys]",
		Short: "Change the number of replicas or the served keys",
		Long: `set changes settings of the running cluster. It first shows the effect on the shards
and the approximate memory, and asks for confirmation.

New replicas are loaded from nodes that have the shard, a bounded number at a time;
surplus ones are dropped after the remaining ones are complete. With more keys, new
shards are loaded from etcd. With fewer keys, shards end or are truncated in place.
Watches of keys that are served before and after continue without a gap or a resync.

Watches of keys that are no longer served end: in the native API as invalid, in
etcd's API as cancelled with the reason. After that, etcd's API reads these keys from
etcd, and the native API refuses them.`,
		Example: `  cachectl settings set --replicas 3
  cachectl settings set --prefix /registry/ --prefix /config/ --dry-run
  cachectl settings set --all-keys --yes`,
		Args: cli.Takes(),
	}
	c := newChanging(s, cmd, map[string]string{"replicas": "--replicas", "served": "--prefix"})
	c.confirms = true
	cmd.Flags().IntVar(&replicas, "replicas", 0, "`number` of nodes that have each shard")
	cmd.Flags().StringArrayVar(&prefixes, "prefix", nil, "serve only keys with this `prefix`; repeatable; replaces the current ones")
	cmd.Flags().BoolVar(&allKeys, "all-keys", false, "serve all keys")
	cmd.Flags().BoolVar(&c.yes, "yes", false, "do not ask for confirmation")
	_ = cmd.RegisterFlagCompletionFunc("replicas", cobra.FixedCompletions([]string{"1", "2", "3", "5"}, cobra.ShellCompDirectiveNoFileComp)) // the flag is there
	_ = cmd.RegisterFlagCompletionFunc("prefix", cli.Completes(s, servedPrefixes))
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		change, err := settingsOf(cmd, replicas, prefixes, allKeys)
		if err != nil {
			return cli.Usage(cmd, err)
		}
		return c.run(cmd, change)
	}
	return cmd
}

// settingsOf returns the change that the flags request.
func settingsOf(cmd *cobra.Command, replicas int, prefixes []string, allKeys bool) (admin.ChangeSettings, error) {
	var change admin.ChangeSettings
	switch {
	case cmd.Flags().Changed("replicas") && replicas < 1:
		return change, fmt.Errorf("--replicas %d: a shard needs at least one", replicas)
	case allKeys && len(prefixes) > 0:
		return change, errors.New("give either --prefix or --all-keys")
	case replicas == 0 && len(prefixes) == 0 && !allKeys:
		return change, errors.New("nothing to set: give --replicas, --prefix or --all-keys")
	}
	change.Replicas = replicas
	for _, p := range prefixes {
		if p == "" {
			return change, errors.New(`--prefix "" means all keys: give --all-keys for that`)
		}
		change.Served = append(change.Served, client.Prefix(p))
	}
	if allKeys {
		change.Served = []client.Range{{}}
	}
	return change, nil
}

// servedPrefixes returns the served prefixes.
func servedPrefixes(cs admin.ClusterStatus) []string {
	var out []string
	for _, r := range cs.Settings.Served {
		if r.Start != "" && r == client.Prefix(r.Start) {
			out = append(out, r.Start)
		}
	}
	return out
}

type settingsJSON struct {
	Replicas  int             `json:"replicas"`
	Served    []servedJSON    `json:"served"`
	Overruled []overruledJSON `json:"overruled,omitempty"`
}

type servedJSON struct {
	Prefix *string `json:"prefix,omitempty"` // "": all keys
	Start  string  `json:"start,omitempty"`
	End    string  `json:"end,omitempty"`
}

type overruledJSON struct {
	Node  string   `json:"node"`
	Flags []string `json:"flags"`
}

func printSettings(s *cli.Session, cs admin.ClusterStatus) error {
	out := settingsJSON{Replicas: cs.Settings.Replicas, Served: []servedJSON{}}
	var served []string
	for _, r := range cs.Settings.Served {
		one, text := servedJSON{}, "all keys"
		switch prefix := document.Text([]byte(r.Start)); {
		case r == client.Range{}:
			one.Prefix = new(string)
		case r == client.Prefix(r.Start):
			one.Prefix, text = &prefix, prefix
		default:
			one.Start, one.End = prefix, document.Text([]byte(r.End))
			text = r.String()
		}
		out.Served, served = append(out.Served, one), append(served, text)
	}
	if len(served) == 0 {
		return errors.New("the node has no settings: it has no shard map, or runs older software")
	}
	for _, m := range cs.Members {
		if m.Status != nil && len(m.Status.OverruledFlags) > 0 {
			out.Overruled = append(out.Overruled, overruledJSON{Node: m.Member.Name, Flags: m.Status.OverruledFlags})
		}
	}
	if s.Structured() {
		return s.Document(out)
	}
	t := &cli.Table{}
	t.Row("SETTING", "VALUE")
	t.Row("replicas", fmt.Sprint(out.Replicas))
	t.Row("served", strings.Join(served, ", "))
	if err := t.Write(s.Process.Stdout); err != nil {
		return err
	}
	return cli.Lines(s.Process.Stdout, cli.OverruledNotes(cs)...)
}
