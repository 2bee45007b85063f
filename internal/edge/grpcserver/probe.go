package grpcserver

import "golang.org/x/net/http2"

// probe is a ping of grpc-go's client, which measures the path to choose its receive windows. The
// client sends one after a DATA frame, unless the answer to the last one is pending. If we answered
// at once, each message of a watch would cost a read, an answer and a write here, and as much at the
// client. A client that receives a few hundred bytes at a time gains nothing: its windows
// are at least 64 KiB. So we delay the answer until probeBytes were sent, and append it to the next
// frames: a separate write would cost as much as a message, and wake the client. A client
// opens its windows as it reads, with or without the answer.
//
// RFC 9113, 6.7 requires an answer, but sets no time. We delay it for at most PingAfter. Other
// pings, such as those of keepalive, are answered at once.
type probe struct {
	held bool // an answer is pending
	sent int  // bytes of DATA sent since the last answer
}

// probePing is the content of such a ping: bdpPing of grpc-go's internal/transport.
var probePing = [8]byte{2, 4, 16, 16, 9, 14, 7, 7} //nolint:gochecknoglobals // a constant

// probeBytes is the number of DATA bytes per answered probe: a quarter of the smallest
// window, so that the client still measures before its window is exhausted.
const probeBytes = initialWindow / 4

// answerProbeLocked appends the pending answer, if there is one.
func (c *conn) answerProbeLocked() {
	if c.probe.held {
		c.out.frame(http2.FramePing, http2.FlagPingAck, 0, probePing[:]...)
		c.probe = probe{}
	}
}
