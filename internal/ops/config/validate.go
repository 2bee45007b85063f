package config

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/shardwatch/shardwatch/internal/files/tlsconf"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/ops/telemetry"
)

// The bounds of settings.
const (
	maxShards      = 4096
	maxReplicas    = 64      // of one shard
	maxPrefixes    = 256     // shard.MaxRanges
	maxMaxShards   = 100_000 // a leader plans these in less than a second
	minSplitBytes  = MiB
	minSplitAfter  = 10 * time.Second // the leader's planning interval
	maxNameBytes   = 63               // a DNS label: names become host names in Kubernetes
	minWindowBytes = MiB
	minWindowTime  = time.Second
	minVerify      = time.Second
	minVerifyEtcd  = time.Minute
	minNotify      = 100 * time.Millisecond // etcd's own
	minClientBytes = 64 * MiB
	minWatchBytes  = 1 * MiB
	minHistory     = 16 * MiB
	minResyncRate  = MiB
	minAge         = time.Minute
	minAddressRate = MiB
	minMessage     = 1536 * KiB // etcd's largest request by default
	maxMessage     = GiB
)

// mistakes collects errors.
type mistakes []error

func (m *mistakes) addf(format string, args ...any) { *m = append(*m, fmt.Errorf(format, args...)) }

func (m *mistakes) add(err error) { *m = append(*m, err) }

// Validate reports all mistakes together, each with its flag. It checks that the named files can be opened, and
// opens no socket.
func (c Config) Validate() error {
	var m mistakes
	c.validateProcess(&m)
	if c.Kube.Listen != "" {
		c.validateKube(&m)
		return errors.Join(m...)
	}
	c.validateNoKube(&m)
	c.validateIdentity(&m)
	c.validateAddresses(&m)
	c.validateEtcd(&m)
	c.validateKeys(&m)
	c.validateBounds(&m)
	c.validateSecurity(&m)
	return errors.Join(m...)
}

