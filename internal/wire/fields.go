package wire

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// EachField calls fn for each field of a message, with its bytes or its number;
// those of other types have neither. It fails with kv.ErrMalformed, or as fn does.
func EachField(b []byte, fn func(num protowire.Number, v []byte, i uint64) error) error {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return fmt.Errorf("%w: a message: %w", kv.ErrMalformed, protowire.ParseError(n))
		}
		b = b[n:]
		var v []byte
		var i uint64
		switch typ {
		case protowire.BytesType:
			v, n = protowire.ConsumeBytes(b)
		case protowire.VarintType:
			i, n = protowire.ConsumeVarint(b)
		default:
			n = protowire.ConsumeFieldValue(num, typ, b)
		}
		if n < 0 {
			return fmt.Errorf("%w: field %d of a message: %w", kv.ErrMalformed, num, protowire.ParseError(n))
		}
		b = b[n:]
		if err := fn(num, v, i); err != nil {
			return err
		}
	}
	return nil
}
