package main

import (
	"fmt"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// codec sends messages of etcd's and reads answers in place: the client shares the
// machine with the servers under test.
type codec struct{}

// scanner looks at an answer. The message is gone when scan has returned.
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
