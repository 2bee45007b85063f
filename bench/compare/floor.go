package main

import (
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
)

// The first byte of a connection to a floor.
const (
	floorWatches = 'w'
	floorWrites  = 'p'
)

// floorHead is the length of the header of an event: the same as HTTP/2's and gRPC's together,
// which end with the length of the message.
const floorHead = 9 + 5

// floor is the minimum work of a server for a watch with a separate connection: one goroutine
// writes every event to every connection, with one write(2) each, and keeps nothing. With TLS each
// write seals a record. A watcher that does not read blocks all.
type floor struct {
	mu       sync.Mutex // held while an event is written
	watchers map[net.Conn]struct{}
}

func serveFloor(l net.Listener, secure *tls.Config) error {
	f := &floor{watchers: make(map[net.Conn]struct{})}
	for {
		conn, err := l.Accept()
		if err != nil {
			return fmt.Errorf("accept a connection: %w", err)
		}
		if secure != nil {
			conn = tls.Server(conn, secure)
		}
		go f.serve(conn)
	}
}

// serve serves a connection until the client closes it.
func (f *floor) serve(conn net.Conn) {
	defer conn.Close()
	var first [1]byte
	if _, err := io.ReadFull(conn, first[:]); err != nil {
		return
	}
	if first[0] == floorWatches {
		f.watch(conn)
		return
	}
	event := make([]byte, floorHead)
	for {
		if _, err := io.ReadFull(conn, event[floorHead-4:floorHead]); err != nil {
			return
		}
		size := int(binary.BigEndian.Uint32(event[floorHead-4 : floorHead]))
		event = append(event[:floorHead], make([]byte, size)...)
		if _, err := io.ReadFull(conn, event[floorHead:]); err != nil {
			return
		}
		if _, err := conn.Write(first[:]); err != nil { // the acknowledgement
			return
		}
		f.write(event)
	}
}

// watch acknowledges a watcher, which gets all later events.
func (f *floor) watch(conn net.Conn) {
	f.mu.Lock()
	_, err := conn.Write(make([]byte, floorHead))
	if err == nil {
		f.watchers[conn] = struct{}{}
	}
	f.mu.Unlock()
	if err == nil {
		_, _ = conn.Read(make([]byte, 1)) // the end
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.watchers, conn)
}

func (f *floor) write(event []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for conn := range f.watchers {
		_, _ = conn.Write(event) // the reader of this connection sees the error
	}
}
