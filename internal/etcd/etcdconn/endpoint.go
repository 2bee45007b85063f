package etcdconn

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
)

// endpoint is the address of one member of etcd.
type endpoint struct {
	name   string // as configured
	addr   string // host:port
	secure bool
}

// parseEndpoints reads the values of --etcd. Without a scheme an endpoint is secure
// when secure is set. It returns all mistakes.
func parseEndpoints(names []string, secure bool) (endpoints []endpoint, errs []error) {
	if len(names) == 0 {
		return nil, []error{errors.New("--etcd: name at least one endpoint, for example 127.0.0.1:2379")}
	}
	seen := make(map[string]string)
	for _, name := range names {
		e, err := parseEndpoint(name, secure)
		if err != nil {
			errs = append(errs, fmt.Errorf("--etcd: %q: %w", name, err))
			continue
		}
		if other, ok := seen[e.addr]; ok {
			errs = append(errs, fmt.Errorf("--etcd: %q and %q are the same endpoint", other, name))
			continue
		}
		seen[e.addr] = name
		endpoints = append(endpoints, e)
	}
	for _, e := range endpoints {
		if e.secure != endpoints[0].secure {
			errs = append(errs, fmt.Errorf("--etcd: %q is encrypted and %q is not: all endpoints of a cluster must be alike",
				pick(e.secure, e, endpoints[0]).name, pick(e.secure, endpoints[0], e).name))
			break
		}
	}
	return endpoints, errs
}

func pick(first bool, a, b endpoint) endpoint {
	if first {
		return a
	}
	return b
}

func parseEndpoint(name string, secure bool) (endpoint, error) {
	e := endpoint{name: name, addr: name, secure: secure}
	if strings.Contains(name, "://") {
		u, err := url.Parse(name)
		if err != nil {
			return e, errors.New("not a URL")
		}
		if u.Scheme != "http" && u.Scheme != "https" {
			return e, fmt.Errorf("scheme %q is not known: use http, https, or host:port alone", u.Scheme)
		}
		if strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
			return e, errors.New("an endpoint has no path, query or user: use host:port")
		}
		if u.Scheme == "http" && secure {
			return e, errors.New("http together with certificates for etcd: use https, or leave the certificates out")
		}
		e.addr, e.secure = u.Host, u.Scheme == "https"
	}
	host, port, err := net.SplitHostPort(e.addr)
	if err != nil {
		return e, errors.New("use host:port, for example 127.0.0.1:2379")
	}
	if host == "" || strings.ContainsAny(host, "/ ") {
		return e, errors.New("the host is missing or wrong: use host:port, for example 127.0.0.1:2379")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return e, fmt.Errorf("port %q is not a number from 1 to 65535", port)
	}
	return e, nil
}
