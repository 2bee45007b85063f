package config

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// The groups of settings, in the order of --help.
const (
	groupBasic      = "Basic flags"
	groupSecurity   = "TLS and access"
	groupLimits     = "Limits"
	groupElasticity = "Elasticity"
	groupKube       = "Kubernetes' API"
	groupExpert     = "Expert flags"
)

// groups is the annotation of a flag with its group.
const groups = "group"

// Flags adds every setting of c to fs, with c's values as defaults. This is
// the only list of settings.
func (c *Config) Flags(fs *pflag.FlagSet) {
	grouped(fs, groupBasic, c.basicFlags)
	grouped(fs, groupSecurity, c.securityFlags)
	grouped(fs, groupLimits, c.limitFlags)
	grouped(fs, groupElasticity, c.elasticFlags)
	grouped(fs, groupKube, c.kubeFlags)
	grouped(fs, groupExpert, c.expertFlags)
}

// grouped adds flags to fs as one group.
func grouped(fs *pflag.FlagSet, group string, add func(*pflag.FlagSet)) {
	part := pflag.NewFlagSet(group, pflag.ContinueOnError)
	part.SortFlags = false
	add(part)
	part.VisitAll(func(f *pflag.Flag) { f.Annotations = map[string][]string{groups: {group}} })
	fs.AddFlagSet(part)
}

// Usages describes the flags of fs by groups, wrapped to a number of columns. It includes expert flags only if
// all is true.
func Usages(fs *pflag.FlagSet, all bool, columns int) string {
	var out strings.Builder
	titles := []string{groupBasic, groupSecurity, groupLimits, groupElasticity, groupKube, groupExpert, ""}
	if !all {
		titles = slices.DeleteFunc(titles, func(title string) bool { return title == groupExpert })
	}
	for _, title := range titles {
		part := pflag.NewFlagSet(title, pflag.ContinueOnError)
		part.SortFlags = false
		fs.VisitAll(func(f *pflag.Flag) {
			if strings.Join(f.Annotations[groups], "") == title {
				part.AddFlag(f)
			}
		})
		if part.HasFlags() {
			fmt.Fprintf(&out, "\n\n%s:\n%s", cmp.Or(title, "Other flags"), strings.TrimRight(part.FlagUsagesWrapped(columns), " \n"))
		}
	}
	return out.String()
}

