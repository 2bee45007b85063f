package hostile

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/shardwatch/shardwatch/internal/files/certtest"
)

// machine sends as much as its share of the machine permits over TLS connections between two
// goroutines of this process: it uses CPU, threads and the loopback interface like an attacker, but
// not the node.
func machine(ctx context.Context, a *attacker) error {
	server, client, err := loopback()
	if err != nil {
		return err
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", server)
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { _ = listener.Close() })
	share := share{cores: a.Cores, began: time.Now(), used: cpuTime()}
	var g sync.WaitGroup
	defer g.Wait()
	for range runtime.GOMAXPROCS(0) {
		g.Go(func() {
			conn, err := listener.Accept()
			if err != nil {
				return // the attack has ended
			}
			context.AfterFunc(ctx, func() { _ = conn.Close() })
			_, _ = io.Copy(io.Discard, conn) // until the attack ends
		})
		g.Go(func() {
			err := a.send(ctx, listener.Addr().String(), client, &share)
			if ctx.Err() == nil {
				a.was("", err)
			}
		})
	}
	return nil
}

// send writes records to a server, at the rate of the share.
func (a *attacker) send(ctx context.Context, addr string, cfg *tls.Config, s *share) error {
	raw, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	conn := tls.Client(raw, cfg)
	context.AfterFunc(ctx, func() { _ = conn.Close() })
	record := make([]byte, 16<<10)
	for {
		if _, err := conn.Write(record); err != nil {
			return err
		}
		a.did("records", 1)
		if wait := s.over(time.Now(), cpuTime()); wait > 0 {
			if err := pause(ctx, wait); err != nil {
				return err
			}
		}
	}
}

// loopback returns the TLS configurations of a server and of its client in one process.
func loopback() (server, client *tls.Config, err error) {
	ca, err := certtest.MakeCA("machine")
	if err != nil {
		return nil, nil, err
	}
	leaf, err := ca.Make("machine")
	if err != nil {
		return nil, nil, err
	}
	pair, err := tls.X509KeyPair(leaf.Cert, leaf.Key)
	if err != nil {
		return nil, nil, err
	}
	client = &tls.Config{RootCAs: x509Pool(ca.PEM), ServerName: "127.0.0.1", MinVersion: tls.VersionTLS13}
	if client.RootCAs == nil {
		return nil, nil, errors.New("the CA of the loopback connections holds no certificate")
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13}, client, nil
}

// share is a share of the machine's CPU time.
type share struct {
	cores float64 // 0: all
	began time.Time
	used  time.Duration // at the start
}

// over returns the pause that a process needs after the given CPU time.
func (s *share) over(now time.Time, used time.Duration) time.Duration {
	if s.cores == 0 {
		return 0
	}
	return time.Duration(float64(used-s.used)/s.cores) - now.Sub(s.began)
}

// cpuTime returns the CPU time of this process.
func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // cannot fail for the calling process
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
