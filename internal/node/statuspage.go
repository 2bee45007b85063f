package node

import (
	"crypto/tls"
	"net/http"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/ops/statuspage"
)

// StatusPage is the content of the status page.
type StatusPage string

// The status pages.
const (
	// StatusPageOn is the page, with the start keys of shards only while every
	// client may read everything.
	StatusPageOn StatusPage = "on"
	// StatusPageKeys is the page, always with the start keys of shards.
	StatusPageKeys StatusPage = "with-keys"
	// StatusPageOff disables the page.
	StatusPageOff StatusPage = "off"
)

// observed is the node as the status page sees it, with the status of
// ClusterService.
type observed struct{ *Node }

// Status implements statuspage.Cluster.
func (o observed) Status() *shardwatchv1.StatusResponse { return o.server.Status() }

// buildStatusPage leaves n.page nil when the page is off.
func buildStatusPage(n *Node) {
	if n.cfg.StatusPage == StatusPageOff || n.cfg.Listeners.HTTP == nil {
		return
	}
	n.page = statuspage.New(statuspage.Config{
		Cluster: observed{n}, Self: n.self, Logger: n.log, ClientTLS: n.cfg.ClientTLS != nil,
		ShowKeys: func() bool { return n.cfg.StatusPage == StatusPageKeys || n.open() },
	})
}

// open reports whether every client that reaches the client port may read everything.
func (n *Node) open() bool {
	certified := n.cfg.ClientTLS != nil && n.cfg.ClientTLS.ClientAuth >= tls.RequireAnyClientCert
	return !certified && n.authorizer == nil && n.etcdAuth.MayRead("", kv.Range{}) == nil
}

// http returns the handler that was set, behind the status page.
func (n *Node) http() http.Handler {
	mux := http.NewServeMux()
	if n.page != nil {
		n.page.Register(mux)
	}
	if h := n.handler.Load(); h != nil {
		mux.Handle("/", *h)
	}
	return mux
}
