package etcdwatch

import (
	"maps"
	"time"
)

// paces are when clients may have etcd read its log. Meanwhile etcd holds its writes, so that
// the reads of a client may take one of 1+paceRatio parts of the time, beside a burst of
// paceBurst/paceRatio. The zero paces let all clients read.
type paces map[string]pace

// pace is when one client may read, and when its newest read ended: reads that run at the
// same time are one for etcd, see etcd.Client.History, and count once.
type pace struct{ next, ended time.Time }

const (
	// paceRatio is how long a client pauses after a read, in times of the read's duration.
	paceRatio = 9
	// paceBurst is the part of the pause that a client need not make which has not read for a
	// while: most watches need one or two parts of the log.
	paceBurst = 2 * time.Second
	// maxPace bounds the pause.
	maxPace = 5 * time.Second
)

// pause returns how long a client must wait before it reads; not above 0: not at all.
func (p paces) pause(client string, now time.Time) time.Duration { return p[client].next.Sub(now) }

// took notes a read of a client.
func (p paces) took(client string, began, ended time.Time) {
	free := ended.Add(-paceBurst)
	maps.DeleteFunc(p, func(_ string, x pace) bool { return x.next.Before(free) })
	x := p[client]
	if began.Before(x.ended) {
		began = x.ended
	}
	if x.next.Before(free) {
		x.next = free
	}
	x.next = x.next.Add((1 + paceRatio) * max(0, ended.Sub(began)))
	if most := ended.Add(maxPace); x.next.After(most) {
		x.next = most
	}
	x.ended = ended
	p[client] = x
}
