package wire

import (
	"encoding/binary"
	"fmt"
	"io"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/protofields"
)

// EachField calls fn for each field of a message, with its bytes or its number; fields
// of other types have neither. It fails with kv.ErrMalformed, or with fn's error.
func EachField(b []byte, fn func(num protowire.Number, v []byte, i uint64) error) error {
	for f, err := range protofields.All(b, kv.ErrMalformed) {
		if err != nil {
			return err
		}
		if err := fn(f.Number, f.Bytes, f.Uint); err != nil {
			return err
		}
	}
	return nil
}

// ReadFields is EachField of a reader, which frees the buffers it has read. The bytes of a field stay
// unchanged. fn is not called for fields that skip selects.
func ReadFields(in *mem.Reader, skip func(num protowire.Number) bool, fn func(num protowire.Number, v []byte, i uint64) error) error {
	for in.Remaining() > 0 {
		tag, err := binary.ReadUvarint(in)
		if err != nil {
			return fmt.Errorf("%w: a message: %w", kv.ErrMalformed, err)
		}
		num, typ := protowire.DecodeTag(tag)
		var v []byte
		var i uint64
		skipped := skip(num)
		switch typ {
		case protowire.VarintType:
			i, err = binary.ReadUvarint(in)
		case protowire.BytesType:
			v, err = readBytes(in, skipped)
		case protowire.Fixed32Type:
			_, err = in.Discard(4)
		case protowire.Fixed64Type:
			_, err = in.Discard(8)
		default:
			err = fmt.Errorf("unknown type %d", typ)
		}
		if err != nil {
			return fmt.Errorf("%w: field %d of a message: %w", kv.ErrMalformed, num, err)
		}
		if skipped {
			continue
		}
		if err := fn(num, v, i); err != nil {
			return err
		}
	}
	return nil
}

// readBytes returns the bytes of a field; none if it is skipped.
func readBytes(in *mem.Reader, skip bool) ([]byte, error) {
	size, err := binary.ReadUvarint(in)
	switch {
	case err != nil:
		return nil, err //nolint:wrapcheck // the caller does
	case size > uint64(in.Remaining()): //nolint:gosec // it is positive
		return nil, io.ErrUnexpectedEOF
	case skip:
		_, err = in.Discard(int(size)) //nolint:gosec // less than what there is
		return nil, err                //nolint:wrapcheck // the caller does
	}
	v := make([]byte, size)
	_, err = io.ReadFull(in, v)
	return v, err //nolint:wrapcheck // the caller does
}
