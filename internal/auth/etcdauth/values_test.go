package etcdauth

import (
	"encoding/base64"
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/internal/files/testseed"
)

func TestConfig(t *testing.T) {
	good := quick(&fake{})
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	bad := Config{Poll: time.Second}
	_, err := New(bad)
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"etcd: missing", "confirmation interval", "rereading", "patience", "peer timeout", "tokens", "lookups"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not named in:\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), "poll") {
		t.Errorf("the poll interval is right: %v", err)
	}
}

// Compared with a memory without a bound, the memory has the right values and the most recently used tokens, and
// never exceeds its bound.
func TestMemory(t *testing.T) {
	rng := testseed.Rand(t)
	const most = 20
	m := newMemory[int](most)
	all := map[tokenID]int{}
	var used []tokenID // oldest first
	use := func(id tokenID) { used = append(used, id) }
	forgot := 0
	for i := range 20_000 {
		var id tokenID
		binary.BigEndian.PutUint64(id[:], rng.Uint64N(3*most))
		switch rng.IntN(10) {
		case 0:
			m.drop(id)
			delete(all, id)
		case 1, 2, 3:
			m.put(id, i)
			all[id] = i
			use(id)
		default:
			v, ok := m.get(id)
			want, has := all[id]
			switch {
			case ok && (!has || v != want):
				t.Fatalf("step %d: got %d, want %d, %v", i, v, want, has)
			case !ok && has:
				recent := map[tokenID]bool{}
				for j := len(used) - 1; j >= 0 && len(recent) < most/2; j-- {
					recent[used[j]] = true
				}
				if recent[id] {
					t.Fatalf("step %d: a recently used token was dropped", i)
				}
				delete(all, id)
				forgot++
			case ok:
				use(id)
			}
		}
		if n := m.size(); n > most {
			t.Fatalf("step %d: %d entries", i, n)
		}
	}
	if forgot < 100 {
		t.Errorf("%d tokens dropped: the test must reach the bound", forgot)
	}
}

// A token is counted once, however often it is used: a repeated use evicts no other
// token.
func TestMemoryCountsATokenOnce(t *testing.T) {
	id := func(b byte) tokenID { return tokenID{b} }
	m := newMemory[int](4)
	m.put(id(1), 1)
	m.put(id(2), 2)
	m.put(id(1), 3) // two young tokens, as before
	if n := m.size(); n != 2 {
		t.Errorf("%d entries of two tokens", n)
	}
	m.put(id(3), 3) // now tokens one and two are old
	if v, ok := m.get(id(1)); !ok || v != 3 {
		t.Errorf("got %d, %v", v, ok)
	}
	if n := m.size(); n != 3 {
		t.Errorf("%d entries of three tokens", n)
	}
	m.drop(id(1))
	m.drop(id(2))
	if n := m.size(); n != 1 {
		t.Errorf("%d entries of one token", n)
	}
}

func TestClaim(t *testing.T) {
	payload := base64.RawURLEncoding.EncodeToString([]byte(`{"username":"ann"}`))
	for token, want := range map[string]string{
		"e30." + payload:              "", // two parts
		"e30." + payload + ".e30.e30": "", // four
		"e30." + payload + ".e30":     "ann",
		"":                            "",
		"a.b":                         "",
		"a.b.c":                       "",
		signed(`{"username":"ann","revision":3}`):                           "ann",
		signed(`{"username":"ann","revision":3}`) + ".x":                    "",
		signed(`{"username":"ann"`):                                         "",
		signed(`{"Username":"ann"}`):                                        "",
		signed(`{"username":7}`):                                            "",
		signed(`{"username":""}`):                                           "",
		signed(`["ann"]`):                                                   "",
		signed(`null`):                                                      "",
		strings.Replace(signed(`{"username":"ann"}`), ".", ".\n", 1):        "",
		strings.Replace(signed(`{"username":"ann"}`), ".", "=.", 1):         "",
		strings.Replace(signed(`{"username":"ann"}`), ".", ".\x00", 1):      "",
		signed(`{"username":"ann","username":"bob"}`):                       "bob",
		signed(`{"username":"` + strings.Repeat("ann", 100) + `"}`):         strings.Repeat("ann", 100),
		signed(`{"username":"ann"}`)[:len(signed(`{"username":"ann"}`))-12]: "",
	} {
		if got, ok := claim(token); got != want || ok != (want != "") {
			t.Errorf("%q: %q, %v", token, got, ok)
		}
	}
}

func FuzzClaim(f *testing.F) {
	f.Add(signed(`{"username":"ann"}`))
	f.Add("a.b.c")
	f.Fuzz(func(t *testing.T, token string) {
		user, ok := claim(token)
		if ok != (user != "") {
			t.Errorf("%q, %v", user, ok)
		}
		if ok && (strings.Count(token, ".") != 2 || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' })) {
			t.Errorf("%q would be sent to etcd", token)
		}
	})
}
