package hostile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// limit is a cgroup with a limit of memory, or nothing where this process may not
// make one.
type limit struct{ dir string }

// newLimit makes a cgroup of its own for one node. The error says why there is none.
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

// write changes a file that is there: in a cgroup none can be made.
func write(file string, text []byte) error {
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}

// command runs a program in the cgroup; nil: there is none. The program is in it from
// its start: it reads the limit then.
func (l limit) command() []string {
	if l.dir == "" {
		return nil
	}
	return []string{"/bin/sh", "-c", `echo $$ > "$0" && exec "$@"`, filepath.Join(l.dir, "cgroup.procs")}
}

// remove takes the cgroup away once its processes are gone.
func (l limit) remove() {
	for range 100 {
		if l.dir == "" || os.Remove(l.dir) == nil {
			return
		}
		time.Sleep(10 * time.Millisecond) // the kernel takes a moment after the process has ended
	}
}
