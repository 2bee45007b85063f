package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"

	"golang.org/x/sync/errgroup"

	"github.com/shardwatch/shardwatch/internal/budget"
	"github.com/shardwatch/shardwatch/internal/edge/netlimit"
	"github.com/shardwatch/shardwatch/internal/edge/rawconn"
	"github.com/shardwatch/shardwatch/internal/fair"
	"github.com/shardwatch/shardwatch/internal/files/reload"
	"github.com/shardwatch/shardwatch/internal/files/tlsconf"
	"github.com/shardwatch/shardwatch/internal/kube/api"
	"github.com/shardwatch/shardwatch/internal/kube/guard"
	"github.com/shardwatch/shardwatch/internal/kube/kubeconfig"
	"github.com/shardwatch/shardwatch/internal/kube/object"
	"github.com/shardwatch/shardwatch/internal/kube/page"
	"github.com/shardwatch/shardwatch/internal/kube/source"
	"github.com/shardwatch/shardwatch/internal/kube/tier"
	"github.com/shardwatch/shardwatch/internal/kube/upstream"
	"github.com/shardwatch/shardwatch/internal/membership"
	"github.com/shardwatch/shardwatch/internal/node"
	"github.com/shardwatch/shardwatch/internal/ops/config"
	"github.com/shardwatch/shardwatch/internal/ops/telemetry"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/version"
)

// kubeNode is a node that serves Kubernetes' API.
type kubeNode struct {
	cfg    config.Config
	log    *slog.Logger
	api    *api.Server
	tier   *tier.Tier // nil: the node has no tier
	budget *budget.Budget
	turns  *fair.Turns // for large work
	// server, peer and http are the certificates of the ports, proxy is the certificate
	// of a front proxy; nil: none.
	server, peer, proxy, http *tlsconf.Material
	gossip                    *netlimit.Limit
	access                    *kubeconfig.Account // the node's own account at the apiservers
	apiservers                []*kubeconfig.Renewed
}

// serveKube runs a node that serves Kubernetes' API until ctx ends, and drains it.
func serveKube(ctx context.Context, cfg config.Config, log *slog.Logger, hangups <-chan os.Signal) error {
	n := &kubeNode{cfg: cfg, log: log}
	if err := n.load(); err != nil {
		return err
	}
	tel, err := telemetry.New(telemetry.Config{
		ServiceName: "cachenode", Version: version.String(), Node: cfg.Name,
		Endpoint: cfg.OTLPEndpoint, Getenv: os.Getenv, Logger: log, Pprof: cfg.Pprof,
	})
	if err != nil {
		return err
	}
	defer func() {
		last, stop := context.WithTimeout(context.WithoutCancel(ctx), telemetryLast)
		defer stop()
		if err := tel.Shutdown(last); err != nil {
			log.Warn("the collector did not accept the last data", "error", err)
		}
	}()
	ports, err := n.listen(ctx)
	if err != nil {
		return err
	}
	files := reload.New(reload.Every, log, n.parts()...)
	if err := errors.Join(n.api.Register(tel.Meter("kube")), n.budget.Register(tel.Meter("budget")), files.Register(tel.Meter("config")), netlimit.Register(tel.Meter("ports"), ports.limits...)); err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	log.Info("starting", "node", cfg.Name, "version", version.String(), "kube", cfg.Kube.Listen)
	// The caches, the reload of files and the HTTP port continue while the node drains.
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var g errgroup.Group
	g.Go(func() error { return files.Run(running, hangups) })
	g.Go(func() error { return n.api.Run(running) })
	if n.tier != nil {
		g.Go(func() error {
			defer stop()
			return n.tier.Run(running, n.api, ports.peer)
		})
		defer context.AfterFunc(ctx, n.tier.Drain)()
	}
	g.Go(func() error {
		return telemetry.Serve(running, ports.http, n.pages(tel), ports.httpTLS, nil)
	})
	g.Go(func() error {
		defer stop()
		err := n.api.Serve(ctx, ports.kube, ports.kubeTLS, cfg.DrainTimeout)
		log.Info("drained", "error", err)
		return err
	})
	return g.Wait()
}

// pages returns the handler of the HTTP port.
func (n *kubeNode) pages(tel *telemetry.Telemetry) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", tel.Handler(n.api.NotReady, nil))
	page.New(n.api.Report).Register(mux, n.cfg.StatusPage != string(node.StatusPageOff))
	return mux
}

