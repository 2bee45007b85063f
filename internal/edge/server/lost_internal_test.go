package server

import (
	"errors"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// The lost answer of a call that may write is reported as executed, without a retry delay; a read may be retried.
func TestTheErrorOfALostAnswer(t *testing.T) {
	refused := &kv.LimitError{Limit: "--max", Max: 7, Detail: "full, then retry", RetryAfter: time.Second}
	if err := lost(etcdserverpb.KV_Range_FullMethodName, refused); !errors.Is(err, error(refused)) {
		t.Errorf("a read: %v", err)
	}
	var err *kv.LimitError
	if !errors.As(lost(etcdserverpb.KV_Put_FullMethodName, refused), &err) || err.RetryAfter != 0 || err.Max != 7 ||
		!strings.Contains(err.Detail, "was executed") || strings.Contains(err.Detail, "retry") {
		t.Errorf("a write: %+v", err)
	}
}