// basicFlags are the flags that operators set, or read, first.
func (c *Config) basicFlags(fs *pflag.FlagSet) {
	fs.StringVar(&c.Name, "name", c.Name, "the node's `name`, unique in the cluster (default: the hostname)")
	fs.StringVar(&c.DataDir, "data-dir", c.DataDir, "`directory` for identity, raft log and shard map; required")
	fs.StringVar(&c.Zone, "zone", c.Zone, "failure `domain`; replicas of a shard are kept apart by it")
	fs.IntVar(&c.Weight, "weight", c.Weight, "`number` from 1 to 100: the node's share of the shards relative to other nodes; with 2, twice as many as a node of weight 1")
	fs.StringSliceVar(&c.Etcd.Endpoints, "etcd", c.Etcd.Endpoints, "etcd `endpoints`, comma separated or repeated")
	fs.StringVar(&c.Etcd.TLS.CA, "etcd-ca", "", "CA `file` that verifies etcd")
	fs.StringVar(&c.Etcd.TLS.Cert, "etcd-cert", "", "certificate `file` to present to etcd")
	fs.StringVar(&c.Etcd.TLS.Key, "etcd-key", "", "private key `file` of --etcd-cert")
	fs.StringVar(&c.Etcd.User, "etcd-user", "", "etcd `user` with the role root, if etcd has authentication on")
	fs.StringVar(&c.Etcd.PasswordFile, "etcd-password-file", "", "`file` with the password of --etcd-user")
	fs.StringVar(&c.Listen.Client, "listen", c.Listen.Client, "`address` for clients")
	fs.StringVar(&c.Listen.Peer, "peer-listen", c.Listen.Peer, "`address` for other nodes")
	fs.StringVar(&c.Listen.Raft, "raft-listen", c.Listen.Raft, "`address` for raft")
	fs.StringVar(&c.Listen.Gossip, "gossip-listen", c.Listen.Gossip, "`address` for gossip, TCP and UDP")
	fs.StringVar(&c.Listen.HTTP, "http-listen", c.Listen.HTTP, "`address` for the status page, /healthz, /readyz and /metrics")
	fs.StringVar(&c.Advertise, "advertise", "", "`host` at which other nodes reach this node (default: the host of each address, else the machine's first private address)")
	fs.StringVar(&c.AdvertiseClients, "advertise-clients", "", "`host` at which clients reach this node, if it differs")
	fs.StringSliceVar(&c.Join, "join", nil, "gossip `address` of another node; without a port, that of --gossip-listen; a DNS name means all its addresses; repeatable")
	fs.IntVar(&c.BootstrapExpect, "bootstrap-expect", 0, "`number` of nodes that found the cluster together: 1, 3 or 5; 0 to join an existing one")
	fs.StringSliceVar(&c.Prefixes, "prefix", nil, "serve keys with this `prefix` only; repeatable (default: all keys). For a new cluster; later: cachectl settings set")
	fs.IntVar(&c.Shards, "shards", c.Shards, "`number` of shards that a new cluster cuts its keys into; load splits them further; 0: 1, or with more nodes of --bootstrap-expect than --replicas one for each node")
	fs.IntVar(&c.Replicas, "replicas", c.Replicas, "`number` of nodes that have each shard. For a new cluster; later: cachectl settings set")
	fs.Var(&c.WindowBytes, "window-bytes", "maximum bytes of recent events that a shard keeps")
	fs.DurationVar(&c.WindowTime, "window-time", c.WindowTime, "maximum time that a shard keeps an event")
	fs.DurationVar(&c.WatchProgressNotifyInterval, "watch-progress-notify-interval", c.WatchProgressNotifyInterval, "how often idle watches of etcd's API get a progress notification, if they requested it")
	fs.Var((*level)(&c.LogLevel), "log-level", "lowest `level` to log: debug, info, warn or error")
	fs.StringVar(&c.LogFormat, "log-format", c.LogFormat, "log `format`: text or json")
	fs.StringVar(&c.OTLPEndpoint, "otlp-endpoint", "", "`URL` of an OpenTelemetry collector, http://host:4317, to send metrics and traces to, with OTLP over gRPC (default: OTEL_EXPORTER_OTLP_ENDPOINT, else none; docs/observability.md)")
	fs.DurationVar(&c.DrainTimeout, "drain-timeout", c.DrainTimeout, "maximum time from SIGTERM to the exit")
}

