package wire_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/wire"
)

func TestTokens(t *testing.T) {
	p := wire.Position{Cluster: wire.ClusterKey("c1"), Lineage: 3, Range: kv.Prefix("/a/"), Revision: 1 << 40, Next: "/a/k\x00"}
	page := wire.PageToken(p)
	if got, err := wire.ParsePageToken(page, p.Range); err != nil || got != p {
		t.Fatalf("page token: %+v, %v", got, err)
	}
	p.Next = ""
	resume := wire.ResumeToken(p)
	if got, err := wire.ParseResumeToken(resume, p.Range); err != nil || got != p {
		t.Fatalf("resume token: %+v, %v", got, err)
	}
	refused := func(name, want string, b []byte, r kv.Range) {
		t.Helper()
		_, err := wire.ParseResumeToken(b, r)
		var invalid *kv.InvalidError
		if !errors.As(err, &invalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want InvalidError", name, err)
		}
	}
	refused("other range", "another key", resume, kv.Prefix("/b/"))
	refused("page as resume", "another kind", page, p.Range)
	refused("empty", "too short", nil, p.Range)
	other := p
	other.Cluster = wire.ClusterKey("c2")
	if got, err := wire.ParseResumeToken(wire.ResumeToken(other), p.Range); err != nil || got != other || got == p {
		t.Errorf("token of another cluster: %+v, %v", got, err)
	}
	for i := range resume {
		if _, err := wire.ParseResumeToken(resume[:i], p.Range); err == nil {
			t.Errorf("a token cut to %d bytes is accepted", i)
		}
		b := append([]byte(nil), resume...)
		b[i] ^= 0x10
		if _, err := wire.ParseResumeToken(b, p.Range); err == nil {
			t.Errorf("a token with a flipped bit in byte %d is accepted", i)
		}
	}
}

func FuzzParseToken(f *testing.F) {
	f.Add(wire.ResumeToken(wire.Position{Revision: 5}))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _ = wire.ParseResumeToken(b, kv.Range{})
		_, _ = wire.ParsePageToken(b, kv.Range{})
	})
}