func (c Config) validateProcess(m *mistakes) {
	switch {
	case c.Name == "":
		m.addf("--name is empty: give the node a name that stays with its data")
	case len(c.Name) > maxNameBytes:
		m.addf("--name has %d bytes: at most %d", len(c.Name), maxNameBytes)
	case strings.Trim(c.Name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") != "":
		m.addf("--name %q: use letters, digits, '-', '_' and '.' only", c.Name)
	}
	if c.OTLPEndpoint != "" {
		if err := telemetry.ValidateEndpoint(c.OTLPEndpoint); err != nil {
			m.addf("--otlp-endpoint %q: %w", c.OTLPEndpoint, err)
		}
	}
	if c.LogFormat != FormatText && c.LogFormat != FormatJSON {
		m.addf("--log-format %q: use %s or %s", c.LogFormat, FormatText, FormatJSON)
	}
	if c.DrainTimeout <= 0 {
		m.addf("--drain-timeout %s: must be above 0", c.DrainTimeout)
	}
	m.add(c.HTTPTLS.Validate(httpTLSNames))
	if c.HTTPTLS.CA != "" && c.HTTPTLS.Cert == "" && c.HTTPTLS.Key == "" {
		m.addf("--http-tls-client-ca is given without --http-tls-cert and --http-tls-key: a port without TLS cannot ask for certificates")
	}
	if _, err := c.Protocol(); err != nil {
		m.add(err)
	}
}

func (c Config) validateIdentity(m *mistakes) {
	switch info, err := os.Stat(c.DataDir); {
	case c.DataDir == "":
		m.addf("--data-dir is required: name a directory that outlives the process; it is created if it does not exist")
	case err == nil && !info.IsDir():
		m.addf("--data-dir %s is not a directory", c.DataDir)
	}
	if c.Weight < 1 || c.Weight > MaxWeight {
		m.addf("--weight %d: use a number from 1 to %d; to take all shards from a node, run cachectl drain", c.Weight, MaxWeight)
	}
	switch c.BootstrapExpect {
	case 0:
		if len(c.Join) == 0 {
			m.addf("nothing to join and nothing to found: give --join (a node of the cluster) or --bootstrap-expect (1 for a new cluster of one node)")
		}
	case 1, 3, 5:
	default:
		m.addf("--bootstrap-expect %d: use 1, 3 or 5 (an even number of voters tolerates no more failures than the next lower odd number), or 0 to join a cluster that exists", c.BootstrapExpect)
	}
}

// listener is one address with its flag.
type listener struct {
	flag, address string
}

func (c Config) listeners() []listener {
	return []listener{
		{"listen", c.Listen.Client},
		{"peer-listen", c.Listen.Peer},
		{"raft-listen", c.Listen.Raft},
		{"gossip-listen", c.Listen.Gossip},
		{"http-listen", c.Listen.HTTP},
	}
}

func (c Config) validateAddresses(m *mistakes) {
	validateListeners(m, c.listeners())
	c.validateHosts(m)
}

func validateListeners(m *mistakes, listeners []listener) {
	type taken struct{ flag, host string }
	ports := map[int][]taken{}
	for _, l := range listeners {
		host, port, err := splitAddress(l.address)
		if err != nil {
			m.addf("--%s %q: %w", l.flag, l.address, err)
			continue
		}
		for _, t := range ports[port] {
			if t.host == host || anyHost(t.host) || anyHost(host) {
				m.addf("--%s and --%s both use port %d", t.flag, l.flag, port)
			}
		}
		ports[port] = append(ports[port], taken{l.flag, host})
	}
}

// validateHosts reports mistakes in the advertised hosts and in --join.
func (c Config) validateHosts(m *mistakes) {
	for _, a := range []struct{ flag, host string }{{"advertise", c.Advertise}, {"advertise-clients", c.AdvertiseClients}} {
		switch {
		case a.host == "":
		case anyHost(a.host):
			m.addf("--%s %s: others cannot dial an unspecified address; give one of this machine", a.flag, a.host)
		case strings.ContainsAny(a.host, "/ ") || (strings.Contains(a.host, ":") && !isIP(a.host)):
			m.addf("--%s %q: want a host alone; the ports are those of the listeners", a.flag, a.host)
		}
	}
	for _, j := range c.Join {
		if host, port, err := net.SplitHostPort(j); err == nil && host != "" && validPort(port) {
			continue
		}
		if j == "" || strings.ContainsAny(j, "/ ") || (strings.Contains(j, ":") && !isIP(j)) {
			m.addf("--join %q: want host or host:port", j)
		}
	}
}

// splitAddress splits host:port. It refuses port 0: the node could not announce its address before it listens.
func splitAddress(address string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil || strings.ContainsAny(host, "/ ") {
		return "", 0, errors.New("want host:port, or :port for all addresses")
	}
	if !validPort(text) {
		return "", 0, errors.New("the port must be a number from 1 to 65535")
	}
	port, err = strconv.Atoi(text)
	return host, port, err
}

func validPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return err == nil && n > 0
}

func isIP(s string) bool {
	_, err := netip.ParseAddr(s)
	return err == nil
}

func anyHost(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "" || (err == nil && ip.IsUnspecified())
}

func (c Config) validateEtcd(m *mistakes) {
	if len(c.Etcd.Endpoints) == 0 {
		m.addf("--etcd is empty: name at least one endpoint")
	}
	schemes := map[string]bool{}
	for _, e := range c.Etcd.Endpoints {
		if !strings.Contains(e, "://") {
			if _, _, err := splitAddress(e); err != nil || strings.HasPrefix(e, ":") {
				m.addf("--etcd %q: want a URL (http://host:2379, https://…) or host:port", e)
			}
			continue
		}
		u, err := url.Parse(e)
		switch {
		case err == nil && u.User != nil:
			m.addf("--etcd %s: no user or password in the URL; use --etcd-user and --etcd-password-file", u.Redacted())
		case err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https"):
			m.addf("--etcd %q: want a URL (http://host:2379, https://…) or host:port", e)
		case strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "":
			m.addf("--etcd %q: want nothing after the port", e)
		}
		if err == nil {
			schemes[u.Scheme] = true
		}
	}
	if schemes["http"] && schemes["https"] {
		m.addf("--etcd mixes http:// and https://: use one for all endpoints")
	}
	if schemes["http"] && !c.Etcd.TLS.IsZero() {
		m.addf("--etcd has http:// endpoints, but --etcd-ca, --etcd-cert or --etcd-key is given: write https://, or leave the files out")
	}
	m.add(c.Etcd.TLS.Validate(etcdTLSNames))
	switch {
	case c.Etcd.User != "" && c.Etcd.PasswordFile == "":
		m.addf("--etcd-user is given but --etcd-password-file is not: they go together")
	case c.Etcd.User == "" && c.Etcd.PasswordFile != "":
		m.addf("--etcd-password-file is given but --etcd-user is not: they go together")
	}
	if c.Etcd.PasswordFile != "" {
		m.add(tlsconf.Readable("--etcd-password-file", c.Etcd.PasswordFile))
	}
}