// securityFlags configure authentication and authorization.
func (c *Config) securityFlags(fs *pflag.FlagSet) {
	fs.StringVar(&c.ClientTLS.Cert, "tls-cert", "", "certificate `file` of the client port; turns TLS on")
	fs.StringVar(&c.ClientTLS.Key, "tls-key", "", "private key `file` of --tls-cert")
	fs.StringVar(&c.ClientTLS.CA, "tls-client-ca", "", "CA `file`; clients must then present a certificate of it")
	fs.StringVar(&c.ClientTLS.CRL, "tls-client-crl", "", "`file` with revocation lists of --tls-client-ca; reloaded when it changes; connections with revoked certificates end")
	fs.StringVar(&c.PeerTLS.Cert, "peer-tls-cert", "", "certificate `file` between nodes (peer and raft ports)")
	fs.StringVar(&c.PeerTLS.Key, "peer-tls-key", "", "private key `file` of --peer-tls-cert")
	fs.StringVar(&c.PeerTLS.CA, "peer-tls-ca", "", "CA `file` that all nodes' certificates come from")
	fs.StringVar(&c.PeerTLS.CRL, "peer-tls-crl", "", "`file` with revocation lists of --peer-tls-ca, as --tls-client-crl")
	fs.StringSliceVar((*[]string)(&c.PeerSANs), "peer-tls-allowed-san", nil, "DNS or URI `name` that nodes' certificates must carry, such as *.peers.internal or spiffe://example.org/shardwatch; {node} in it is replaced by the node's --name; repeatable, one match is enough (default: a name in this node's certificate)")
	fs.StringVar(&c.HTTPTLS.Cert, "http-tls-cert", "", "certificate `file` of the HTTP port; turns TLS on")
	fs.StringVar(&c.HTTPTLS.Key, "http-tls-key", "", "private key `file` of --http-tls-cert")
	fs.StringVar(&c.HTTPTLS.CA, "http-tls-client-ca", "", "CA `file`; all paths except /healthz and /readyz then need a client certificate of it, and with --policy the right operator:read")
	fs.StringVar(&c.HTTPTLS.CRL, "http-tls-client-crl", "", "`file` with revocation lists of --http-tls-client-ca, as --tls-client-crl")
	fs.StringVar(&c.GossipKeyFile, "gossip-key-file", "", "`file` with gossip keys, one a line: 16, 24 or 32 bytes in base64; the first encrypts, all decrypt")
	fs.Var(&c.Insecure, "insecure", "`ports` that may be open to other machines without protection: client, peer (and raft), gossip, http; without a value: all of them")
	fs.Lookup("insecure").NoOptDefVal = allPorts
	fs.StringVar(&c.Policy, "policy", "", "policy `file`: the rights and limits of each identity; reloaded when it changes (default: every client has the rights that etcd gives it, and may administer the nodes)")
	fs.StringVar(&c.AuditLog, "audit-log", "", "`file` that administrative actions and refused client calls are appended to (default: the log)")
	fs.StringVar(&c.StatusPage, "status-page", c.StatusPage, "status page `mode` at / of --http-listen: on (shows the start keys of shards only while all clients may read all keys), with-keys (always shows them) or off")
}

// limitFlags bound the resources that clients can use.
func (c *Config) limitFlags(fs *pflag.FlagSet) {
	fs.IntVar(&c.Limits.Connections, "max-connections", c.Limits.Connections, "`number` of connections of all clients together")
	fs.IntVar(&c.Limits.ConnectionsPerAddress, "max-connections-per-address", c.Limits.ConnectionsPerAddress, "`number` of connections from one address, or one /64 of IPv6; 0: any")
	fs.DurationVar(&c.Limits.ConnectionAge, "max-connection-age", c.Limits.ConnectionAge, "age, give or take a tenth, at which a client's connection is closed, so that clients spread over the nodes again; open calls have 30s to end, and watches resume; 0: never")
	fs.Var(&c.Limits.AddressRate, "address-rate", "maximum bytes per second that the clients of one address, or /64, send to the client and HTTP ports; excess bytes are read later; 0: no bound")
	fs.IntVar(&c.Limits.AddressHandshakes, "address-handshakes", c.Limits.AddressHandshakes, "`number` of TLS handshakes per second that the clients of one address, or /64, begin at the client and HTTP ports, after a burst of a quarter of it; further handshakes wait for up to 5s, and excess connections are closed; 0: any")
	fs.Var(&c.Limits.ClientBytes, "max-client-bytes", "maximum bytes of memory for all clients together: keys of watches, unread lists and replies, catch-ups, JSON; each use has a fixed share")
	fs.Var(&c.Limits.WatchBytes, "max-watch-bytes", "maximum bytes of all open watches, in addition to --max-client-bytes: about 5 KiB each, 32 KiB at the Kubernetes port; one client may use half")
	fs.IntVar(&c.Limits.WatchesPerStream, "max-watches-per-stream", c.Limits.WatchesPerStream, "`number` of watches that one stream may carry")
	fs.IntVar(&c.Limits.StreamsPerConnection, "max-streams-per-connection", c.Limits.StreamsPerConnection, "`number` of streams that one connection may carry at a time")
	fs.Var(&c.Limits.MessageBytes, "max-message-bytes", "maximum size of a request")
}

