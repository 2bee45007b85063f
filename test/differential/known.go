package differential

// Known is a difference between the tier and etcd that is meant.
type Known struct {
	Name string
	// Why it is so.
	Why string
	// Doc is the sentence of docs/etcd-compatibility.md that says so.
	Doc string
}

// KnownDifferences are all tolerated differences, except that of the member in
// the header: it is the node's.
func KnownDifferences() []Known {
	return []Known{olderReads(), shardOrder(), keptPrevious(), endedIsGone(), rightsAreChecked(), emptyIsEmpty(), namelessFirst(), cancelsLag()}
}

// olderReads: see run.older. The answer must be right for the revision that it
// says it is of.
func olderReads() Known {
	return Known{
		Name: "serializable reads of before",
		Doc:  "**Serializable reads and notifications lag.**",
		Why:  "a node serves them from its cache without asking anybody, as an etcd member that lags does",
	}
}

// shardOrder: see reading.byShard.
func shardOrder() Known {
	return Known{
		Name: "events of one revision shard by shard",
		Doc:  "Events of several shards come shard by shard",
		Why:  "each shard has a watch of its own at etcd, and nothing in an event says where it stood among those of others",
	}
}

// keptPrevious: see reading.judgeBatch. Those of revisions up to the compact
// one may be left out by both.
func keptPrevious() Known {
	return Known{
		Name: "previous values that etcd leaves out",
		Doc:  "**`prev_kv` is always present** if etcd has it",
		Why:  "a node keeps them with the event; etcd looks them up when it sends the event, if it knows by then that they were asked for",
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
		Name: "a watch ends when the right to it is gone",
		Doc:  "a running watch ends within 5 s after the right to read its range is withdrawn",
		Why:  "etcd checks when a watch is created, and never again",
	}
}

// emptyIsEmpty: see run.await.
func emptyIsEmpty() Known {
	return Known{
		Name: "a watch of an empty range is refused as that",
		Doc:  "**An empty range needs no rights.**",
		Why:  "there is nothing in it to be allowed to read; etcd looks for the right first, and finds one or not by where the range would be",
	}
}

// cancelsLag: see run.await.
func cancelsLag() Known {
	return Known{
		Name: "answers to cancels and refused creates carry an older revision",
		Doc:  "**The answer to a cancel, or to a create that is refused,** carries the newest revision that the node knows",
		Why:  "they are answered from memory: to ask etcd would let a progress answer pass them",
	}
}

// namelessFirst: see run.wrote.
func namelessFirst() Known {
	return Known{
		Name: "a caller without a name is refused first",
		Doc:  "a node refuses them without a token",
		Why:  "nothing that comes without a token gets to etcd, which might take the name in the node's certificate for the caller's",
	}
}