func (c Config) validateKeys(m *mistakes) {
	for i, p := range c.Prefixes {
		if p == "" {
			m.addf("--prefix \"\" means all keys: omit --prefix for that")
			continue
		}
		for _, q := range c.Prefixes[:i] {
			switch {
			case p == q:
				m.addf("--prefix %q is given twice", p)
			case q != "" && kv.Prefix(p).Overlaps(kv.Prefix(q)):
				m.addf("--prefix %q and --prefix %q overlap: keep the shorter one", q, p)
			}
		}
	}
	if len(c.Prefixes) > maxPrefixes {
		m.addf("%d --prefix: use %d at most; in a cluster that was founded with more, omit them", len(c.Prefixes), maxPrefixes)
	}
	switch {
	case c.Shards < 0 || c.Shards > maxShards:
		m.addf("--shards %d: use 1 to %d, or 0 for as few as --bootstrap-expect and --replicas need", c.Shards, maxShards)
	case c.FoundingShards() < len(c.Prefixes):
		m.addf("--shards (%d) is below the number of --prefix (%d): each prefix needs a shard", c.Shards, len(c.Prefixes))
	}
	if c.Replicas < 1 || c.Replicas > maxReplicas {
		m.addf("--replicas %d: use 1 to %d", c.Replicas, maxReplicas)
	}
}

func (e Elastic) validate(m *mistakes) {
	if e.SplitBytes != 0 && e.SplitBytes < minSplitBytes {
		m.addf("--split-bytes %s: at least %s, or 0 for any", e.SplitBytes, minSplitBytes)
	}
	if e.MaxShards < 1 || e.MaxShards > maxMaxShards {
		m.addf("--max-shards %d: use 1 to %d", e.MaxShards, maxMaxShards)
	}
	if e.SplitAfter < minSplitAfter {
		m.addf("--split-after %s: at least %s, the interval at which the load is checked", e.SplitAfter, minSplitAfter)
	}
	if e.MergeAfter < e.SplitAfter {
		m.addf("--merge-after (%s) must not be shorter than --split-after (%s)", e.MergeAfter, e.SplitAfter)
	}
	for _, f := range []struct {
		name string
		n    int
	}{
		{"split-events", e.SplitEvents},
		{"split-watches", e.SplitWatches},
		{"replica-watches", e.ReplicaWatches},
		{"max-extra-replicas", e.MaxExtraReplicas},
		{"max-moves", e.MaxMoves},
		{"max-node-moves", e.MaxNodeMoves},
	} {
		if f.n < 0 {
			m.addf("--%s %d: cannot be negative", f.name, f.n)
		}
	}
	if e.ReplaceVoterAfter < 0 {
		m.addf("--replace-voter-after %s: cannot be negative; 0 means never", e.ReplaceVoterAfter)
	}
}

// validateShared checks the bounds common to all nodes.
func (c Config) validateShared(m *mistakes) {
	if !slices.Contains(StatusPages(), c.StatusPage) {
		m.addf("--status-page %q: use %s", c.StatusPage, strings.Join(StatusPages(), ", "))
	}
	if c.WindowBytes < minWindowBytes {
		m.addf("--window-bytes %s: at least %s", c.WindowBytes, minWindowBytes)
	}
	if c.WindowTime < minWindowTime {
		m.addf("--window-time %s: at least %s", c.WindowTime, minWindowTime)
	}
	if c.Limits.Connections < 1 {
		m.addf("--max-connections %d: at least 1", c.Limits.Connections)
	}
	if c.Limits.ConnectionsPerAddress < 0 {
		m.addf("--max-connections-per-address %d: at least 1, or 0 for any number", c.Limits.ConnectionsPerAddress)
	}
	if r := c.Limits.AddressRate; r != 0 && r < minAddressRate {
		m.addf("--address-rate %s: at least %s, or 0 for no bound", r, minAddressRate)
	}
	if c.Limits.ClientBytes < minClientBytes {
		m.addf("--max-client-bytes %s: at least %s", c.Limits.ClientBytes, minClientBytes)
	}
	if c.Limits.WatchBytes < minWatchBytes {
		m.addf("--max-watch-bytes %s: at least %s", c.Limits.WatchBytes, minWatchBytes)
	}
}

