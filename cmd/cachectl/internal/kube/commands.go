package kube

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/shardwatch/shardwatch/cmd/cachectl/internal/cli"
)

const (
	// defaultHTTP has a name, because certificates rarely have the IP address.
	defaultHTTP        = "localhost:7480"
	variableHTTP       = "CACHECTL_KUBE_HTTP"
	variableServerName = "CACHECTL_KUBE_TLS_SERVER_NAME"

	// completeWithin is how long a shell waits for the names of nodes.
	completeWithin = time.Second
)

// command is the state that the commands of kube share.
type command struct {
	*cli.Session
	http       []string // host:port
	serverName string
	local      bool
}

// NewCommand returns the command that shows the nodes that serve Kubernetes' API.
func NewCommand(s *cli.Session) *cobra.Command {
	c := &command{Session: s}
	cmd := &cobra.Command{
		Use:   "kube",
		Short: "Show the nodes that serve Kubernetes' API, and the resources that they follow",
		Long: `kube shows the nodes that serve Kubernetes' API (cachenode run --kube-listen). They have no
admin API and no shards: kube asks them at their HTTP port (--http-listen, 7480), not at
--endpoints. It learns the other nodes of the tier from the nodes of --http, and asks all of
them concurrently, each for at most half of --timeout.

--tls, --cacert, --cert and --key are for HTTPS, if the nodes have --http-tls-cert. Nodes are
asked at the addresses that they advertise: if their certificates are not valid for these, give
a name that all certificates have with --tls-server-name.

The exit code is 1 if a node sent no report; the reports of the others are shown.`,
		Example: `  cachectl kube status --http kube-1:7480
  cachectl kube resources --http kube-1:7480 --cacert ca.crt --cert tls.crt --key tls.key

One node of deploy/k8s/overlays/kube, with files from the secret shardwatch-kube-metrics:

  kubectl -n shardwatch-kube port-forward shardwatch-kube-0 7480 &
  cachectl kube status --local --http localhost:7480 --cacert ca.crt --cert tls.crt --key tls.key`,
		Args: cli.KnownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	flags := cmd.PersistentFlags()
	flags.StringSliceVar(&c.http, "http", []string{defaultHTTP}, "host:port of the HTTP port of one or more nodes; repeatable ("+variableHTTP+")")
	flags.StringVar(&c.serverName, "tls-server-name", "", "name that the certificate of each node must have, instead of the host of its address ("+variableServerName+")")
	flags.BoolVar(&c.local, "local", false, "ask only the nodes of --http, not the others of their tier")
	cmd.AddCommand(newStatusCommand(c), newResourcesCommand(c))
	for _, sub := range cmd.Commands() { // a subcommand does not inherit completions
		for _, flag := range []string{"http", "tls-server-name"} {
			_ = sub.RegisterFlagCompletionFunc(flag, cobra.NoFileCompletions) // fails for a flag that does not exist
		}
	}
	return cmd
}

// ask gets the reports of the nodes. It fails if no node sent one.
func (c *command) ask(cmd *cobra.Command) (tier, error) {
	asker, err := c.asker(cmd)
	if err != nil {
		return tier{}, cli.Usage(cmd, err)
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), c.Timeout)
	defer cancel()
	t := asker.tier(ctx, c.http, c.local)
	if err := cmd.Context().Err(); err != nil {
		return tier{}, err //nolint:wrapcheck // the user has interrupted the command
	}
	if len(t.silent()) == len(t.nodes) {
		return tier{}, &noReportError{t.nodes}
	}
	return t, nil
}

// asker returns an asker for the flags, their environment variables and the context.
func (c *command) asker(cmd *cobra.Command) (*asker, error) {
	if err := c.Resolve(cmd); err != nil {
		return nil, err //nolint:wrapcheck // names the flag
	}
	for name, variable := range map[string]string{"http": variableHTTP, "tls-server-name": variableServerName} {
		flag := cmd.Flags().Lookup(name)
		if v := c.Process.Getenv(variable); v != "" && !flag.Changed {
			if err := flag.Value.Set(v); err != nil {
				return nil, fmt.Errorf("%s: %w", variable, err)
			}
		}
	}
	secured, err := c.TLSConfig()
	errs := []error{err}
	if secured != nil {
		secured.ServerName = c.serverName
	} else if c.serverName != "" && err == nil {
		errs = append(errs, errors.New("--tls-server-name is given without TLS: give --cacert (or --tls), too"))
	}
	var addresses []string
	for _, a := range c.http {
		if a = strings.TrimSpace(a); a == "" || slices.Contains(addresses, a) {
			continue
		}
		addresses = append(addresses, a)
		if _, port, err := net.SplitHostPort(a); err != nil || port == "" || strings.Contains(a, "/") {
			errs = append(errs, fmt.Errorf("--http %q: use host:port, such as %s", a, defaultHTTP))
		}
	}
	if c.http = addresses; len(addresses) == 0 {
		errs = append(errs, errors.New("--http is empty: name the HTTP port of a node"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return newAsker(secured, c.Timeout), nil
}

// completesNodes completes a flag with the names of the nodes.
func (c *command) completesNodes(cmd *cobra.Command, _ []string, _ string) (names []cobra.Completion, _ cobra.ShellCompDirective) {
	_ = c.Resolve(cmd) // ignored: the command reports the error when it runs
	c.Timeout = min(c.Timeout, completeWithin)
	t, _ := c.ask(cmd)
	for _, n := range t.nodes {
		if n.name != "" {
			names = append(names, n.name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// finish prints notes, and notes about nodes without a report. It fails if there is such a node.
// Documents already have these errors.
func (c *command) finish(t tier, notes []string) error {
	silent := t.silent()
	if !c.Structured() {
		for _, n := range silent {
			notes = append(notes, fmt.Sprintf("%s sent no report: %s", n.title(), n.silence.why))
		}
		if len(t.unasked) > 0 {
			notes = append(notes, "not asked (--local): "+strings.Join(t.unasked, ", "))
		}
		if err := cli.Lines(c.Process.Stdout, notes...); err != nil {
			return err //nolint:wrapcheck // says what it did
		}
	}
	if len(silent) > 0 {
		return &silentError{silent, len(t.nodes)}
	}
	return nil
}

// noReportError reports that no node sent a report.
type noReportError struct{ nodes []node }

func (e *noReportError) Error() string {
	var whys []string
	for _, n := range e.nodes {
		whys = append(whys, n.title()+": "+n.silence.why)
	}
	return "no node sent a report: " + strings.Join(whys, "; ") + advice(e.nodes)
}

// silentError reports that some nodes sent no report.
type silentError struct {
	silent []node
	of     int
}

func (e *silentError) Error() string {
	return fmt.Sprintf("%d of %d nodes sent no report%s", len(e.silent), e.of, advice(e.silent))
}

// advice returns the advice for silent nodes, one line for each.
func advice(nodes []node) string {
	var lines []string
	for _, n := range nodes {
		if a := n.silence.advice; a != "" && !slices.Contains(lines, a) {
			lines = append(lines, a)
		}
	}
	if len(lines) == 0 {
		return ""
	}
	return "\n" + strings.Join(lines, "\n")
}
