package membership

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/memberlist"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/shardwatch/shardwatch/internal/protofields"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// metaVersion is the first byte of the metadata. It changes only when older
// nodes can no longer read the rest; new fields do not change it.
const metaVersion = 1

// The fields of the metadata, in protobuf's wire form after the version.
// Unknown fields are ignored.
const (
	metaUUID      = 1 // bytes: 16 for a UUID in its usual form, otherwise as text
	metaHost      = 2 // bytes, repeated: hosts for the addresses, counted from 1
	metaClient    = 3 // varint: host's number << 16 | port; host 0 is gossip's
	metaPeer      = 4 // as above
	metaRaft      = 5 // as above
	metaHTTP      = 6 // as above
	metaZone      = 7 // bytes
	metaSoftware  = 8 // bytes
	metaCluster   = 9 // bytes, as the UUID
	metaBootstrap = 10
	metaDraining  = 11
	metaStarted   = 12 // varint: when the process started, ms since 1970
	metaLevel     = 13 // varint: the feature level
	metaVoter     = 14
	metaWeight    = 15 // varint; left out for 1
)

// meta is the metadata that a node gossips about itself.
type meta struct {
	shard.Member
	// started identifies the newcomer when two nodes claim one name.
	started time.Time
}

// encodeMeta encodes m for other nodes. It may omit gossipHost from addresses.
func encodeMeta(m meta, gossipHost string) ([]byte, error) {
	b := []byte{metaVersion}
	bytesField := func(num protowire.Number, v []byte) {
		if len(v) > 0 {
			b = protowire.AppendTag(b, num, protowire.BytesType)
			b = protowire.AppendBytes(b, v)
		}
	}
	intField := func(num protowire.Number, v uint64) {
		if v != 0 {
			b = protowire.AppendTag(b, num, protowire.VarintType)
			b = protowire.AppendVarint(b, v)
		}
	}

	bytesField(metaUUID, packUUID(m.UUID))
	var hosts []string
	var errs []error
	for _, a := range addressFields(&m.Member) {
		if *a.value == "" {
			continue
		}
		host, port, err := splitAddress(*a.value)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s address: %w", a.what, err))
			continue
		}
		number := 0
		if host != "" && host != gossipHost {
			if number = slices.Index(hosts, host) + 1; number == 0 {
				hosts = append(hosts, host)
				number = len(hosts)
				bytesField(metaHost, []byte(host))
			}
		}
		intField(a.field, uint64(number)<<16|uint64(port))
	}
	bytesField(metaZone, []byte(m.Zone))
	bytesField(metaSoftware, []byte(m.Version))
	bytesField(metaCluster, packUUID(m.ClusterID))
	intField(metaBootstrap, uint64(max(m.BootstrapExpect, 0)))
	if m.Draining {
		intField(metaDraining, 1)
	}
	intField(metaLevel, uint64(max(m.Level, 0)))
	if m.Voter {
		intField(metaVoter, 1)
	}
	if m.Weight > 1 {
		intField(metaWeight, uint64(m.Weight))
	}
	if ms := m.started.UnixMilli(); !m.started.IsZero() && ms > 0 {
		intField(metaStarted, uint64(ms))
	}
	if len(b) > memberlist.MetaMaxSize {
		errs = append(errs, fmt.Errorf("the node's addresses, zone, version and IDs take %d bytes, and gossip carries %d: use shorter or fewer different host names", len(b), memberlist.MetaMaxSize))
	}
	return b, errors.Join(errs...)
}

// checkMeta reports whether self will still fit with a cluster ID, a vote, a drain
// and a start time.
func checkMeta(self shard.Member) error {
	self.ClusterID = strings.Repeat("x", maxClusterID)
	self.Draining, self.Voter = true, true
	_, err := encodeMeta(meta{Member: self, started: time.UnixMilli(1 << 42)}, "")
	return err
}

// maxClusterID bounds a cluster ID in bytes: a UUID as text.
const maxClusterID = 36

var errMeta = errors.New("malformed metadata")

