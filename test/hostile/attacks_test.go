package hostile

import (
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
)

// The attacks' bytes match their descriptions, so that the node refuses them for the intended
// reason.
func TestNestedTransactionsAreTransactions(t *testing.T) {
	for levels := range 5 {
		var txn etcdserverpb.TxnRequest
		if err := proto.Unmarshal(nested(levels, 10), &txn); err != nil {
			t.Fatalf("%d levels: %v", levels, err)
		}
		depth, inner := 0, &txn
		for len(inner.GetSuccess()) == 1 {
			depth, inner = depth+1, inner.Success[0].GetRequestTxn()
		}
		if depth != levels || len(inner.GetSuccess()) != 5 {
			t.Errorf("%d levels with %d operations, want %d with 5", depth, len(inner.GetSuccess()), levels)
		}
	}
}
