package node

import (
	"google.golang.org/grpc"

	"github.com/shardwatch/shardwatch/internal/auth/etcdauth"
)

func buildEtcdAuth(n *Node) error {
	c := etcdauth.Defaults()
	c.Etcd, c.Peers, c.Logger = n.cfg.Etcd, n.others, n.log
	var err error
	n.etcdAuth, err = etcdauth.New(c)
	return err
}

// others returns connections to the other nodes, without those that gossip reports as dead.
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
