package conformance

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
)

// maxLine bounds a line of a program's output, in bytes.
const maxLine = 1 << 20

// Command returns a client that starts a program for each task. The program reads the task as one
// line of JSON, and writes a line of JSON for each update. It is killed at the end of the case.
func Command(name string, args ...string) Client {
	return func(ctx context.Context, task Task, emit func(Update)) error {
		in, err := json.Marshal(task)
		if err != nil {
			return err
		}
		cmd := exec.CommandContext(ctx, name, args...)
		var complaints bytes.Buffer
		cmd.Stdin, cmd.Stderr = bytes.NewReader(append(in, '\n')), &complaints
		out, err := cmd.StdoutPipe()
		if err != nil {
			return err
		}
		if err := cmd.Start(); err != nil {
			return err
		}
		wrong := readUpdates(out, emit)
		if wrong != nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		} else if ended := cmd.Wait(); ended != nil {
			wrong = fmt.Errorf("%w: %s", ended, complaints.String())
		}
		if ctx.Err() != nil { // it was killed
			wrong = nil
		}
		return wrong
	}
}

func readUpdates(out io.Reader, emit func(Update)) error {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		var u Update
		if err := json.Unmarshal(lines.Bytes(), &u); err != nil {
			return fmt.Errorf("%q is no update: %w", lines.Text(), err)
		}
		emit(u)
	}
	return lines.Err()
}
