// Command conformance tests a client of the native API against scripted nodes.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/shardwatch/shardwatch/test/conformance"
)

const usage = `conformance tests a client of the native API, in any language, against scripted
nodes. For each case it starts COMMAND, which reads a task as a line of JSON and
writes a line of JSON for each update that it would hand to its application
(docs/protocol.md has the form of both).

Usage:
  go run ./test/conformance/cmd/conformance [flags] -- COMMAND [ARG...]

Examples:
  # The rules for clients
  go run ./test/conformance/cmd/conformance --list

  # Two cases, with the Python client
  go run ./test/conformance/cmd/conformance --only delta,silence -- python -m shardwatch.conformance

Flags:
%s
Exit codes: 0 the client follows each rule, 1 it does not, 2 wrong flags.
`

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	flags := pflag.NewFlagSet("conformance", pflag.ContinueOnError)
	list := flags.Bool("list", false, "print the cases and their rules for clients")
	asJSON := flags.Bool("json", false, "print a line of JSON for each case")
	only := flags.StringSlice("only", nil, "run these cases only")
	limit := flags.Duration("timeout", 30*time.Second, "`timeout` of each case")
	flags.SetOutput(io.Discard)
	switch err := flags.Parse(args); {
	case errors.Is(err, pflag.ErrHelp):
		fmt.Fprintf(stdout, usage, flags.FlagUsages())
		return 0
	case err != nil, !*list && flags.NArg() == 0:
		fmt.Fprintln(stderr, "conformance:", errors.Join(err, errors.New("see --help")))
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	failed := 0
	for _, c := range conformance.Cases() {
		if len(*only) > 0 && !slices.Contains(*only, c.Name) {
			continue
		}
		var err error
		if !*list {
			err = conformance.Run(ctx, c, conformance.Command(flags.Arg(0), flags.Args()[1:]...), *limit)
		}
		if err != nil {
			failed++
		}
		report(stdout, c, !*list, err, *asJSON)
	}
	if failed > 0 {
		fmt.Fprintf(stderr, "conformance: %d cases failed\n", failed)
		return 1
	}
	return 0
}

// report prints a case, and its result if it ran.
func report(to io.Writer, c conformance.Case, ran bool, err error, asJSON bool) {
	out := struct {
		conformance.Case

		Result string `json:"result,omitempty"`
		Reason string `json:"reason,omitempty"`
	}{Case: c}
	if ran {
		out.Result = "pass"
	}
	if err != nil {
		out.Result, out.Reason = "fail", err.Error()
	}
	if asJSON {
		line, err := json.Marshal(out)
		if err == nil {
			fmt.Fprintf(to, "%s\n", line)
		}
		return
	}
	fmt.Fprintf(to, "%-17s %-5s %s\n", c.Name, out.Result, c.Rule)
	if err != nil {
		fmt.Fprintf(to, "    %v\n", err)
	}
}
