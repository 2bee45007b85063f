// Package hostile attacks a real cache node over its sockets, while a crowd of watches and a reader
// use it, and measures the cost of the attack to them.
//
// Read [Run] first. For every attack it starts a cachenode process with the settings and the memory
// limit of deploy/k8s/base in front of a real etcd, connects the crowd, and alternates: a calm
// round, a round under attack, and a control round, in which a process that does not touch the node
// uses as much CPU time as the attacker did. The attacker is a separate process. It represents
// another machine: the node has cores that no other process uses ([Config].Apart), and the attacker
// runs on the cores of the crowd and etcd when those are idle ([Idle]).
//
//	writer ──▶ etcd ──▶ node ──▶ crowd: 500 watches, one reader
//	                     ▲  ▲
//	          attacker ──┘  └── probes, as a kubelet makes them
//
// An attack exceeds its bounds ([Row.Exceeded]) if the node's memory grows too far above rest, the
// crowd becomes too slow, a probe fails, the process ends, or the attacker gets an answer that it
// has no right to.
//
// An attack is a function that runs until its context ends, and an entry in [Attacks].
package hostile