// decodeMeta reads the output of encodeMeta. Every input gives a result or an
// error that wraps errMeta.
func decodeMeta(b []byte, gossipHost string) (meta, error) {
	var m meta
	if len(b) == 0 || b[0] != metaVersion {
		return m, fmt.Errorf("%w: not version %d", errMeta, metaVersion)
	}
	b = b[1:]
	var hosts []string
	addresses := make(map[protowire.Number]uint64, 4)
	for f, err := range protofields.All(b, errMeta) {
		if err != nil {
			return m, err
		}
		m.set(f)
		switch {
		case f.Type == protowire.BytesType && f.Number == metaHost:
			hosts = append(hosts, string(f.Bytes))
		case f.Type == protowire.VarintType:
			addresses[f.Number] = f.Uint
		}
	}
	err := m.setAddresses(addresses, hosts, gossipHost)
	return m, err
}

// set sets a field that is not an address.
func (m *meta) set(f protofields.Field) {
	if f.Type == protowire.BytesType {
		switch f.Number {
		case metaUUID:
			m.UUID = unpackUUID(f.Bytes)
		case metaZone:
			m.Zone = string(f.Bytes)
		case metaSoftware:
			m.Version = string(f.Bytes)
		case metaCluster:
			m.ClusterID = unpackUUID(f.Bytes)
		}
	}
	if f.Type == protowire.VarintType {
		switch f.Number {
		case metaBootstrap:
			m.BootstrapExpect = int(min(f.Uint, 1<<16))
		case metaLevel:
			m.Level = int(min(f.Uint, 1<<16))
		case metaDraining:
			m.Draining = f.Uint != 0
		case metaVoter:
			m.Voter = f.Uint != 0
		case metaWeight:
			m.Weight = int(min(f.Uint, shard.MaxWeight))
		case metaStarted:
			m.started = time.UnixMilli(int64(min(f.Uint, 1<<48)))
		}
	}
}

// setAddresses sets the addresses, each from a port and the number of its host in hosts.
// 0 and an unspecified host stand for gossipHost.
func (m *meta) setAddresses(addresses map[protowire.Number]uint64, hosts []string, gossipHost string) error {
	for _, a := range addressFields(&m.Member) {
		v, ok := addresses[a.field]
		if !ok {
			continue
		}
		host, number := gossipHost, v>>16
		if v&0xffff == 0 {
			return fmt.Errorf("%w: %s address without a port", errMeta, a.what)
		}
		if number > uint64(len(hosts)) {
			return fmt.Errorf("%w: %s address names host %d of %d", errMeta, a.what, number, len(hosts))
		}
		if number > 0 && !unspecified(hosts[number-1]) {
			host = hosts[number-1]
		}
		*a.value = net.JoinHostPort(host, strconv.FormatUint(v&0xffff, 10))
	}
	return nil
}

type addressField struct {
	what  string
	field protowire.Number
	value *string
}

func addressFields(m *shard.Member) [4]addressField {
	return [4]addressField{
		{"client", metaClient, &m.ClientAddress},
		{"peer", metaPeer, &m.PeerAddress},
		{"raft", metaRaft, &m.RaftAddress},
		{"HTTP", metaHTTP, &m.HTTPAddress},
	}
}

// splitAddress splits host:port. It returns an unspecified host as "".
func splitAddress(s string) (host string, port uint16, err error) {
	host, p, err := net.SplitHostPort(s)
	if err != nil {
		return "", 0, fmt.Errorf("%q is not host:port: %w", s, err)
	}
	n, err := strconv.ParseUint(p, 10, 16)
	if err != nil || n == 0 {
		return "", 0, fmt.Errorf("%q: port %q is not a number from 1 to 65535", s, p)
	}
	if unspecified(host) {
		host = ""
	}
	return host, uint16(n), nil
}

func unspecified(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "" || err == nil && ip.IsUnspecified()
}

// packUUID shortens a UUID in its usual form to 16 bytes. It keeps other text,
// and lengthens text of 16 bytes.
func packUUID(s string) []byte {
	if len(s) == 36 && s[8] == '-' && s[13] == '-' && s[18] == '-' && s[23] == '-' && s == strings.ToLower(s) {
		if b, err := hex.DecodeString(strings.ReplaceAll(s, "-", "")); err == nil && len(b) == 16 {
			return b
		}
	}
	if len(s) == 16 {
		return append([]byte(s), 0)
	}
	return []byte(s)
}

// unpackUUID is packUUID's inverse.
func unpackUUID(b []byte) string {
	switch {
	case len(b) == 16:
		h := hex.EncodeToString(b)
		return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
	case len(b) == 17 && b[16] == 0:
		return string(b[:16])
	}
	return string(b)
}
