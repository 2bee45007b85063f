package chaos

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"
)

// A byte of a record flips in the memory of another process, and nowhere else.
func TestFlipInMemory(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("it needs root, to write to the memory of another process")
	}
	const marker = "a record that only this process has"
	// cat keeps the last copied data in its buffer.
	cat, out := exec.Command("cat"), &output{}
	cat.Stdout = out
	in, err := cat.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cat.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = in.Close(), cat.Wait() }()
	p := cat.Process.Pid
	if _, err := io.WriteString(in, marker); err != nil {
		t.Fatal(err)
	}
	if err := poll(t.Context(), 10*time.Second, "cat", func() error { return out.is(marker) }); err != nil {
		t.Fatal(err)
	}
	if n, err := flipInMemory(p, []byte(marker), 2); err != nil || n == 0 {
		t.Fatalf("%d flipped, %v", n, err)
	}
	if n, err := flipInMemory(p, []byte(marker), 2); err != nil || n != 0 {
		t.Errorf("%d copies are as they were, %v", n, err)
	}
	flipped := bytes.Replace([]byte(marker), []byte("r"), []byte("s"), 1)
	if n, err := flipInMemory(p, flipped, 2); err != nil || n == 0 {
		t.Errorf("%d copies are flipped, %v", n, err)
	}
}

// The record with a damaged revision differs from the right one in one byte.
func TestEncodedRecord(t *testing.T) {
	for _, rev := range []int64{2, 127, 128, 70_000} {
		for _, ofRevision := range []bool{true, false} {
			record, at := encodedRecord("~key", "value", rev, ofRevision)
			if at <= 0 || at >= len(record) {
				t.Errorf("revision %d: byte %d of %d", rev, at, len(record))
			}
			if !ofRevision && record[at] != 'e' {
				t.Errorf("revision %d: byte %d is %q", rev, at, record[at])
			}
		}
	}
}

// output is the output of a process.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer // guarded by mu
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) is(want string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.b.String() != want {
		return errors.New("it has not written all")
	}
	return nil
}
