package config

import (
	"errors"
	"log/slog"
	"time"

	"github.com/shardwatch/shardwatch/internal/files/tlsconf"
)

// MaxWeight is the greatest Config.Weight; that of package shard.
const MaxWeight = 100

// Config is everything that can be set about one node.
type Config struct {
	// Name is unique in the cluster and stays with the data directory.
	Name string
	// DataDir keeps the node's identity, the raft log and the shard map.
	DataDir string
	// Zone is the node's failure domain; empty: none.
	Zone string
	// Weight is how many shards the node is to have beside others, from 1 to 100: with
	// 2, twice as many as a node of weight 1.
	Weight int
	// Etcd is the store that is served.
	Etcd Etcd

	// Kube has the node serve Kubernetes' API, and nothing else.
	Kube Kube

	// Listen are the addresses that the node listens on.
	Listen Listen
	// Advertise is the host under which others reach this node. Empty: see
	// Advertised.
	Advertise string
	// AdvertiseClients is the host under which clients reach this node, if it differs
	// from Advertise: a name that its certificate has. Empty: Advertise.
	AdvertiseClients string

	// Join are the gossip addresses of other nodes, host[:port], see Joins. A
	// DNS name stands for all its addresses.
	Join []string
	// BootstrapExpect is how many nodes found the cluster together and become
	// its voters: 1, 3 or 5. 0: the node only joins.
	BootstrapExpect int

	// Named are the settings that are no defaults, as flags without dashes, in order:
	// a flag, the environment or the file names them.
	Named []string

	// Prefixes are the parts of the key space that are served. Empty: all.
	Prefixes []string
	// Shards is how many shards to cut them into when the cluster is founded. 0: see
	// FoundingShards.
	Shards int
	// Replicas is how many nodes have each shard; fewer when there are fewer
	// nodes.
	Replicas int

	// Elastic is how the map follows the load and the nodes.
	Elastic Elastic

	// WindowBytes and WindowTime bound the window of each shard.
	WindowBytes Size
	WindowTime  time.Duration
	// TombstoneBytes and TombstoneTime bound the deletes that each shard keeps.
	TombstoneBytes Size
	TombstoneTime  time.Duration
	// HistoryBytes bounds the saved windows and deletes in DataDir, of all shards. 0: nothing is
	// kept.
	HistoryBytes Size
	// MaxEtcdLists is how many lists and long catch-ups there may be at etcd at a
	// time, of all nodes together.
	MaxEtcdLists int
	// VerifyInterval is how often the copies of each shard are compared with each
	// other, VerifyEtcdInterval how often one of them is with etcd. 0: never.
	VerifyInterval, VerifyEtcdInterval time.Duration
	// MaxStaleness is the maximum age of the data for a read that names no bound of its own. 0:
	// any age.
	MaxStaleness time.Duration
	// WatchProgressNotifyInterval is how often a quiet watch of etcd's API that
	// requested it gets a progress notification.
	WatchProgressNotifyInterval time.Duration

	// JSONHosts are the names under which clients of the JSON API without TLS reach the
	// node.
	JSONHosts []string
	// Limits are the limits of one client.
	Limits Limits
	// ClientServer names the gRPC server of the client port: one of ClientServers.
	ClientServer string

	// StatusPage is the content of the status page at the HTTP port: one of StatusPages.
	StatusPage string

	// ClientTLS secures the client port. Its CA makes client certificates
	// required.
	ClientTLS tlsconf.Files
	// PeerTLS secures the peer and raft ports, both sides of each connection.
	// All three files or none. The certificates must carry one of PeerSANs;
	// none: one of those that our own carries.
	PeerTLS  tlsconf.Files
	PeerSANs tlsconf.SANs
	// HTTPTLS secures the HTTP port. With its CA, all but the probes need a
	// client certificate.
	HTTPTLS tlsconf.Files
	// TLSMinVersion and TLSMaxVersion bound the version of TLS at the client and HTTP
	// ports, CipherSuites are those of TLS 1.2 there: see Protocol. Empty: Go's choice.
	TLSMinVersion, TLSMaxVersion string
	CipherSuites                 []string
	// GossipKeyFile holds the keys that gossip is encrypted with, see
	// GossipKeys. Empty: gossip is unencrypted.
	GossipKeyFile string
	// Insecure are the ports that may be reached from other machines without TLS,
	// or without a gossip key.
	Insecure Ports

	// Policy is the file with the clients' rights. Empty: clients may do everything.
	Policy string
	// AuditLog is the file for the actions of administrators and the refused calls of
	// clients. Empty: the log.
	AuditLog string

	LogLevel slog.Level
	// LogFormat is FormatText or FormatJSON.
	LogFormat string
	// OTLPEndpoint is the URL of a collector that metrics and traces are sent to;
	// "": as the standard environment variables say, or nowhere.
	OTLPEndpoint string
	// Pprof serves Go's profiler at the HTTP port.
	Pprof bool
	// DrainTimeout bounds the time from SIGTERM to the exit.
	DrainTimeout time.Duration
}

