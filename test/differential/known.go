package differential

// Known is an intended difference between the tier and etcd.
type Known struct {
	Name string
	// Why is the reason.
	Why string
	// Doc is a quote from docs/etcd-compatibility.md that documents it.
	Doc string
}

// KnownDifferences returns all tolerated differences, except for the member in the header, which is
// the node's.
func KnownDifferences() []Known {
	return []Known{olderReads(), shardOrder(), keptPrevious(), endedIsGone(), rightsAreChecked(), emptyIsEmpty(), namelessFirst(), cancelsLag()}
}

// olderReads: see run.older. The answer must be right for the revision in its header.
func olderReads() Known {
	return Known{
		Name: "serializable reads of before",
		Doc:  "**Serializable reads and notifications lag.**",
		Why:  "a node serves them from its cache without a request to etcd, like an etcd member that lags",
	}
}

// shardOrder: see reading.byShard.
func shardOrder() Known {
	return Known{
		Name: "events of one revision shard by shard",
		Doc:  "Events of several shards come shard by shard",
		Why:  "each shard has a watch of its own at etcd, and an event does not contain its position among events of other shards",
	}
}

// keptPrevious: see reading.judgeBatch. Both sides may leave out previous values of revisions up to
// the compact one.
func keptPrevious() Known {
	return Known{
		Name: "previous values that etcd leaves out",
		Doc:  "**`prev_kv` is always present** if etcd has it",
		Why:  "a node keeps them with the event; etcd looks them up when it sends the event, if it has processed the request for them by then",
	}
}

// endedIsGone: see run.forgetEnded.
func endedIsGone() Known {
	return Known{
		Name: "a watch cancelled as compacted is gone",
		Doc:  "**A cancelled watch is gone.**",
		Why:  "etcd keeps its ID in use, and gives no progress on its stream, until the client cancels it once more",
	}
}

// rightsAreChecked: see run.endForbidden.
func rightsAreChecked() Known {
	return Known{
		Name: "a watch ends when its right is withdrawn",
		Doc:  "a running watch ends within 5 s after the right to read its range is withdrawn",
		Why:  "etcd checks only when a watch is created",
	}
}

// emptyIsEmpty: see run.await.
func emptyIsEmpty() Known {
	return Known{
		Name: "a watch of an empty range is refused for that reason",
		Doc:  "**An empty range needs no rights.**",
		Why:  "it has no keys that need a right; etcd checks the right first, with a result that depends on the bounds of the range",
	}
}

// cancelsLag: see run.await.
func cancelsLag() Known {
	return Known{
		Name: "answers to cancels and refused creates carry an older revision",
		Doc:  "**The answer to a cancel, or to a create that is refused,** carries the newest revision that the node knows",
		Why:  "a node answers them from memory: a request to etcd would let a progress answer overtake them",
	}
}

// namelessFirst: see run.wrote.
func namelessFirst() Known {
	return Known{
		Name: "a caller without a name is refused first",
		Doc:  "a node refuses them without a token",
		Why:  "a node forwards no call without a token, because etcd might use the name in the node's certificate as the caller's",
	}
}
