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

// splitter shakes hands with clients. Those that speak HTTP/1 go to another server.
type splitter struct {
	credentials.TransportCredentials // for all but ServerHandshake
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
		// Each alone: no deadline at all would say that a request has come.
		_ = raw.SetReadDeadline(time.Time{}) // of a closed one: the next read fails
		_ = raw.SetWriteDeadline(time.Time{})
		return nil, nil, c.old.Put(conn)
	}
	return conn, credentials.TLSInfo{State: state, CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}}, nil
}