// load reads the files, and creates the API server and the tier.
func (n *kubeNode) load() (err error) {
	var err1, err2 error
	n.server, n.proxy, err1 = n.cfg.KubeMaterial()
	n.http, err2 = n.cfg.HTTPMaterial()
	account, err3 := n.account()
	n.access = account
	peer, err4 := n.cfg.PeerMaterial()
	if n.peer = peer; len(n.cfg.Join) == 0 {
		n.peer = nil
	}
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return err
	}
	from := source.Defaults()
	from.Servers, from.Token, from.Logger = n.cfg.Kube.Servers, account.Token, n.log
	if len(from.Servers) == 0 {
		from.Servers = []string{account.Server}
	}
	from.HTTP = &http.Client{Transport: n.transport(account.TLS, nil)}
	client, err := source.New(from)
	if err != nil {
		return err
	}
	reviews := guard.Defaults()
	reviews.Apiservers, reviews.Stale, reviews.Logger = client, n.cfg.Kube.AllowStale, n.log
	cfg := api.Defaults()
	if cfg.Guard, err = guard.New(reviews); err != nil {
		return err
	}
	n.budget = budget.New(int64(n.cfg.Limits.ClientBytes))
	n.budget.BoundWatches(int64(n.cfg.Limits.WatchBytes))
	n.turns = fair.NewTurns()
	cfg.Node, cfg.Zone = n.cfg.Name, n.cfg.Zone
	cfg.Source, cfg.Budget, cfg.Turns, cfg.Logger = client, n.budget, n.turns, n.log
	cfg.Upstream, cfg.Impersonates = n.upstream(client, account), n.proxy == nil
	cfg.Secrets, cfg.NoDelta = n.cfg.Kube.Secrets, n.cfg.Kube.Delta == "off"
	cfg.SetWindow(int64(n.cfg.WindowBytes), n.cfg.WindowTime)
	preload, err := n.cfg.KubePreload()
	if err != nil {
		return err
	}
	for _, p := range preload {
		r := source.Resource{Group: p.Group, Version: p.Version, Name: p.Name, Encoding: object.Protobuf}
		if p.JSON {
			r.Encoding = object.JSON
		}
		cfg.Preload = append(cfg.Preload, r)
	}
	if len(n.cfg.Join) > 0 {
		if n.tier, err = n.newTier(client); err != nil {
			return err
		}
		cfg.Tier = n.tier
	}
	n.api, err = api.New(cfg)
	return err
}

// newTier returns this node's membership of a tier.
func (n *kubeNode) newTier(client *source.Client) (*tier.Tier, error) {
	at, err := n.cfg.Advertised(config.LocalAddresses)
	if err != nil {
		return nil, err
	}
	cfg := tier.Config{Gossip: membership.Defaults(), Apiservers: client, Logger: n.log}
	cfg.Self = shard.Member{
		// The node has no data directory: only its name persists.
		Name: shard.NodeID(n.cfg.Name), UUID: n.cfg.Name,
		PeerAddress: at.Peer, HTTPAddress: at.HTTP, Zone: n.cfg.Zone, Version: version.String(),
	}
	n.gossip = netlimit.New(netlimit.Config{Port: "gossip", Max: 64, MaxPending: 64, Logger: n.log})
	cfg.Gossip.BindAddr, cfg.Gossip.AdvertiseAddr, cfg.Gossip.Join, cfg.Gossip.Streams = n.cfg.Listen.Gossip, at.Gossip, n.cfg.Joins(), n.gossip
	if cfg.Gossip.SecretKeys, err = n.cfg.GossipKeys(); err != nil {
		return nil, err
	}
	if n.peer != nil {
		secure, err := n.peer.Peer(n.cfg.Name, n.cfg.PeerSANs)
		if err != nil {
			return nil, err
		}
		cfg.ServerTLS, cfg.ClientTLS, cfg.Speaks = secure.Server(), secure.Client, secure.Speaks
	}
	return tier.New(cfg)
}

// account returns this node's own account at the apiservers.
func (n *kubeNode) account() (*kubeconfig.Account, error) {
	if n.cfg.Kube.Kubeconfig == "" {
		account, err := kubeconfig.InCluster(os.Getenv)
		if err != nil {
			return nil, fmt.Errorf("without --kubeconfig: %w", err)
		}
		return account, nil
	}
	account, err := kubeconfig.Load(n.cfg.Kube.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	return account, nil
}

// transport returns a transport to apiservers, which is renewed when certificates are reloaded.
func (n *kubeNode) transport(secure *tls.Config, change func(*http.Transport)) http.RoundTripper {
	t := kubeconfig.NewRenewed(secure, change)
	n.apiservers = append(n.apiservers, t)
	return t
}

// upstream returns the handler that passes requests on, as a front proxy or by impersonation.
func (n *kubeNode) upstream(client *source.Client, account *kubeconfig.Account) http.Handler {
	cfg := upstream.Config{Source: client, Logger: n.log}
	secure := account.TLS.Clone()
	if n.proxy != nil {
		secure.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return &n.proxy.Client(tls.VersionTLS12).Certificates[0], nil
		}
	} else {
		cfg.Impersonate, cfg.Token = true, account.Token
	}
	// HTTP/2 has no upgrades.
	cfg.Upgrades = n.transport(secure, func(t *http.Transport) { t.ForceAttemptHTTP2 = false })
	cfg.Streams = n.transport(secure, func(t *http.Transport) { t.HTTP2.MaxReceiveBufferPerStream = upstream.Window })
	return upstream.New(cfg)
}

