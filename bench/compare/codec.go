package main

import (
	"fmt"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// codec sends etcd's messages and decodes answers in place: the client shares the machine with the
// servers under test.
type codec struct{}

// scanner decodes an answer. The message is invalid after scan has returned.
type scanner interface {
	scan(mem.BufferSlice) error
}

func (codec) Name() string { return "proto" }

func (codec) Marshal(v any) (mem.BufferSlice, error) {
	m, ok := v.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("cannot send a %T", v)
	}
	b, err := proto.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode a %T: %w", v, err)
	}
	return mem.BufferSlice{mem.SliceBuffer(b)}, nil
}

func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	s, ok := v.(scanner)
	if !ok {
		return fmt.Errorf("cannot receive a %T", v)
	}
	return s.scan(data)
}