// Etcd configures the connection to etcd.
type Etcd struct {
	// Endpoints are URLs or host:port. Without a scheme, TLS is used when TLS
	// names a file.
	Endpoints []string
	// TLS: CA verifies etcd, Cert and Key authenticate this node.
	TLS tlsconf.Files
	// User and PasswordFile are for an etcd with authentication. Both or none.
	User, PasswordFile string
}

// Kube configures Kubernetes' API.
type Kube struct {
	// Listen is host:port. Empty: the node serves etcd.
	Listen string
	// Servers are the URLs of the cluster's apiservers. Empty: the one of Kubeconfig.
	Servers []string
	// Kubeconfig has the node's credentials. Empty: the service account of its pod.
	Kubeconfig string
	// TLS: Cert and Key are for clients, whose certificates CA verifies.
	TLS tlsconf.Files
	// Proxy are the certificate and key of a front proxy. Without them the node
	// impersonates its clients.
	Proxy tlsconf.Files
	// Preload are resources that are followed from the start; see KubePreload.
	Preload []string
	// Secrets are served from memory, too.
	Secrets bool
	// AllowStale is for how long an allow counts while no apiserver answers.
	AllowStale time.Duration
	// Delta is the answer to a watch below the window: one of KubeDeltas.
	Delta string
}

// Listen are host:port; an empty host means all addresses of the machine.
type Listen struct {
	// Client serves both APIs, Peer the other nodes, Raft the voters, HTTP
	// health and metrics. Gossip is TCP and UDP.
	Client, Peer, Raft, Gossip, HTTP string
}

// Limits bound the resources of one client.
type Limits struct {
	// Connections is how many connections clients may have, together: one more is
	// closed at once.
	Connections int
	// ConnectionsPerAddress is how many of them one address may have. 0: any number.
	ConnectionsPerAddress int
	// ConnectionAge is how long a client's connection lives, give or take a tenth. 0: any time.
	ConnectionAge time.Duration
	// AddressRate is how many bytes per second the clients of one address may send. 0: any
	// number.
	AddressRate Size
	// AddressHandshakes is how many TLS handshakes per second they may begin. 0: any number.
	AddressHandshakes int
	// WatchesPerStream: a watch more is refused with RESOURCE_EXHAUSTED.
	WatchesPerStream int
	// StreamsPerConnection: excess streams wait until another ends (HTTP/2).
	StreamsPerConnection int
	// MessageBytes is the greatest request that is read.
	MessageBytes Size
	// ClientBytes bounds the memory that all clients together can make the node hold. A
	// request beyond it waits, or is refused with RESOURCE_EXHAUSTED.
	ClientBytes Size
	// WatchBytes bounds the memory of their open watches, which is counted separately:
	// about 5 KiB each, 32 KiB at the Kubernetes port.
	WatchBytes Size
	// Resyncs is how many deltas, and how many states, that watches of the native
	// API are brought up to date with begin at a time: one more waits. ResyncRate
	// bounds them per second. 0: no bound.
	Resyncs    int
	ResyncRate Size
}

