package protofields_test

import (
	"errors"
	"fmt"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/shardwatch/shardwatch/internal/protofields"
)

func TestAll(t *testing.T) {
	malformed := errors.New("malformed")
	whole := protowire.AppendTag(nil, 1, protowire.BytesType)
	whole = protowire.AppendString(whole, "a")
	whole = protowire.AppendTag(whole, 20, protowire.VarintType)
	whole = protowire.AppendVarint(whole, 300)
	whole = protowire.AppendTag(whole, 3, protowire.Fixed32Type)
	whole = protowire.AppendFixed32(whole, 7)
	for n, want := range map[int]string{
		len(whole):     "1 0-3 a 0; 20 3-7  300; 3 7-12  0; ",
		len(whole) - 1: "1 0-3 a 0; 20 3-7  300; malformed: field 3: unexpected EOF",
		4:              "1 0-3 a 0; malformed: tag at 3: unexpected EOF",
		2:              "malformed: field 1: unexpected EOF",
		0:              "",
	} {
		got := ""
		for f, err := range protofields.All(whole[:n], malformed) {
			if err != nil {
				if got += err.Error(); !errors.Is(err, malformed) {
					t.Errorf("%v does not wrap the caller's error", err)
				}
				continue
			}
			if cap(f.Bytes) != len(f.Bytes) {
				t.Errorf("field %d has room to append in the message", f.Number)
			}
			got += fmt.Sprintf("%d %d-%d %s %d; ", f.Number, f.At, f.End, f.Bytes, f.Uint)
		}
		if got != want {
			t.Errorf("%d bytes: %q, want %q", n, got, want)
		}
	}
}
