package membership

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardwatch/shardwatch/internal/shard"
)

func TestRoster(t *testing.T) {
	t0 := time.Unix(1000, 0)
	at := func(s int) time.Time { return t0.Add(time.Duration(s) * time.Second) }
	member := func(state shard.State, uuid string) shard.Member {
		return shard.Member{Name: "b", UUID: uuid, State: state}
	}
	r := roster{retention: 10 * time.Second}
	steps := []struct {
		at      int
		seen    []shard.Member
		changed bool
		moves   int
		want    string // state and since
	}{
		{0, nil, false, 0, ""},
		{0, []shard.Member{member(shard.Dead, "")}, false, 0, ""},
		{1, []shard.Member{member(shard.Alive, "u")}, true, 1, "1 at 1"},
		{2, []shard.Member{member(shard.Alive, "u")}, false, 0, "1 at 1"},
		{3, []shard.Member{{Name: "b", UUID: "u", State: shard.Alive, Draining: true}}, true, 0, "1 at 1"},
		{4, []shard.Member{member(shard.Suspect, "u")}, true, 1, "2 at 4"},
		{5, []shard.Member{member(shard.Suspect, "u")}, false, 0, "2 at 4"},
		{6, []shard.Member{member(shard.Alive, "v")}, true, 1, "1 at 6"},
		{7, []shard.Member{member(shard.Alive, "w")}, true, 1, "1 at 7"},
		{8, nil, true, 1, "3 at 8"}, // forgotten while alive: dead
		{18, nil, false, 0, "3 at 8"},
		{19, nil, true, 0, ""},
	}
	for i, s := range steps {
		changed, moves := r.observe(at(s.at), s.seen)
		got := ""
		for _, m := range r.list() {
			got = string('0'+rune(m.State)) + " at " + m.Since.Sub(t0).String()
			got = strings.TrimSuffix(got, "s")
		}
		if changed != s.changed || len(moves) != s.moves || got != s.want {
			t.Errorf("step %d: got %v, %d moves, %q; want %v, %d, %q", i, changed, len(moves), got, s.changed, s.moves, s.want)
		}
	}
}

func TestRosterIsBounded(t *testing.T) {
	r := roster{retention: time.Hour}
	now := time.Unix(1000, 0)
	for i := range maxGone + 50 {
		r.observe(now.Add(time.Duration(i)*time.Millisecond), []shard.Member{{Name: shard.NodeID(time.Duration(i).String()), UUID: "u", State: shard.Left}})
	}
	if got := len(r.list()); got != maxGone {
		t.Errorf("%d kept, want %d", got, maxGone)
	}
}

func TestConflict(t *testing.T) {
	t0 := time.Unix(1000, 0)
	at := func(s int) time.Time { return t0.Add(time.Duration(s) * time.Second) }
	old := meta{Member: shard.Member{Name: "a", UUID: "old", GossipAddress: "10.0.0.1:1"}, started: at(-100)}
	young := meta{Member: shard.Member{Name: "a", UUID: "young", GossipAddress: "10.0.0.2:1"}, started: at(0)}

	c := conflict{limit: 30 * time.Second, pause: 5 * time.Second}
	for s := range 100 {
		if err := c.claimed(at(s), old, young); err != nil {
			t.Fatalf("the older node gives up the name: %v", err)
		}
	}

	c = conflict{limit: 30 * time.Second, pause: 5 * time.Second}
	var err error
	gaveUp := 0
	for s := 0; s < 100 && err == nil; s++ {
		switch s {
		case 10, 11, 12, 13, 14, 15: // silence: the old node may be gone
		case 25:
			c.settled()
		default:
			err = c.claimed(at(s), young, old)
			gaveUp = s
		}
	}
	var taken *NameTakenError
	if !errors.As(err, &taken) || gaveUp != 26+30 {
		t.Fatalf("gave up after %d s with %v, want after 56", gaveUp, err)
	}
	for _, want := range []string{"10.0.0.1:1", "--name", `"a"`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not contain %q", err, want)
		}
	}
	young.started = old.started
	if !newcomer(young, old) || newcomer(old, young) {
		t.Error("a tie must be decided the same on both sides")
	}
}

func TestValidateNamesEveryMistake(t *testing.T) {
	cfg := Config{
		Self: shard.Member{ClientAddress: "nonsense"}, BindAddr: "[::]:7946", Join: []string{"host", ":7"},
		SecretKeys: [][]byte{[]byte("short")}, ProbeTimeout: 2 * time.Second, ProbeInterval: time.Second,
		RetryInterval: 3 * time.Second, RejoinInterval: 2 * time.Second,
	}
	err := cfg.Validate()
	for _, want := range []string{
		"no name", "no UUID", `client address: "nonsense"`, "every IPv6 address", `join address "host"`, `join address ":7"`, "gossip key 1",
		"probe timeout (2s) must be shorter than probe interval (1s)", "retry interval (3s)", "suspicion multiplier", "leave timeout (0s)", "dead retention",
		"reclaim time (0s)",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not contain %q: %v", want, err)
		}
	}
	good := Defaults()
	good.Self = shard.Member{Name: "a", UUID: uuidA}
	if err := good.Validate(); err != nil {
		t.Errorf("the defaults: %v", err)
	}
	for addr, ok := range map[string]bool{"": true, "10.0.0.1": true, "fd00::1": true, "[fd00::1]:7946": true, "pod.svc:7946": true, "pod": true, "a b": false, "pod:x": false, ":7946": false} {
		good.AdvertiseAddr = addr
		if err := good.Validate(); (err == nil) != ok {
			t.Errorf("advertise %q: %v", addr, err)
		}
	}
	good.AdvertiseAddr = ""
	good.Self.Name = shard.NodeID(observerName)
	if good.Validate() == nil {
		t.Error("a node may be called like the observer")
	}
}

func TestMemberlistLinesBecomeQuietRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := newLogger(slog.New(slog.NewTextHandler(&out, nil)))
		l.Print("[ERR] memberlist: failed to receive: No installed keys from=1")
		l.Print("[ERR] memberlist: failed to receive: No installed keys from=2")
		l.Print("[WARN] memberlist: Refuting a suspect message (from: b)")
		l.Print("[DEBUG] memberlist: Stream connection from=1")
		l.Print("[ERR] memberlist: Failed push/pull merge: " + errObserver.Error())
		time.Sleep(lineQuiet)
		l.Print("[ERR] memberlist: failed to receive: No installed keys from=3")
		got := out.String()
		if strings.Count(got, "\n") != 2 || !strings.Contains(got, "from=1") || !strings.Contains(got, "from=3") || !strings.Contains(got, "level=WARN") {
			t.Errorf("got\n%s", got)
		}
	})
}
