package grpcserver

import "golang.org/x/net/http2"

// probe is a ping by which grpc-go's client measures the path, to choose its receive
// windows. The client sends one after a DATA frame, unless it waits for the answer to one.
// Answered at once, each message of a watch costs a read, an answer and a write here, and as
// much at the client. A client that receives a few hundred bytes at a time learns nothing
// from it: its windows are 64 KiB at least. So the answer waits for probeBytes, and then follows the
// next frames: a write of its own would cost as much as that of a message, and wake the client. A client that
// waits for window opens it as it reads, whether it has the answer or not.
//
// RFC 9113, 6.7 asks for an answer and sets no time. It waits for PingAfter at most. Pings
// that measure something else, such as keepalive's, are answered at once.
type probe struct {
	held bool // the answer waits
	sent int  // bytes of DATA that were sent since the last answer
}

// probePing is the content of such a ping: bdpPing of grpc-go's internal/transport.
var probePing = [8]byte{2, 4, 16, 16, 9, 14, 7, 7} //nolint:gochecknoglobals // a constant

// probeBytes is the amount of DATA for each answered probe: a quarter of the smallest
// window, so that the client still measures before its window is used up.
const probeBytes = initialWindow / 4

// answerProbeLocked appends the answer that waits, if there is one.
func (c *conn) answerProbeLocked() {
	if c.probe.held {
		c.out.frame(http2.FramePing, http2.FlagPingAck, 0, probePing[:]...)
		c.probe = probe{}
	}
}
