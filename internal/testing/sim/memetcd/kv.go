package memetcd

import (
	"context"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/protobuf/proto"
)

// kvServer is etcd's KV service. Every read is of the newest state: with one
// member there is no other.
type kvServer struct {
	pb.UnimplementedKVServer
	*Server
}

func (s *kvServer) Range(_ context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	if err := validateRange(r); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts.Ranges++
	resp, err := s.store.read(r, s.store.rev())
	if err != nil {
		return nil, err
	}
	resp.Header = s.headerLocked(resp.Header.Revision)
	return resp, nil
}

func (s *kvServer) Put(_ context.Context, r *pb.PutRequest) (*pb.PutResponse, error) {
	if err := validatePut(r); err != nil {
		return nil, err
	}
	return s.put(r)
}

func (s *kvServer) DeleteRange(_ context.Context, r *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error) {
	if err := validateDelete(r); err != nil {
		return nil, err
	}
	return s.deleteRange(r)
}

func (s *kvServer) Txn(_ context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	if err := validateTxn(r); err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.counts.Txns++
	s.mu.Unlock()
	return s.txn(r)
}

func (s *kvServer) Compact(_ context.Context, r *pb.CompactionRequest) (*pb.CompactionResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.store.compact(r.Revision); err != nil {
		return nil, err
	}
	s.notifyLocked()
	return &pb.CompactionResponse{Header: s.headerLocked(s.store.rev())}, nil
}

func (s *Server) put(r *pb.PutRequest) (*pb.PutResponse, error) {
	if err := s.fits(r); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.store.checkIgnored(r); err != nil {
		return nil, err
	}
	w := s.store.write(time.Now())
	resp := w.put(r)
	s.commitLocked(w)
	resp.Header = s.headerLocked(resp.Header.Revision)
	return resp, nil
}

func (s *Server) deleteRange(r *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.store.write(time.Now())
	resp := w.deleteRange(r)
	s.commitLocked(w)
	resp.Header = s.headerLocked(resp.Header.Revision)
	return resp, nil
}

func (s *Server) txn(r *pb.TxnRequest) (*pb.TxnResponse, error) {
	if err := s.fits(r); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.store.choose(r)
	if err := s.store.check(c); err != nil {
		return nil, err
	}
	w := s.store.write(time.Now())
	resp, err := w.txn(c)
	if err != nil {
		return nil, err
	}
	s.commitLocked(w)
	resp.Header = s.headerLocked(w.seen())
	return resp, nil
}

func (s *Server) commitLocked(w *write) {
	w.commit()
	s.notifyLocked()
}

func (s *Server) fits(r proto.Message) error {
	if proto.Size(r) > s.config.MaxRequestBytes {
		return rpctypes.ErrGRPCRequestTooLarge
	}
	return nil
}
