package wire_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/wire"
)

func TestTokens(t *testing.T) {
	p := wire.Position{ClusterID: "c1", Lineage: 3, Range: kv.Prefix("/a/"), Revision: 1 << 40, Next: "/a/k\x00"}
	page := wire.PageToken(p)
	if got, err := wire.ParsePageToken(page, "c1", p.Range); err != nil || got != p {
		t.Fatalf("page token: %+v, %v", got, err)
	}
	p.Next = ""
	resume := wire.ResumeToken(p)
	if got, err := wire.ParseResumeToken(resume, "c1", p.Range); err != nil || got != p {
		t.Fatalf("resume token: %+v, %v", got, err)
	}
	refused := func(name, want string, b []byte, cluster string, r kv.Range) {
		t.Helper()
		_, err := wire.ParseResumeToken(b, cluster, r)
		var invalid *kv.InvalidError
		if !errors.As(err, &invalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	refused("other cluster", "another cluster", resume, "c2", p.Range)
	refused("other range", "another key", resume, "c1", kv.Prefix("/b/"))
	refused("page as resume", "another kind", page, "c1", p.Range)
	refused("empty", "too short", nil, "c1", p.Range)
	for i := range resume {
		if _, err := wire.ParseResumeToken(resume[:i], "c1", p.Range); err == nil {
			t.Errorf("cut at %d: accepted", i)
		}
		b := append([]byte(nil), resume...)
		b[i] ^= 0x10
		if _, err := wire.ParseResumeToken(b, "c1", p.Range); err == nil {
			t.Errorf("bit flipped at %d: accepted", i)
		}
	}
}

func FuzzParseToken(f *testing.F) {
	f.Add(wire.ResumeToken(wire.Position{Revision: 5}))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _ = wire.ParseResumeToken(b, "", kv.Range{})
		_, _ = wire.ParsePageToken(b, "", kv.Range{})
	})
}