// elasticFlags configure how the shard map adapts to the load.
func (c *Config) elasticFlags(fs *pflag.FlagSet) {
	e := &c.Elastic
	fs.BoolVar(&e.AutoSplit, "auto-split", e.AutoSplit, "split overloaded shards; see --split-bytes, --split-events, --split-watches, --split-after")
	fs.Var(&e.SplitBytes, "split-bytes", "bytes of keys and values in memory at which a shard is split; 0: any")
	fs.IntVar(&e.SplitEvents, "split-events", e.SplitEvents, "`number` of events per second at which a shard is split; 0: any")
	fs.IntVar(&e.SplitWatches, "split-watches", e.SplitWatches, "`number` of watches, on all nodes, at which a shard is split; 0: any")
	fs.IntVar(&e.MaxShards, "max-shards", e.MaxShards, "`number` of shards from which on no shard is split automatically")
	fs.BoolVar(&e.AutoMerge, "auto-merge", e.AutoMerge, "merge neighbours that have less than a quarter of the load at which a shard is split, while there are more than --shards")
	fs.BoolVar(&e.AutoOwners, "auto-owners", e.AutoOwners, "have few nodes own all shards, one for every --split-events, which saves messages for each write; false: all nodes own shards")
	fs.IntVar(&e.ReplicaWatches, "replica-watches", e.ReplicaWatches, "`number` of watches for each replica of a shard; more watches add replicas; 0: any")
	fs.IntVar(&e.MaxExtraReplicas, "max-extra-replicas", e.MaxExtraReplicas, "maximum `number` of extra replicas, added to --replicas because of watches; 0: none")
	fs.DurationVar(&e.ReplaceVoterAfter, "replace-voter-after", e.ReplaceVoterAfter, "how long a voter is gone before another node with --bootstrap-expect replaces it; 0: never replaced")
}

// kubeFlags configure a node that serves Kubernetes' API.
func (c *Config) kubeFlags(fs *pflag.FlagSet) {
	k := &c.Kube
	fs.StringVar(&k.Listen, "kube-listen", "", "`address` for clients of Kubernetes' API. The node then serves that API in front of apiservers, and no etcd. With --join the nodes of a tier share one watch for each resource; it needs no data directory (docs/kubernetes.md)")
	fs.StringSliceVar(&k.Servers, "kube-server", nil, "`URL` of an apiserver of the cluster; repeatable: if one fails, another is used (default: the server of --kubeconfig)")
	fs.StringVar(&k.Kubeconfig, "kubeconfig", "", "`file` with this node's own access to the apiservers: certificates, token or tokenFile (default: the service account of its pod)")
	fs.StringVar(&k.TLS.Cert, "kube-tls-cert", "", "certificate `file` of --kube-listen; required")
	fs.StringVar(&k.TLS.Key, "kube-tls-key", "", "private key `file` of --kube-tls-cert")
	fs.StringVar(&k.TLS.CA, "kube-client-ca", "", "CA `file` of the cluster's client certificates, which identify users and groups (default: clients need tokens)")
	fs.StringVar(&k.TLS.CRL, "kube-client-crl", "", "`file` with revocation lists of --kube-client-ca, as --tls-client-crl")
	fs.StringVar(&k.Proxy.Cert, "kube-proxy-cert", "", "front-proxy client certificate `file`: requests passed on carry the client's identity in X-Remote headers (default: this node impersonates its clients and needs the right to)")
	fs.StringVar(&k.Proxy.Key, "kube-proxy-key", "", "private key `file` of --kube-proxy-cert")
	fs.StringSliceVar(&k.Preload, "kube-preload", nil, "`resource` to follow from the start, such as pods.v1, deployments.v1.apps or leases.v1.coordination.k8s.io, with /json for JSON instead of protobuf; repeatable (default: resources are followed while clients use them)")
	fs.BoolVar(&k.Secrets, "kube-serve-secrets", false, "serve Secrets from memory, too; otherwise they are passed on and never held")
	fs.DurationVar(&k.AllowStale, "kube-allow-stale", k.AllowStale, "how long the last permission for an identity and request counts while no apiserver answers; afterwards the request fails with 429")
	fs.StringVar(&k.Delta, "kube-delta", k.Delta, "`answer` to a watch from a version below the window: on (the difference; an apiserver answers if it is not known) or off (410, after which informers list again)")
}

