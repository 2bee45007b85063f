package keys

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/cmd/cachectl/internal/cli"
)

// handle runs a command for an update, with its lines on standard input, and waits until
// it exits. When ctx ends, a running command gets SIGTERM, and is killed after the timeout.
func handle(ctx context.Context, s *cli.Session, command []string, u client.Update) error {
	all := linesOf(u)
	if len(all) == 0 {
		return nil // progress
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...) //nolint:gosec // the user names it
	cmd.Env = append(os.Environ(), environment(u)...)
	cmd.Stdout, cmd.Stderr = s.Process.Stdout, s.Process.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = s.Timeout
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return fmt.Errorf("run %s: %w", command[0], err)
	}
	// Not an error: a command need not read all lines.
	_ = writeLines(in, all)
	_ = in.Close()
	if err = cmd.Wait(); cmd.ProcessState != nil && cmd.ProcessState.Success() {
		return nil // even after SIGTERM
	}
	return fmt.Errorf("%s failed for revision %d: %w", command[0], u.Revision, err)
}

// writeLines writes lines in the form of watch -o json.
func writeLines(w io.Writer, all []line) error {
	b := bufio.NewWriter(w)
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	var errs []error
	for _, l := range all {
		errs = append(errs, enc.Encode(jsonOf(l)))
	}
	return errors.Join(append(errs, b.Flush())...)
}

// environment returns the variables that describe an update to its command. None begins
// with CACHECTL_: such variables would set flags of a cachectl that the command runs.
func environment(u client.Update) []string {
	what, key := strings.ToUpper(u.Kind.String()), ""
	if len(u.Events) == 1 {
		what, key = u.Events[0].Type.String(), string(u.Events[0].KV.Key)
	}
	out := []string{"WATCH_TYPE=" + what, "WATCH_REVISION=" + cli.Number(u.Revision)}
	if strings.Contains(key, "\x00") { // not allowed in a variable
		key = ""
	}
	return append(out, "WATCH_KEY="+key)
}
