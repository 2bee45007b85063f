package node

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// If a part of the node holds its lock forever, the node reports this part, and only then.
func TestStuckPartIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lock sync.Mutex
		free := make(chan struct{})
		p := &pulse{parts: []vital{
			{"the quick part", func() {}},
			{"the locked part", func() {
				lock.Lock()
				wait := free
				lock.Unlock()
				<-wait
			}},
		}}
		close(free)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- p.run(ctx) }()
		time.Sleep(time.Hour)
		if why := p.stuck(); why != "" {
			t.Errorf("while all parts answer: %q", why)
		}
		lock.Lock()
		free = make(chan struct{})
		lock.Unlock()
		time.Sleep(20 * time.Second)
		if why := p.stuck(); why != "" {
			t.Errorf("after 20 s: %q", why)
		}
		time.Sleep(25 * time.Second)
		if why := p.stuck(); !strings.HasPrefix(why, "the locked part: no answer for ") {
			t.Errorf("after 45 s: %q", why)
		}
		lock.Lock()
		close(free)
		lock.Unlock()
		time.Sleep(pulseEvery + time.Second)
		if why := p.stuck(); why != "" {
			t.Errorf("after the part answers again: %q", why)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
