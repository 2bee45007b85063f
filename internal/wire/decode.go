package wire

import (
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/shardwatch/shardwatch/internal/kv"
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

// DecodeListMessage reads a shardwatch.v1.ListResponse. Its key/values keep b;
// it must not change afterwards.
func DecodeListMessage(b []byte) (ListMessage, error) {
	m := ListMessage{Count: -1, Age: -1}
	for at := 0; at < len(b); {
		num, typ, n := protowire.ConsumeTag(b[at:])
		if n < 0 {
			return m, fmt.Errorf("%w: list: tag at %d: %w", kv.ErrMalformed, at, protowire.ParseError(n))
		}
		at += n
		switch {
		case num == items && typ == protowire.BytesType:
			v, n := protowire.ConsumeBytes(b[at:])
			if n < 0 {
				return m, fmt.Errorf("%w: list: key/value at %d: %w", kv.ErrMalformed, at, protowire.ParseError(n))
			}
			at += n
			item, err := kv.DecodeKeyValue(v[:len(v):len(v)])
			if err != nil {
				return m, err
			}
			m.KVs = append(m.KVs, item)
		case num == listDeleted && typ == protowire.BytesType:
			v, n := protowire.ConsumeBytes(b[at:])
			if n < 0 {
				return m, fmt.Errorf("%w: list: deleted key at %d: %w", kv.ErrMalformed, at, protowire.ParseError(n))
			}
			at += n
			m.Deleted = append(m.Deleted, string(v))
		case num == listCluster && typ == protowire.BytesType:
			v, n := protowire.ConsumeBytes(b[at:])
			if n < 0 {
				return m, fmt.Errorf("%w: list: cluster ID at %d: %w", kv.ErrMalformed, at, protowire.ParseError(n))
			}
			at += n
			m.Cluster = string(v)
		case num == listAge && typ == protowire.BytesType:
			v, n := protowire.ConsumeBytes(b[at:])
			if n < 0 {
				return m, fmt.Errorf("%w: list: age at %d: %w", kv.ErrMalformed, at, protowire.ParseError(n))
			}
			at += n
			var age durationpb.Duration
			if err := proto.Unmarshal(v, &age); err != nil {
				return m, fmt.Errorf("%w: list: age: %w", kv.ErrMalformed, err)
			}
			m.Age = age.AsDuration()
		case num <= listCount && typ == protowire.VarintType:
			v, n := protowire.ConsumeVarint(b[at:])
			if n < 0 {
				return m, fmt.Errorf("%w: list: field %d: %w", kv.ErrMalformed, num, protowire.ParseError(n))
			}
			at += n
			switch num {
			case listRevision:
				m.Revision = kv.Revision(v) //nolint:gosec // proto's int64
			case listLineage:
				m.Lineage = v
			case listCount:
				m.Count = int64(v) //nolint:gosec // proto's int64
			}
		default:
			n := protowire.ConsumeFieldValue(num, typ, b[at:])
			if n < 0 {
				return m, fmt.Errorf("%w: list: field %d: %w", kv.ErrMalformed, num, protowire.ParseError(n))
			}
			at += n
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