func (c Config) validateBounds(m *mistakes) {
	c.Elastic.validate(m)
	c.validateShared(m)
	if c.Limits.AddressHandshakes < 0 {
		m.addf("--address-handshakes %d: at least 1, or 0 for any number", c.Limits.AddressHandshakes)
	}
	if c.HistoryBytes != 0 && c.HistoryBytes < minHistory {
		m.addf("--history-bytes %s: must be at least %s, or 0 to keep nothing", c.HistoryBytes, minHistory)
	}
	if c.MaxEtcdLists < 1 {
		m.addf("--max-etcd-lists %d: must be at least 1", c.MaxEtcdLists)
	}
	if c.TombstoneTime < 0 {
		m.addf("--tombstone-time %s: cannot be negative; 0 keeps no deletes", c.TombstoneTime)
	}
	if v := c.VerifyInterval; v < 0 || v > 0 && v < minVerify {
		m.addf("--verify-interval %s: at least %s, or 0 for never", v, minVerify)
	}
	if v := c.VerifyEtcdInterval; v < 0 || v > 0 && v < minVerifyEtcd {
		m.addf("--verify-etcd-interval %s: at least %s, or 0 for never: each time all keys are read from etcd", v, minVerifyEtcd)
	}
	if c.MaxStaleness < 0 {
		m.addf("--max-staleness %s: cannot be negative; 0 means any age", c.MaxStaleness)
	}
	if c.WatchProgressNotifyInterval < minNotify {
		m.addf("--watch-progress-notify-interval %s: at least %s", c.WatchProgressNotifyInterval, minNotify)
	}
	if !slices.Contains(ClientServers(), c.ClientServer) {
		m.addf("--client-server %q: use %s", c.ClientServer, strings.Join(ClientServers(), ", "))
	}
	if a := c.Limits.ConnectionAge; a != 0 && a < minAge {
		m.addf("--max-connection-age %s: at least %s, or 0 for never", a, minAge)
	}
	if c.Limits.WatchesPerStream < 1 {
		m.addf("--max-watches-per-stream %d: at least 1", c.Limits.WatchesPerStream)
	}
	if n := c.Limits.StreamsPerConnection; n < 1 || int64(n) > 1<<31-1 {
		m.addf("--max-streams-per-connection %d: use 1 to %d (HTTP/2's limit)", n, 1<<31-1)
	}
	if b := c.Limits.MessageBytes; b < minMessage || b > maxMessage {
		m.addf("--max-message-bytes %s: use %s (etcd's largest request) to %s", b, minMessage, maxMessage)
	}
	if c.Limits.Resyncs < 1 {
		m.addf("--max-resyncs %d: at least 1", c.Limits.Resyncs)
	}
	if r := c.Limits.ResyncRate; r != 0 && r < minResyncRate {
		m.addf("--resync-rate %s: at least %s, or 0 for no bound", r, minResyncRate)
	}
}

func (c Config) validateSecurity(m *mistakes) {
	m.add(c.ClientTLS.Validate(clientTLSNames))
	if c.ClientTLS.CA != "" && c.ClientTLS.Cert == "" && c.ClientTLS.Key == "" {
		m.addf("--tls-client-ca is given without --tls-cert and --tls-key: a port without TLS cannot ask for certificates")
	}
	c.validatePeers(m)
	if c.Policy != "" {
		m.add(tlsconf.Readable("--policy", c.Policy))
	}
	c.validateExposures(m)
}

