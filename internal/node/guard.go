package node

import (
	"google.golang.org/grpc"

	"github.com/shardwatch/shardwatch/internal/auth/etcdauth"
)

func buildGuard(n *Node) error {
	c := etcdauth.Defaults()
	c.Etcd, c.Peers, c.Logger = n.cfg.Etcd, n.others, n.log
	var err error
	n.guard, err = etcdauth.New(c)
	return err
}

// others returns ways to the other nodes, but for those that gossip calls gone.
func (n *Node) others() []grpc.ClientConnInterface {
	var out []grpc.ClientConnInterface
	for _, m := range n.members.Members() {
		if m.Name == n.self {
			continue
		}
		if conn, err := n.peers.Conn(m.Name); err == nil {
			out = append(out, conn)
		}
	}
	return out
}
