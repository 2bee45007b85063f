package wire

import (
	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// KeyValue returns the value that the message carries.
func KeyValue(m *shardwatchv1.KeyValue) *kv.KeyValue {
	return kv.NewKeyValue(kv.Fields{
		Key: m.GetKey(), Value: m.GetValue(),
		CreateRevision: kv.Revision(m.GetCreateRevision()), ModRevision: kv.Revision(m.GetModRevision()),
		Version: m.GetVersion(), Lease: m.GetLease(),
	})
}
