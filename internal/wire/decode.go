package wire

import (
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/protofields"
)

// ListMessage is a shardwatch.v1.ListResponse.
type ListMessage struct {
	Revision kv.Revision
	Lineage  uint64
	Cluster  string
	Count    int64         // below 0: not told
	Age      time.Duration // below 0: not told
	KVs      []*kv.KeyValue
	Deleted  []string // with changed_since: keys that do not exist
}

// DecodeListMessage reads a shardwatch.v1.ListResponse. Its key/values keep b, which
// must not change afterwards.
func DecodeListMessage(b []byte) (ListMessage, error) {
	m := ListMessage{Count: -1, Age: -1}
	for f, err := range protofields.All(b, kv.ErrMalformed) {
		switch {
		case err != nil:
		case f.Type == protowire.BytesType && f.Number == items:
			var item *kv.KeyValue
			item, err = kv.DecodeKeyValue(f.Bytes)
			m.KVs = append(m.KVs, item)
		case f.Type == protowire.BytesType && f.Number == listDeleted:
			m.Deleted = append(m.Deleted, string(f.Bytes))
		case f.Type == protowire.BytesType && f.Number == listCluster:
			m.Cluster = string(f.Bytes)
		case f.Type == protowire.BytesType && f.Number == listAge:
			var age durationpb.Duration
			if err = proto.Unmarshal(f.Bytes, &age); err != nil {
				err = fmt.Errorf("%w: age: %w", kv.ErrMalformed, err)
			}
			m.Age = age.AsDuration()
		case f.Type != protowire.VarintType:
		case f.Number == listRevision:
			m.Revision = kv.Revision(f.Uint) //nolint:gosec // proto's int64
		case f.Number == listLineage:
			m.Lineage = f.Uint
		case f.Number == listCount:
			m.Count = int64(f.Uint) //nolint:gosec // proto's int64
		}
		if err != nil {
			return m, fmt.Errorf("list: %w", err)
		}
	}
	return m, nil
}

// Range returns the range of a request, or a *kv.InvalidError.
func Range(key, end []byte) (kv.Range, error) {
	r, err := kv.RangeFromEtcd(key, end)
	switch {
	case errors.Is(err, kv.ErrEmptyKey):
		return r, &kv.InvalidError{Field: "key", Reason: err.Error()}
	case err != nil:
		return r, &kv.InvalidError{Field: "range_end", Reason: err.Error()}
	}
	return r, nil
}
