package cache

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardwatch/shardwatch/internal/kv"
)

func TestFreshness(t *testing.T) {
	type do func(f *freshness)
	at := func(s int) time.Duration { return time.Duration(s) * time.Second }
	observe := func(s int, revision kv.Revision) do { return func(f *freshness) { f.observe(at(s), revision) } }
	reached := func(revision kv.Revision) do { return func(f *freshness) { f.reached(revision) } }
	for _, c := range []struct {
		name  string
		steps []do
		want  int // seconds; -1: unknown
	}{
		{"nothing heard", []do{reached(10)}, -1},
		{"ahead of etcd as it was", []do{reached(10), observe(1, 10)}, 1},
		{"behind etcd", []do{reached(10), observe(1, 11)}, -1},
		{"caught up", []do{reached(10), observe(1, 11), reached(11)}, 1},
		{"caught up with the first of two", []do{observe(1, 11), observe(2, 20), reached(15)}, 1},
		{"caught up with both", []do{observe(1, 11), observe(2, 20), reached(20)}, 2},
		{"then with the second", []do{observe(1, 11), observe(2, 20), reached(15), reached(20)}, 2},
		{"always older than the newest", []do{observe(1, 11), observe(2, 20), observe(3, 30), reached(11), observe(4, 40), reached(30)}, 3},
		{"a read of an older revision arrives late", []do{observe(2, 20), observe(1, 11), reached(15)}, 1},
		{"and the newer one is not forgotten", []do{observe(2, 20), observe(1, 11), reached(20)}, 2},
		{"nor after the same report again", []do{observe(1, 11), observe(2, 20), observe(1, 11), reached(20)}, 2},
		{"a later read finds the same", []do{observe(1, 11), observe(2, 11), reached(11)}, 2},
		{"nor after a read of an older revision", []do{observe(1, 11), observe(3, 30), observe(2, 10), reached(30)}, 3},
		{"an earlier read of the same arrives late", []do{observe(2, 11), observe(1, 11), reached(11)}, 2},
		{"never goes back", []do{reached(10), observe(5, 9), observe(1, 5), observe(4, 8)}, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			var f freshness
			for _, step := range c.steps {
				step(&f)
			}
			if f.known != (c.want >= 0) || f.known && f.freshAt != at(c.want) {
				t.Errorf("known %v, as of %v; want %ds", f.known, f.freshAt, c.want)
			}
		})
	}
}

func TestAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := loaded(small(nil), 10)
		if _, known := c.Age(); known {
			t.Error("the age is known before the first answer of etcd")
		}
		began := time.Now()
		time.Sleep(time.Second)
		c.Observe(began, 12)
		if _, known := c.Age(); known {
			t.Error("the age is known before the progress is reached")
		}
		c.advance(12)
		time.Sleep(time.Second)
		if age, known := c.Age(); !known || age != 2*time.Second {
			t.Errorf("%v %v", age, known)
		}
		c.Observe(time.Now().Add(time.Hour), 12)
		if age, _ := c.Age(); age != 0 {
			t.Errorf("age %v is below zero", age)
		}
		if st := c.Status(); !st.AgeKnown {
			t.Errorf("%+v", st)
		}
	})
}
