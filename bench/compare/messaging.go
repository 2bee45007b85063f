package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/mem"
)

// messaging reports that a side does not have etcd's API: its clients are in this file. They use the
// other sides' encoding of events, so that answers are checked in the same way.
func (s *side) messaging() bool { return s.kind == sideNATS || s.kind == sideTCP }

// wireConn is a client's connection to a messaging side.
type wireConn struct {
	net.Conn
	in   *bufio.Reader
	body []byte // of the last message
}

// wire connects, and for NATS exchanges the greetings: INFO arrives in plain text, then TLS begins.
func (s *side) wire(end string) (c *wireConn, err error) {
	const size = 4 << 10
	conn, err := net.DialTimeout("tcp", end, 10*time.Second)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", end, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("greet %s: %w", end, err), conn.Close())
		}
	}()
	c = &wireConn{Conn: conn, in: bufio.NewReaderSize(conn, size)}
	if s.kind == sideNATS {
		if line, err := c.in.ReadString('\n'); err != nil || !strings.HasPrefix(line, "INFO ") {
			return nil, fmt.Errorf("got %q instead of INFO: %w", line, err)
		}
	}
	if s.tls != nil {
		cfg := s.tls.client()
		cfg.ServerName, _, _ = net.SplitHostPort(end)
		c.Conn = tls.Client(conn, cfg)
		c.in = bufio.NewReaderSize(c.Conn, size)
	}
	if s.kind == sideNATS {
		_, err = fmt.Fprintf(c, "CONNECT {\"verbose\":false,\"pedantic\":false,\"tls_required\":%t,\"lang\":\"go\",\"version\":\"1\",\"protocol\":1}\r\nPING\r\n", s.tls != nil)
		if err == nil {
			_, _, err = c.nats()
		}
	}
	return c, err
}

// accepts waits until the server accepts connections.
func (s *side) accepts(ctx context.Context) error {
	for {
		c, err := s.wire(s.ends[0])
		if err == nil {
			return c.Close()
		}
		if pause(ctx, 20*time.Millisecond) != nil {
			return err
		}
	}
}

const natsSubject = "bench"

// nats reads up to the next message, which it returns with the number of its subscription, or up to
// a PONG: then the number is 0.
func (c *wireConn) nats() (subscription int64, message []byte, err error) {
	for {
		line, err := c.in.ReadSlice('\n')
		if err != nil {
			return 0, nil, err
		}
		words := strings.Fields(string(line))
		switch {
		case len(words) == 4 && words[0] == "MSG":
			subscription, err1 := strconv.ParseInt(words[2], 10, 64)
			size, err2 := strconv.Atoi(words[3])
			if err := errors.Join(err1, err2); err != nil {
				return 0, nil, err
			}
			message, err := c.next(size + len("\r\n"))
			if err != nil {
				return 0, nil, err
			}
			return subscription, message[:size], nil
		case len(words) == 1 && words[0] == "PONG":
			return 0, nil, nil
		case len(words) == 1 && words[0] == "PING":
			if _, err := io.WriteString(c, "PONG\r\n"); err != nil {
				return 0, nil, err
			}
		case len(words) > 0 && words[0] == "INFO":
		default:
			return 0, nil, fmt.Errorf("the NATS server sent %q", line)
		}
	}
}

// next reads size bytes, which are valid until the next call.
func (c *wireConn) next(size int) ([]byte, error) {
	if cap(c.body) < size {
		c.body = make([]byte, size)
	}
	c.body = c.body[:size]
	_, err := io.ReadFull(c.in, c.body)
	return c.body, err
}

// publisher writes events to a messaging side, one at a time.
type publisher struct {
	*wireConn
	side *side
	mu   sync.Mutex // held while an event is written
	out  []byte     // guarded by mu
}

func (s *side) publisher() (*publisher, error) {
	c, err := s.wire(s.store)
	if err != nil {
		return nil, err
	}
	if s.kind == sideTCP {
		_, err = c.Write([]byte{floorWrites})
	}
	return &publisher{wireConn: c, side: s}, err
}

func (p *publisher) revision(context.Context) (int64, error) { return p.side.published.Load(), nil }

func (p *publisher) put(_ context.Context, key, value string) (int64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	revision := p.side.published.Load() + 1
	event, err := encode(key, value, revision)
	if err != nil {
		return 0, err
	}
	if p.side.kind == sideNATS {
		p.out = fmt.Appendf(p.out[:0], "PUB %s %d\r\n", natsSubject, len(event))
		p.out = append(append(p.out, event...), "\r\nPING\r\n"...)
	} else {
		p.out = append(binary.BigEndian.AppendUint32(p.out[:0], uint32(len(event))), event...)
	}
	if _, err := p.Write(p.out); err != nil {
		return 0, err
	}
	p.side.published.Store(revision)
	if p.side.kind == sideNATS {
		_, _, err = p.nats()
	} else {
		_, err = p.next(1)
	}
	return revision, err
}

// subscriber is a connection with watches, which is also its only stream. Its methods belong to one
// goroutine.
type subscriber struct {
	*wireConn
	kind      string
	requested int64 // watches
	created   int64
}

func (s *side) subscriber(end string) (*subscriber, error) {
	c, err := s.wire(end)
	return &subscriber{wireConn: c, kind: s.kind}, err
}

func (c *subscriber) open(context.Context, string) (stream, error) { return c, nil }

// SendMsg creates a watch. All watches match every event.
func (c *subscriber) SendMsg(any) (err error) {
	c.requested++
	if c.kind == sideNATS {
		_, err = fmt.Fprintf(c, "SUB %s %d\r\nPING\r\n", natsSubject, c.requested)
	} else {
		_, err = c.Write([]byte{floorWatches})
	}
	return err
}

// RecvMsg receives an event, or the acknowledgement of a watch.
func (c *subscriber) RecvMsg(m any) error {
	w, ok := m.(*watched)
	if !ok {
		return fmt.Errorf("cannot receive a %T", m)
	}
	var watch int64
	var message []byte
	var err error
	if c.kind == sideNATS {
		watch, message, err = c.nats()
	} else if message, err = c.next(floorHead); err == nil {
		if size := binary.BigEndian.Uint32(message[floorHead-4:]); size > 0 {
			watch = 1
			message, err = c.next(int(size))
		}
	}
	switch {
	case err != nil:
		return err
	case watch == 0:
		*w = watched{ids: []int64{c.created}, created: true}
		c.created++
		return nil
	}
	if err := w.scan(mem.BufferSlice{mem.SliceBuffer(message)}); err != nil {
		return err
	}
	w.ids[0] = watch - 1
	return nil
}

// buildNATS builds the server, unless it exists, and returns its path.
func buildNATS(ctx context.Context) (string, error) {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/shardwatch/shardwatch").Output()
	if err != nil {
		return "", fmt.Errorf("find the repository: %w", err)
	}
	cmd := exec.CommandContext(ctx, filepath.Join(strings.TrimSpace(string(root)), "tools", "pinned"), "nats-server")
	cmd.Stderr = os.Stderr
	path, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("build nats-server: %w", err)
	}
	return strings.TrimSpace(string(path)), nil
}
