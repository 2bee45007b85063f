package gateway

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"google.golang.org/grpc/peer"
)

// hosts are the names that the Host header of a request without TLS may have, *.example.org
// for all of a domain, and * for any. Addresses and localhost are always allowed: no
// name that an attacker controls leads to them. Without a list, any name is allowed but
// at loopback, where only programs of the same machine, browsers among them, connect.
type hosts []string

// allow reports whether a request names a host that it may. A page in a browser whose
// name is made to lead to a node (DNS rebinding) names its own.
func (h hosts) allow(r *http.Request) bool {
	at, ok := peer.FromContext(r.Context())
	if ok && at.AuthInfo != nil && at.AuthInfo.AuthType() == "tls" {
		return true // its certificate has been checked
	}
	name := strings.TrimSuffix(strings.ToLower(hostOf(r.Host)), ".")
	if _, err := netip.ParseAddr(name); err == nil || name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return true
	}
	if len(h) == 0 {
		return !ok || !isLoopback(at.LocalAddr)
	}
	for _, allowed := range h {
		domain, any := strings.CutPrefix(strings.ToLower(allowed), "*")
		if any && (domain == "" || strings.HasSuffix(name, domain)) || !any && name == domain {
			return true
		}
	}
	return false
}

func isLoopback(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

func hostOf(hostport string) string {
	if host, _, err := net.SplitHostPort(hostport); err == nil {
		return host
	}
	return strings.Trim(hostport, "[]")
}

func unknownHost(host string) string {
	return fmt.Sprintf("this node does not accept the host name %q without TLS: use TLS or an address, or name it with --json-hosts (this keeps pages in browsers from reaching the node under a name of theirs)", hostOf(host))
}
