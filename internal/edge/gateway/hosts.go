package gateway

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"google.golang.org/grpc/peer"
)

// hosts are the names allowed in the Host header of a request without TLS: *.example.org for all of a domain, *
// for any. Addresses and localhost are always allowed, because no attacker controls their resolution. Without a
// list, any name is allowed except on loopback connections, which come only from programs of the same machine,
// such as browsers.
type hosts []string

// allow reports whether the host name of a request is allowed. In a DNS rebinding attack, a page resolves its
// own name to a node, and the browser sends this name.
func (h hosts) allow(r *http.Request) bool {
	at, ok := peer.FromContext(r.Context())
	if ok && at.AuthInfo != nil && at.AuthInfo.AuthType() == "tls" {
		return true // the client has checked the certificate
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
	return fmt.Sprintf("this node does not accept the host name %q without TLS: use TLS or an address, or name it with --json-hosts (this protects the node from DNS rebinding by pages in browsers)", hostOf(host))
}