// Elastic configures when shards are split, merged, copied and moved. All nodes should
// have the same: the raft leader's configuration applies.
type Elastic struct {
	// AutoSplit lets shards be split that have more than one of these for
	// SplitAfter: bytes of keys and values in memory, events per second from etcd,
	// watches of clients at all nodes together. 0: any number. There are never more
	// than MaxShards for that.
	AutoSplit    bool
	SplitBytes   Size
	SplitEvents  int
	SplitWatches int
	MaxShards    int
	SplitAfter   time.Duration
	// AutoMerge lets two neighbours become one that have together had less than a
	// quarter of each of these for MergeAfter, and are there for twice as long, as
	// long as there are more than Shards. MergeAfter must not be less than
	// SplitAfter.
	AutoMerge  bool
	MergeAfter time.Duration
	// AutoOwners lets as few nodes own shards as their events need: one for every SplitEvents.
	// Without it, or with SplitEvents 0, all nodes own shards. SplitAfter and MergeAfter
	// count here, too.
	AutoOwners bool
	// ReplicaWatches is for how many watches a shard has one replica, at most
	// MaxExtraReplicas more than Replicas. SplitAfter and MergeAfter count here, too.
	ReplicaWatches   int
	MaxExtraReplicas int
	// MaxMoves and MaxNodeMoves are how many replicas are loaded at a time because
	// shards move: in the cluster, and from or to one node. 0: no bound.
	MaxMoves, MaxNodeMoves int
	// ReplaceVoterAfter is how long a voter is gone before another node that was
	// started with BootstrapExpect takes its place. 0: for ever.
	ReplaceVoterAfter time.Duration
}

// The log formats.
const (
	FormatText = "text"
	FormatJSON = "json"
)

// The HTTP/2 servers that --client-server takes: ours, and grpc-go's.
const (
	ServerOwn    = "own"
	ServerGRPCGo = "grpc-go"
)

// ClientServers returns the values of --client-server.
func ClientServers() []string { return []string{ServerOwn, ServerGRPCGo} }

// StatusPages returns the values of --status-page: the page with the keys at which
// shards begin while all clients may read all keys, always with these keys, or no page.
func StatusPages() []string { return []string{"on", "with-keys", "off"} }

// KubeDeltas returns the values of --kube-delta: the difference, and 410 always.
func KubeDeltas() []string { return []string{"on", "off"} }

// The TLS flags, for errors of package tlsconf.
var (
	etcdTLSNames   = tlsconf.Names{Cert: "--etcd-cert", Key: "--etcd-key", CA: "--etcd-ca"}
	clientTLSNames = tlsconf.Names{Cert: "--tls-cert", Key: "--tls-key", CA: "--tls-client-ca", CRL: "--tls-client-crl"}
	peerTLSNames   = tlsconf.Names{Cert: "--peer-tls-cert", Key: "--peer-tls-key", CA: "--peer-tls-ca", CRL: "--peer-tls-crl"}
	kubeTLSNames   = tlsconf.Names{Cert: "--kube-tls-cert", Key: "--kube-tls-key", CA: "--kube-client-ca", CRL: "--kube-client-crl"}
	kubeProxyNames = tlsconf.Names{Cert: "--kube-proxy-cert", Key: "--kube-proxy-key"}
	httpTLSNames   = tlsconf.Names{Cert: "--http-tls-cert", Key: "--http-tls-key", CA: "--http-tls-client-ca", CRL: "--http-tls-client-crl"}
)