// kubePorts are the open ports of a node that serves Kubernetes' API.
type kubePorts struct {
	kube, http, peer net.Listener // peer is nil without a tier
	kubeTLS, httpTLS *tls.Config
	limits           []*netlimit.Limit
}

// listen opens the ports and bounds their connections.
func (n *kubeNode) listen(ctx context.Context) (p kubePorts, err error) {
	protocol, err := n.cfg.Protocol()
	if err != nil {
		return p, err
	}
	given := func() tls.ClientAuthType { return tls.VerifyClientCertIfGiven }
	if p.kubeTLS, err = n.server.Server(protocol, given, "h2", "http/1.1"); err != nil {
		return p, err
	}
	if n.http != nil {
		if p.httpTLS, err = n.http.Server(protocol, given, "h2", "http/1.1"); err != nil {
			return p, err
		}
	}
	at := config.Listen{Client: n.cfg.Kube.Listen, HTTP: n.cfg.Listen.HTTP}
	if n.tier != nil {
		at.Peer = n.cfg.Listen.Peer
	}
	kube, plain, peer, err := listenKube(ctx, at)
	if err != nil {
		return p, err
	}
	limits, rate := n.cfg.Limits, int64(n.cfg.Limits.AddressRate)
	clients := netlimit.New(netlimit.Config{
		// Informers that lose a node connect to another one at the same time. An informer whose connection is closed
		// during the handshake lists again (client-go's reflector repeats a watch only after a refused connection).
		Port: "kube", Max: limits.Connections, MaxPending: limits.Connections / 2, MaxPerAddress: limits.ConnectionsPerAddress, BytesPerSecond: rate,
		Turns: netlimit.TurnsOfNode(n.turns), Advice: "see --max-connections and --max-connections-per-address", Logger: n.log,
	})
	probes := netlimit.New(netlimit.Config{Port: "http", Max: 512, MaxPerAddress: 128, BytesPerSecond: rate, Evict: true, MaxPending: 256, Logger: n.log})
	p.kube = clients.Listener(n.server.Listener(rawconn.Listener(kube)))
	if n.http != nil {
		plain = n.http.Listener(plain)
	}
	p.http, p.limits = probes.Listener(plain), []*netlimit.Limit{clients, probes}
	if n.tier != nil {
		nodes := netlimit.New(netlimit.Config{Port: "peer", Max: 4096, MaxPending: 256, Logger: n.log})
		if n.peer != nil {
			peer = n.peer.Listener(peer)
		}
		p.peer, p.limits = nodes.Listener(rawconn.Listener(peer)), append(p.limits, nodes, n.gossip)
	}
	return p, nil
}

// listenKube opens the ports of Kubernetes' API and of probes, and the peer port if it has an
// address.
func listenKube(ctx context.Context, at config.Listen) (kube, http, peer net.Listener, err error) {
	open := func(flag, address string, listen func(context.Context, string) (net.Listener, error)) (l net.Listener) {
		if address == "" || err != nil {
			return nil
		}
		if l, err = listen(ctx, address); err != nil {
			err = fmt.Errorf("--%s %s: %w", flag, address, err)
			return nil
		}
		return l
	}
	kube, http, peer = open("kube-listen", at.Client, netlimit.Listen), open("http-listen", at.HTTP, listenTCP), open("peer-listen", at.Peer, listenTCP)
	if err != nil {
		closeAll(node.Listeners{Client: kube, HTTP: http, Peer: peer})
	}
	return kube, http, peer, err
}

// parts are the files that are reloaded while the node runs.
func (n *kubeNode) parts() (parts []reload.Part) {
	for _, p := range []struct {
		what string
		*tlsconf.Material
	}{{"kube-tls", n.server}, {"kube-proxy-tls", n.proxy}, {"peer-tls", n.peer}, {"http-tls", n.http}} {
		if p.Material != nil {
			parts = append(parts, reload.Part{What: p.what, Files: p.Paths, Load: n.renewing(p.Reload), Expires: p.Expires, Issued: p.Issued})
		}
	}
	if len(n.access.Files()) > 0 {
		parts = append(parts, reload.Part{What: "kubeconfig", Files: n.access.Files, Load: n.renewing(n.access.Reload)})
	}
	if n.tier != nil && n.cfg.GossipKeyFile != "" {
		parts = append(parts, gossipKeys(n.cfg, n.tier.SetGossipKeys))
	}
	return parts
}

// renewing returns a function that calls load and then makes requests to apiservers use the new certificates.
func (n *kubeNode) renewing(load func() error) func() error {
	return func() error {
		if err := load(); err != nil {
			return err
		}
		for _, t := range n.apiservers {
			t.Renew()
		}
		return nil
	}
}
