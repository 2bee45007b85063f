package hostile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// limit is a cgroup with a memory limit, or empty if this process may not create one.
type limit struct{ dir string }

// newLimit creates a separate cgroup for one node. The error is the reason why it cannot.
func newLimit(bytes int64) (limit, error) {
	name := fmt.Sprintf("shardwatch-hostile-%d", os.Getpid())
	text := []byte(strconv.FormatInt(bytes, 10))
	var errs []error
	for dir, file := range map[string]string{
		"/sys/fs/cgroup":        "memory.max",            // version 2
		"/sys/fs/cgroup/memory": "memory.limit_in_bytes", // version 1
	} {
		l := limit{filepath.Join(dir, name)}
		err := os.Mkdir(l.dir, 0o750)
		if err == nil || errors.Is(err, os.ErrExist) {
			if err = write(filepath.Join(l.dir, file), text); err == nil {
				return l, nil
			}
			_ = os.Remove(l.dir) // not a cgroup with that controller
		}
		errs = append(errs, err)
	}
	return limit{}, fmt.Errorf("make a cgroup with a memory limit: %w", errors.Join(errs...))
}

// write changes an existing file: in a cgroup no file can be created.
func write(file string, text []byte) error {
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}

// command returns the prefix that runs a program in the cgroup; nil: there is none. The program
// must be in it from its start, when it reads the limit.
func (l limit) command() []string {
	if l.dir == "" {
		return nil
	}
	return []string{"/bin/sh", "-c", `echo $$ > "$0" && exec "$@"`, filepath.Join(l.dir, "cgroup.procs")}
}

// remove removes the cgroup once its processes have ended.
func (l limit) remove() {
	for range 100 {
		if l.dir == "" || os.Remove(l.dir) == nil {
			return
		}
		time.Sleep(10 * time.Millisecond) // the kernel takes a moment after the process has ended
	}
}