// validatePeers reports mistakes in the security settings of the ports for other nodes.
func (c Config) validatePeers(m *mistakes) {
	m.add(c.PeerTLS.Validate(peerTLSNames))
	if p := c.PeerTLS; !p.IsZero() && (p.CA == "" || (p.Cert == "" && p.Key == "")) {
		m.addf("--peer-tls-cert, --peer-tls-key and --peer-tls-ca go together: nodes authenticate each other")
	}
	if len(c.PeerSANs) > 0 && c.PeerTLS.IsZero() {
		m.addf("--peer-tls-allowed-san is given without --peer-tls-cert, --peer-tls-key and --peer-tls-ca: ports without TLS see no certificates")
	}
	m.add(c.PeerSANs.Validate("peer-tls-allowed-san"))
	if c.GossipKeyFile != "" {
		_, err := c.GossipKeys()
		m.add(err)
	}
}

func (c Config) validateExposures(m *mistakes) {
	for _, e := range c.exposures() {
		if !slices.Contains(c.Insecure, e.port) {
			m.addf("%s is reachable from other machines without protection: give %s, listen on 127.0.0.1, or accept it with --insecure=%s", e.listener, e.missing, e.port)
		}
	}
}

// maxGossipKeys bounds the gossip keys: decryption tries each key for each packet.
const maxGossipKeys = 8

// GossipKeys reads the keys that encrypt gossip, 16, 24 or 32 bytes each: one a line in base64, without empty
// lines and comments (#). The first encrypts, all decrypt. It returns none if no file is named. The error names
// file and line, and never quotes the line.
func (c Config) GossipKeys() ([][]byte, error) {
	if c.GossipKeyFile == "" {
		return nil, nil
	}
	if err := tlsconf.Readable("--gossip-key-file", c.GossipKeyFile); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(c.GossipKeyFile)
	if err != nil {
		return nil, fmt.Errorf("--gossip-key-file: %w", err)
	}
	var keys [][]byte
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, err := base64.StdEncoding.DecodeString(line)
		if err != nil || !slices.Contains([]int{16, 24, 32}, len(key)) {
			return nil, fmt.Errorf("--gossip-key-file: %s:%d does not hold 16, 24 or 32 bytes in base64: make a key with `openssl rand -base64 32`", c.GossipKeyFile, n)
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 || len(keys) > maxGossipKeys {
		return nil, fmt.Errorf("--gossip-key-file: %s holds %d keys: want 1 to %d, one a line", c.GossipKeyFile, len(keys), maxGossipKeys)
	}
	return keys, nil
}

// Warnings are valid but risky settings, each with its flag. c
// is valid.
func (c Config) Warnings() []string {
	if c.Kube.Listen != "" {
		return c.kubeWarnings()
	}
	var w []string
	if e := c.BootstrapExpect; e > 0 && c.Replicas > e {
		w = append(w, fmt.Sprintf("--replicas (%d) is above --bootstrap-expect (%d): shards have fewer replicas until more nodes join", c.Replicas, e))
	}
	if c.BootstrapExpect > 1 && len(c.Join) == 0 {
		w = append(w, fmt.Sprintf("--bootstrap-expect is %d and --join names no node: this node waits until the others join it", c.BootstrapExpect))
	}
	for _, e := range c.exposures() {
		w = append(w, fmt.Sprintf("%s is open (--insecure): any client that can reach it %s", e.listener, e.risk))
	}
	if c.ClientTLS.Cert != "" && c.ClientTLS.CA == "" {
		w = append(w, "--tls-cert without --tls-client-ca: clients need no certificate and have the rights that etcd's authentication gives them: all rights while it is off")
	}
	if host, _, err := splitAddress(c.Listen.Client); c.Policy == "" && err == nil && !loopback(host) {
		w = append(w, "--policy is not given: while etcd's authentication is off, every client that --listen admits may read and write all keys and administer the nodes; define their rights in a policy")
	}
	for _, e := range c.Etcd.Endpoints {
		if u, err := url.Parse(e); err == nil && u.Scheme == "http" && !loopback(u.Hostname()) {
			w = append(w, fmt.Sprintf("--etcd %s: keys, values and passwords are sent unencrypted", e))
		}
	}
	return w
}

func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || (err == nil && ip.IsLoopback())
}
