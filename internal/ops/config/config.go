package config

import (
	"errors"
	"log/slog"
	"time"

	"github.com/shardwatch/shardwatch/internal/files/tlsconf"
)

// MaxWeight is the maximum of Config.Weight; that of package shard.
const MaxWeight = 100

// Config has all settings of one node.
type Config struct {
	// Name is unique in the cluster and belongs to the data directory.
	Name string
	// DataDir keeps the node's identity, the raft log and the shard map.
	DataDir string
	// Zone is the node's failure domain; empty: none.
	Zone string
	// Weight is the node's share of the shards relative to other nodes, from 1 to 100: with 2, twice as many as
	// a node of weight 1.
	Weight int
	// Etcd is the cached store.
	Etcd Etcd

	// Kube makes the node serve Kubernetes' API, and nothing else.
	Kube Kube

	// Listen are the addresses that the node listens on.
	Listen Listen
	// Advertise is the host at which others reach this node. Empty: see Advertised.
	Advertise string
	// AdvertiseClients is the host at which clients reach this node, if it differs from Advertise: a name in
	// its certificate. Empty: Advertise.
	AdvertiseClients string

	// Join are the gossip addresses of other nodes, host[:port], see Joins. A
	// DNS name stands for all its addresses.
	Join []string
	// BootstrapExpect is the number of nodes that found the cluster together and become its voters: 1, 3 or 5.
	// 0: the node only joins.
	BootstrapExpect int

	// Named are the settings given by a flag, the environment or the file, as flags without dashes, in order.
	Named []string

	// Prefixes are the served parts of the key space. Empty: all.
	Prefixes []string
	// Shards is the number of shards of a new cluster. 0: see FoundingShards.
	Shards int
	// Replicas is the number of nodes that have each shard; fewer if there are fewer nodes.
	Replicas int

	// Elastic configures how the map adapts to load and nodes.
	Elastic Elastic

	// WindowBytes and WindowTime bound the window of each shard.
	WindowBytes Size
	WindowTime  time.Duration
	// TombstoneBytes and TombstoneTime bound the deletes that each shard keeps.
	TombstoneBytes Size
	TombstoneTime  time.Duration
	// HistoryBytes bounds the saved windows and deletes of all shards in DataDir. 0: none are saved.
	HistoryBytes Size
	// MaxEtcdLists bounds the concurrent lists and long catch-ups at etcd, of all nodes together.
	MaxEtcdLists int
	// VerifyInterval is the interval at which the copies of each shard are compared with each other,
	// VerifyEtcdInterval the interval at which one copy is compared with etcd. 0: never.
	VerifyInterval, VerifyEtcdInterval time.Duration
	// MaxStaleness is the maximum age of the data for reads that set no bound. 0: any age.
	MaxStaleness time.Duration
	// WatchProgressNotifyInterval is the interval of progress notifications for idle watches of etcd's API that
	// requested them.
	WatchProgressNotifyInterval time.Duration

	// JSONHosts are the host names that clients of the JSON API without TLS may use.
	JSONHosts []string
	// Limits are the limits of one client.
	Limits Limits
	// ClientServer names the gRPC server of the client port: one of ClientServers.
	ClientServer string

	// StatusPage is the content of the status page at the HTTP port: one of StatusPages.
	StatusPage string

	// ClientTLS secures the client port. With a CA, client certificates are required.
	ClientTLS tlsconf.Files
	// PeerTLS secures the peer and raft ports, both sides of each connection. All three files or none. The
	// certificates must carry one of PeerSANs; none: one of the names in our own certificate.
	PeerTLS  tlsconf.Files
	PeerSANs tlsconf.SANs
	// HTTPTLS secures the HTTP port. With its CA, all paths but the probes need a client certificate.
	HTTPTLS tlsconf.Files
	// TLSMinVersion and TLSMaxVersion bound the TLS version at the client and HTTP ports, CipherSuites are the
	// TLS 1.2 suites there: see Protocol. Empty: Go's choice.
	TLSMinVersion, TLSMaxVersion string
	CipherSuites                 []string
	// GossipKeyFile holds the keys that encrypt gossip, see GossipKeys. Empty: gossip is unencrypted.
	GossipKeyFile string
	// Insecure are the ports that may be reached from other machines without TLS,
	// or without a gossip key.
	Insecure Ports

	// Policy is the file with the clients' rights. Empty: clients may do everything.
	Policy string
	// AuditLog is the file for administrative actions and refused client calls. Empty: the log.
	AuditLog string

	LogLevel slog.Level
	// LogFormat is FormatText or FormatJSON.
	LogFormat string
	// OTLPEndpoint is the URL of a collector for metrics and traces; "": from the standard environment
	// variables, or none.
	OTLPEndpoint string
	// Pprof serves Go's profiler at the HTTP port.
	Pprof bool
	// DrainTimeout bounds the time from SIGTERM to the exit.
	DrainTimeout time.Duration
}

