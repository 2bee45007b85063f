package chaos

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
)

// requestLog counts what etcd is asked, from its own log of requests: the one
// source that knows whether a Range was a list or a read of the revision.
type requestLog struct {
	path string
	at   int64 // read up to here
}

// rangeCounts are Range requests by what they are for.
type rangeCounts struct {
	// Lists asked for the keys of a range, with or without values.
	Lists int
	// Others read one key, a count, or nothing but the revision.
	Others int
	// Sample is one of the lists.
	Sample string
}

// next counts the requests logged since the last call.
func (l *requestLog) next() (rangeCounts, error) {
	f, err := os.Open(l.path)
	if err != nil {
		return rangeCounts{}, fmt.Errorf("read etcd's log: %w", err)
	}
	defer f.Close() //nolint:errcheck // only read
	if _, err := f.Seek(l.at, io.SeekStart); err != nil {
		return rangeCounts{}, fmt.Errorf("read etcd's log: %w", err)
	}
	var c rangeCounts
	r := bufio.NewReaderSize(f, 1<<20)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return c, nil // a line that is not whole yet is the next call's
		}
		l.at += int64(len(line))
		c.count(line)
	}
}

func (c *rangeCounts) count(line string) {
	const method = `"/etcdserverpb.KV/Range"`
	if !strings.Contains(line, method) {
		return
	}
	if strings.Contains(line, "range_end:") && !strings.Contains(line, "count_only:true") && !strings.Contains(line, "limit:1 ") && !strings.Contains(line, `limit:1"`) {
		c.Lists++
		c.Sample = strings.TrimSpace(line)
		return
	}
	c.Others++
}