// Defaults returns the settings of a node of which nothing is set. Name and
// DataDir have no default here.
func Defaults() Config {
	return Config{
		Etcd: Etcd{Endpoints: []string{"http://127.0.0.1:2379"}},
		Kube: Kube{AllowStale: 5 * time.Minute, Delta: "on"},
		Listen: Listen{
			Client: ":7400",
			Peer:   ":7401",
			Raft:   ":7402",
			Gossip: ":7946",
			HTTP:   ":7480",
		},
		Weight:   1,
		Replicas: 3,
		Elastic: Elastic{
			AutoSplit: true, SplitBytes: 512 * MiB, SplitEvents: 5000, SplitWatches: 100_000, MaxShards: 4096, SplitAfter: time.Minute,
			AutoMerge: true, MergeAfter: 5 * time.Minute, AutoOwners: true,
			ReplicaWatches: 25_000, MaxExtraReplicas: 2,
			MaxMoves: 256, MaxNodeMoves: 8,
			ReplaceVoterAfter: 10 * time.Minute,
		},
		WindowBytes: 256 * MiB,
		WindowTime:  10 * time.Minute,

		TombstoneBytes: 64 * MiB,
		TombstoneTime:  24 * time.Hour,
		HistoryBytes:   2 * GiB,
		MaxEtcdLists:   2,
		// What memory has changed is found within a minute.
		VerifyInterval:     20 * time.Second,
		VerifyEtcdInterval: 24 * time.Hour,
		// A read that does not say how old its data may be wants to know when
		// etcd cannot be reached.
		MaxStaleness: 5 * time.Second,
		// etcd's default.
		WatchProgressNotifyInterval: 10 * time.Minute,
		Limits: Limits{
			Connections:           50_000,
			ConnectionsPerAddress: 10_000,
			AddressRate:           64 * MiB, // more than an etcd writes
			AddressHandshakes:     100,      // of about 1 ms
			WatchesPerStream:      100_000,
			StreamsPerConnection:  10_000,
			MessageBytes:          2 * MiB,
			ClientBytes:           512 * MiB,
			WatchBytes:            1024 * MiB,
			Resyncs:               16,
			ResyncRate:            256 * MiB,
		},
		ClientServer: ServerOwn,
		StatusPage:   "on",
		LogLevel:     slog.LevelInfo,
		LogFormat:    FormatText,
		DrainTimeout: 30 * time.Second,
	}
}

// FoundingShards is Shards, and without it one, as long as all nodes that found the cluster
// have a replica of it: a watch over several shards waits for the progress of those that a
// write does not touch, and cuts divide neither data nor load among nodes that all have
// everything. With more founding nodes than replicas it is one for each node. Each prefix
// needs a shard.
func (c Config) FoundingShards() int {
	switch {
	case c.Shards > 0:
		return c.Shards
	case c.BootstrapExpect <= c.Replicas:
		return max(1, len(c.Prefixes))
	}
	return max(c.BootstrapExpect, len(c.Prefixes))
}

// FoundingOwners is how many nodes own shards at first; 0: all.
func (e *Elastic) FoundingOwners() int {
	if e.AutoOwners && e.SplitEvents > 0 {
		return 1
	}
	return 0
}

// EtcdTLS reads the certificates for connections to etcd. It returns nil when
// none are set.
func (c Config) EtcdTLS() (*tlsconf.Material, error) { return material(c.Etcd.TLS, etcdTLSNames) }

// ClientMaterial reads the certificates of the client port. It returns nil
// when the port speaks plain text.
func (c Config) ClientMaterial() (*tlsconf.Material, error) {
	return material(c.ClientTLS, clientTLSNames)
}

// PeerMaterial reads the certificates of the peer and raft ports. It returns
// nil when they speak plain text.
func (c Config) PeerMaterial() (*tlsconf.Material, error) { return material(c.PeerTLS, peerTLSNames) }

// HTTPMaterial reads the certificates of the HTTP port. It returns nil when the
// port speaks plain text.
func (c Config) HTTPMaterial() (*tlsconf.Material, error) { return material(c.HTTPTLS, httpTLSNames) }

// KubeMaterial reads the certificates of the port of Kubernetes' API, and those of
// a front proxy; nil: there are none.
func (c Config) KubeMaterial() (server, proxy *tlsconf.Material, err error) {
	server, err1 := material(c.Kube.TLS, kubeTLSNames)
	proxy, err2 := material(c.Kube.Proxy, kubeProxyNames)
	return server, proxy, errors.Join(err1, err2)
}

// Protocol returns the TLS versions and cipher suites of the client and HTTP ports.
func (c Config) Protocol() (tlsconf.Protocol, error) {
	return tlsconf.ParseProtocol(c.TLSMinVersion, c.TLSMaxVersion, c.CipherSuites)
}

func material(f tlsconf.Files, n tlsconf.Names) (*tlsconf.Material, error) {
	if f.IsZero() {
		return nil, nil
	}
	return tlsconf.Load(f, n)
}
