package chaos

import (
	"slices"
	"strings"
)

// The APIs of the clients, as --api names them.
const (
	// Native is Shardwatch's own API, used through package client.
	Native = "native"
	// Etcd is etcd's API, used half by clientv3 and half by bare streams.
	Etcd = "etcd"
)

// APIs returns the names of all APIs, in the order of the report.
func APIs() []string { return []string{Native, Etcd} }

// kind is a kind of client. Each kind resumes in a different way.
type kind string

const (
	nativeClient kind = "native"
	etcdClient   kind = "etcd clientv3"
	etcdStream   kind = "etcd stream"
)

// kinds returns the kinds of clients for the given APIs, and the number of watches of each.
func kinds(apis []string, watches int) ([]kind, map[kind]int) {
	has := map[kind]int{}
	if slices.Contains(apis, Etcd) {
		half := watches
		if slices.Contains(apis, Native) {
			half = watches / 2
		}
		has[etcdClient] = half / 2
		has[etcdStream] = half - half/2
	}
	if slices.Contains(apis, Native) {
		has[nativeClient] = watches - has[etcdClient] - has[etcdStream]
	}
	var order []kind
	for _, k := range []kind{nativeClient, etcdClient, etcdStream} {
		if has[k] > 0 {
			order = append(order, k)
		}
	}
	return order, has
}

// target is a node as clients see it.
type target struct{ name, addr string }

// nameOf returns the name of the node at addr.
func nameOf(nodes []target, addr string) string {
	for _, n := range nodes {
		if n.addr == addr {
			return n.name
		}
	}
	return addr
}

func addrs(nodes []target) []string {
	out := make([]string, len(nodes))
	for i, n := range nodes {
		out[i] = n.addr
	}
	return out
}

// apiOf returns the API that a kind of client speaks.
func apiOf(k kind) string { return strings.Fields(string(k))[0] }