// Etcd configures the connection to etcd.
type Etcd struct {
	// Endpoints are URLs or host:port. Without a scheme, TLS is used if TLS names a file.
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
	// Servers are the URLs of the cluster's apiservers. Empty: the server of Kubeconfig.
	Servers []string
	// Kubeconfig has the node's credentials. Empty: the service account of its pod.
	Kubeconfig string
	// TLS: Cert and Key are for clients, whose certificates CA verifies.
	TLS tlsconf.Files
	// Proxy are the certificate and key of a front proxy. Without them the node
	// impersonates its clients.
	Proxy tlsconf.Files
	// Preload are resources to follow from the start; see KubePreload.
	Preload []string
	// Secrets makes the node serve Secrets from memory, too.
	Secrets bool
	// AllowStale is how long a permission counts while no apiserver answers.
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
	// Connections bounds the connections of all clients together: excess ones are closed at once.
	Connections int
	// ConnectionsPerAddress bounds the connections of one address. 0: no bound.
	ConnectionsPerAddress int
	// ConnectionAge is the lifetime of a client's connection, give or take a tenth. 0: no limit.
	ConnectionAge time.Duration
	// AddressRate bounds the bytes per second that the clients of one address send. 0: no bound.
	AddressRate Size
	// AddressHandshakes bounds the TLS handshakes per second of the clients of one address. 0: no bound.
	AddressHandshakes int
	// WatchesPerStream bounds the watches of a stream: excess ones are refused with RESOURCE_EXHAUSTED.
	WatchesPerStream int
	// StreamsPerConnection: excess streams wait until another ends (HTTP/2).
	StreamsPerConnection int
	// MessageBytes is the maximum size of a request.
	MessageBytes Size
	// ClientBytes bounds the memory held for all clients together. A request beyond it waits, or is refused
	// with RESOURCE_EXHAUSTED.
	ClientBytes Size
	// WatchBytes bounds the memory of the clients' open watches, which is counted separately: about 5 KiB each,
	// 32 KiB at the Kubernetes port.
	WatchBytes Size
	// Resyncs bounds the deltas, and the states, that are built concurrently for watches of the native API:
	// excess ones queue. ResyncRate bounds their bytes per second. 0: no bound.
	Resyncs    int
	ResyncRate Size
}

// Elastic configures when shards are split, merged, copied and moved. All nodes should have the same
// configuration: the raft leader's applies.
type Elastic struct {
	// AutoSplit splits a shard that exceeds one of these bounds for SplitAfter: bytes of keys and values in
	// memory, events per second from etcd, watches of clients at all nodes together. 0: no bound. It splits
	// none once there are MaxShards shards.
	AutoSplit    bool
	SplitBytes   Size
	SplitEvents  int
	SplitWatches int
	MaxShards    int
	SplitAfter   time.Duration
	// AutoMerge merges two neighbours that together stay below a quarter of each bound for MergeAfter, and
	// exist for twice as long, while there are more than Shards. MergeAfter must not be less than SplitAfter.
	AutoMerge  bool
	MergeAfter time.Duration
	// AutoOwners lets as few nodes own shards as the events need: one for every SplitEvents. Without it, or
	// with SplitEvents 0, all nodes own shards. SplitAfter and MergeAfter apply here, too.
	AutoOwners bool
	// ReplicaWatches is the number of watches for each replica of a shard: more watches add replicas, at most
	// MaxExtraReplicas beyond Replicas. SplitAfter and MergeAfter apply here, too.
	ReplicaWatches   int
	MaxExtraReplicas int
	// MaxMoves and MaxNodeMoves bound the replicas that are loaded concurrently because shards move: in the
	// cluster, and from or to one node. 0: no bound.
	MaxMoves, MaxNodeMoves int
	// ReplaceVoterAfter is how long a voter is gone before another node that was started with BootstrapExpect
	// replaces it. 0: never.
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

// StatusPages returns the values of --status-page: the page with the start keys of shards only while all
// clients may read all keys, always with these keys, or no page.
func StatusPages() []string { return []string{"on", "with-keys", "off"} }

// KubeDeltas returns the values of --kube-delta: the difference, or always 410.
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

// Defaults returns the default settings of a node. Name and DataDir have no default here.
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
		// Memory corruption is found within a minute.
		VerifyInterval:     20 * time.Second,
		VerifyEtcdInterval: 24 * time.Hour,
		// A read without a bound of its own must fail if etcd is unreachable for longer.
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

// FoundingShards returns Shards, or if that is 0, one shard if all founding nodes have a replica of it: a watch
// over several shards waits for the progress of shards that a write does not touch, and more shards divide
// neither data nor load among nodes that all have everything. With more founding nodes than replicas, it
// returns one for each node. Each prefix needs a shard.
func (c Config) FoundingShards() int {
	switch {
	case c.Shards > 0:
		return c.Shards
	case c.BootstrapExpect <= c.Replicas:
		return max(1, len(c.Prefixes))
	}
	return max(c.BootstrapExpect, len(c.Prefixes))
}

// FoundingOwners returns the initial number of nodes that own shards; 0: all.
func (e *Elastic) FoundingOwners() int {
	if e.AutoOwners && e.SplitEvents > 0 {
		return 1
	}
	return 0
}

// EtcdTLS reads the certificates for connections to etcd; nil: none are set.
func (c Config) EtcdTLS() (*tlsconf.Material, error) { return material(c.Etcd.TLS, etcdTLSNames) }

// ClientMaterial reads the certificates of the client port; nil: the port has no TLS.
func (c Config) ClientMaterial() (*tlsconf.Material, error) {
	return material(c.ClientTLS, clientTLSNames)
}

// PeerMaterial reads the certificates of the peer and raft ports; nil: they have no TLS.
func (c Config) PeerMaterial() (*tlsconf.Material, error) { return material(c.PeerTLS, peerTLSNames) }

// HTTPMaterial reads the certificates of the HTTP port; nil: the port has no TLS.
func (c Config) HTTPMaterial() (*tlsconf.Material, error) { return material(c.HTTPTLS, httpTLSNames) }

// KubeMaterial reads the certificates of the port of Kubernetes' API, and those of a front proxy; nil: none are
// set.
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
