package etcdconn

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A member counts as hung if it is silent, or does not reach the leader although another member does.
func TestHanging(t *testing.T) {
	well, silent, leaderless := reaction{led: true}, reaction{silent: true}, reaction{}
	for _, test := range []struct {
		members []reaction
		want    []bool
	}{
		{[]reaction{well, well, well}, []bool{false, false, false}},
		{[]reaction{well, silent, well}, []bool{false, true, false}},
		{[]reaction{leaderless, silent, leaderless}, []bool{false, true, false}}, // no leader yet
		{[]reaction{leaderless, silent, well}, []bool{false, true, false}},       // one member does not know the leader yet
		{[]reaction{leaderless, leaderless, leaderless}, []bool{false, false, false}},
		{[]reaction{well, well, leaderless}, []bool{false, false, true}}, // cut from the other members
		{[]reaction{silent, silent, well}, []bool{true, true, false}},
	} {
		if got := hanging(test.members); !slices.Equal(got, test.want) {
			t.Errorf("%+v: %v, want %v", test.members, got, test.want)
		}
	}
}

// A read that the leader has to confirm proves that the member reaches the leader, even if it is refused. Without
// a leader a member does not answer, or reports that. A learner never contacts the leader.
func TestLedBy(t *testing.T) {
	for err, want := range map[error]bool{
		nil:                                              true,
		rpctypes.ErrGRPCPermissionDenied:                 true,
		rpctypes.ErrGRPCInvalidAuthToken:                 true,
		rpctypes.ErrGRPCCompacted:                        true,
		rpctypes.ErrGRPCNoLeader:                         false,
		rpctypes.ErrGRPCLeaderChanged:                    false,
		rpctypes.ErrGRPCTimeout:                          false,
		rpctypes.ErrGRPCNotSupportedForLearner:           false,
		status.Error(codes.DeadlineExceeded, "deadline"): false,
	} {
		if got := ledBy(err); got != want {
			t.Errorf("%v: led by a leader: %v", err, got)
		}
	}
}

// Inquiries become less frequent while etcd as a whole is slow.
func TestInquiriesBecomeRare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		i := newInquiry(func(context.Context) { asked++ })
		began := time.Now()
		var at []time.Duration
		for time.Since(began) < 34*time.Second {
			before := asked
			i.start()
			synctest.Wait()
			if asked > before {
				at = append(at, time.Since(began))
			}
			time.Sleep(100 * time.Millisecond)
		}
		var pauses []time.Duration
		for n := range at[1:] {
			pauses = append(pauses, at[n+1]-at[n])
		}
		if s := time.Second; !slices.Equal(pauses, []time.Duration{s, 2 * s, 4 * s, 5 * s, 5 * s, 5 * s, 5 * s, 5 * s}) {
			t.Errorf("pauses: %v", pauses)
		}
		time.Sleep(3 * longestInquiryPause)
		i.start()
		synctest.Wait()
		before := asked
		time.Sleep(inquiryPause)
		i.start()
		synctest.Wait()
		if asked != before+1 {
			t.Error("the pause between inquiries was not reset after a long healthy time")
		}
		i.close()
		i.start()
		synctest.Wait()
		if asked != before+1 {
			t.Error("an inquiry after close")
		}
	})
}

// Only one inquiry runs at a time: the members get no other request before they have answered.
func TestInquiriesAreOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, answer := 0, make(chan struct{})
		i := newInquiry(func(context.Context) { asked++; <-answer })
		for range 20 {
			i.start()
			time.Sleep(inquiryPause)
			synctest.Wait()
		}
		if asked != 1 {
			t.Errorf("%d inquiries before the first one was answered, want 1", asked)
		}
		answer <- struct{}{}
		time.Sleep(longestInquiryPause)
		i.start()
		synctest.Wait()
		if asked != 2 {
			t.Errorf("%d inquiries after the first one was answered, want 2", asked)
		}
		close(answer)
		i.close()
	})
}

// If more than a minority is slow, etcd as a whole is slow, and no member is avoided. A member that answers again
// is used again.
func TestMinorityHangs(t *testing.T) {
	for n, most := range map[int]int{1: 0, 2: 1, 3: 1, 4: 1, 5: 2} {
		var all []endpoint
		for i := range n {
			all = append(all, endpoint{addr: fmt.Sprintf("10.0.0.%d:2379", i)})
		}
		r := newRoster(all, time.Second, nil)
		for hung := n; hung >= 0; hung-- {
			r.hanging, r.told = make(map[string]time.Time), make(map[string]chan struct{})
			hangs := make([]bool, n)
			for i := range hung {
				hangs[i] = true
			}
			want := hung
			if hung > most {
				want = 0
			}
			if fresh := r.judge(hangs); len(r.hanging) != want || len(fresh) != want {
				t.Errorf("%d of %d hang: %d are avoided, %d newly, want %d", hung, n, len(r.hanging), len(fresh), want)
			}
			if fresh := r.judge(hangs); len(fresh) != 0 {
				t.Errorf("%v are reported as newly avoided a second time", fresh)
			}
			if want == 0 {
				continue
			}
			r.reached["x"] = all[0].addr
			told := r.told[all[0].addr]
			select {
			case <-told:
			default:
				t.Error("the watches of a hung member are not notified")
			}
			if r.judge(make([]bool, n)); len(r.hanging) != 0 || r.told[all[0].addr] == told {
				t.Error("members that answer again are still avoided")
			}
			r.judge(hangs)
			r.mu.Lock()
			if r.expireLocked(time.Now().Add(hangFor)); len(r.hanging) != 0 {
				t.Error("a member is still avoided after its time")
			}
			r.mu.Unlock()
		}
	}
}
