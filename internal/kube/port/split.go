package port

import (
	"context"
	"crypto/tls"
	"net"
	"slices"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/shardwatch/shardwatch/internal/edge/dispatch"
	"github.com/shardwatch/shardwatch/internal/edge/netlimit"
)

// splitter performs the TLS handshakes with clients. It hands HTTP/1 connections to another server.
type splitter struct {
	credentials.TransportCredentials // for all methods but ServerHandshake
	secure                           *tls.Config
	old                              *dispatch.Listener
}

func newSplitter(secure *tls.Config, old *dispatch.Listener) *splitter {
	secure = secure.Clone()
	for _, protocol := range []string{"h2", "http/1.1"} {
		if !slices.Contains(secure.NextProtos, protocol) {
			secure.NextProtos = append(slices.Clip(secure.NextProtos), protocol)
		}
	}
	return &splitter{insecure.NewCredentials(), secure, old}
}

// ServerHandshake implements credentials.TransportCredentials. The caller bounds its time with
// a deadline on the connection.
func (c *splitter) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn := tls.Server(raw, c.secure)
	err := conn.HandshakeContext(context.Background())
	netlimit.Shaken(raw)
	if err != nil {
		return nil, nil, err
	}
	state := conn.ConnectionState()
	if state.NegotiatedProtocol != "h2" {
		// Not SetDeadline: netlimit treats its reset as the arrival of a request.
		_ = raw.SetReadDeadline(time.Time{}) // fails if raw is closed: so does the next read
		_ = raw.SetWriteDeadline(time.Time{})
		return nil, nil, c.old.Put(conn)
	}
	return conn, credentials.TLSInfo{State: state, CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}}, nil
}
