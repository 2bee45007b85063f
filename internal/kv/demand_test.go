package kv_test

import (
	"fmt"
	"testing"

	"github.com/shardwatch/shardwatch/internal/kv"
)

func TestDemandReachesEachSource(t *testing.T) {
	var d kv.Demand
	var got []string
	serve := func(name string, after kv.Revision) func() {
		return d.Serve(after, func(r kv.Revision) { got = append(got, fmt.Sprint(name, r)) })
	}
	is := func(when, want string) {
		t.Helper()
		if s := fmt.Sprint(got); s != want {
			t.Errorf("%s: requests %s, want %s", when, s, want)
		}
		got = nil
	}
	endA := serve("a", 0)
	is("before a request", "[]")
	d.Ask(50)
	d.Ask(20)
	is("a lower request is passed on, too", "[a50 a20]")
	endB := serve("b", 49)
	is("the second source gets the highest request", "[b50]")
	endC := serve("c", 50)
	is("the third source begins after it", "[]")
	endA()
	endA()
	d.Ask(60)
	is("the first source has ended", "[b60 c60]")
	endB()
	endC()
	d.Ask(70)
	is("without sources", "[]")
	serve("d", -1)
	is("a later source", "[d70]")
	var none *kv.Demand
	none.Serve(0, func(kv.Revision) { t.Error("a nil Demand requests a revision") })()
}