// expertFlags have defaults that suit nearly all clusters: they are for measurements and rare cases.
func (c *Config) expertFlags(fs *pflag.FlagSet) {
	e := &c.Elastic
	fs.StringSliceVar(&c.JSONHosts, "json-hosts", nil, "`names`, such as *.example.org, accepted in the Host header of the JSON API without TLS, besides addresses and localhost; *: any; repeatable (default: any, and none at loopback addresses)")
	fs.DurationVar(&e.SplitAfter, "split-after", e.SplitAfter, "how long a shard must be overloaded before it is split, or have enough watches before it gets another replica")
	fs.DurationVar(&e.MergeAfter, "merge-after", e.MergeAfter, "how long neighbours must have little load before they are merged (they must exist for twice as long), or a shard few watches before it loses a replica")
	fs.IntVar(&e.MaxMoves, "max-moves", e.MaxMoves, "`number` of replicas loaded concurrently because shards move; 0: any")
	fs.IntVar(&e.MaxNodeMoves, "max-node-moves", e.MaxNodeMoves, "`number` of these replicas that one node may send or receive; 0: any")
	fs.Var(&c.TombstoneBytes, "tombstone-bytes", "maximum bytes of deleted keys that a shard keeps, for deltas to clients that were away for longer than the window")
	fs.DurationVar(&c.TombstoneTime, "tombstone-time", c.TombstoneTime, "maximum time that a shard keeps a deleted key")
	fs.Var(&c.HistoryBytes, "history-bytes", "maximum bytes of history in --data-dir, used after a restart of all nodes; 0: no history is kept")
	fs.IntVar(&c.MaxEtcdLists, "max-etcd-lists", c.MaxEtcdLists, "`number` of concurrent lists and long catch-ups at etcd, of all nodes together")
	fs.DurationVar(&c.VerifyInterval, "verify-interval", c.VerifyInterval, "how often the copies of each shard are compared with each other, with 5 % of one CPU at most; a wrong copy is reloaded; 0: never")
	fs.DurationVar(&c.VerifyEtcdInterval, "verify-etcd-interval", c.VerifyEtcdInterval, "how often a copy of each shard is compared with etcd; 0: never")
	fs.DurationVar(&c.MaxStaleness, "max-staleness", c.MaxStaleness, "maximum age of the data for reads without a bound; 0: any")
	fs.IntVar(&c.Limits.Resyncs, "max-resyncs", c.Limits.Resyncs, "`number` of deltas, and of states, built concurrently for watches; excess ones queue")
	fs.Var(&c.Limits.ResyncRate, "resync-rate", "maximum bytes per second of deltas and states for watches; shared ones count once; 0: no bound")
	fs.StringVar(&c.ClientServer, "client-server", c.ClientServer, "HTTP/2 `server` of the client port: own, or grpc-go, the server of earlier releases")
	fs.StringVar(&c.TLSMinVersion, "tls-min-version", "", "minimum `version` of TLS at the client and HTTP ports, TLS1.2 or TLS1.3 (default: TLS1.2; between nodes always TLS1.3)")
	fs.StringVar(&c.TLSMaxVersion, "tls-max-version", "", "maximum `version` of TLS at these ports, TLS1.2 or TLS1.3 (default: the newest)")
	fs.StringSliceVar(&c.CipherSuites, "cipher-suites", nil, "cipher `suites` of TLS 1.2 at these ports, by the names that etcd uses, such as TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256; comma separated or repeated (default: Go's choice)")
	fs.BoolVar(&c.Pprof, "pprof", c.Pprof, "serve Go's profiler at /debug/pprof/ of --http-listen, to callers that may read /metrics")
}

// level is slog.Level as a flag.
type level slog.Level

func (l *level) Set(text string) error {
	for _, known := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
		if strings.EqualFold(text, known.String()) {
			*l = level(known)
			return nil
		}
	}
	return fmt.Errorf("%q is not a level: use debug, info, warn or error", text)
}

func (l *level) String() string { return strings.ToLower(slog.Level(*l).String()) }

func (l *level) Type() string { return "level" }
