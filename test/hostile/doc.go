// Package hostile attacks a real cache node over its sockets, while a quiet crowd
// of watches and a reader use it, and measures the cost of the attack to them.
//
// Read [Run] first. For every attack it starts a cachenode process with the settings
// and the memory limit of deploy/k8s/base in front of a real etcd, connects the crowd,
// and takes turns: a calm round, a round under attack, and a control round, in which a
// process that leaves the node alone uses as much CPU time as the attacker did. The
// attacker is a process of its own. It stands for another machine: the node has cores that no other
// process uses ([Config].Apart), and the attacker runs on those of the crowd
// and etcd while they do not ([Idle]).
//
//	writer ──▶ etcd ──▶ node ──▶ crowd: 500 watches, one reader
//	                     ▲  ▲
//	          attacker ──┘  └── probes, as a kubelet makes them
//
// An attack exceeds its bounds ([Row.Exceeded]) if the node's memory grows too far above rest,
// the crowd becomes too slow, a probe fails, the process ends, or the attacker gets
// something that it has no right to.
//
// An attack is one function that runs until its context ends, and an entry in
// [Attacks].
package hostile
