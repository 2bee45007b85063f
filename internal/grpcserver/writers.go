package grpcserver

import (
	"runtime"
	"sync"
)

// writers write the outputs of connections whose streams have sent messages: a few
// goroutines for all connections. What a connection's streams send until one of them comes
// to it leaves in one system call, and a message to many connections wakes them once.
type writers struct {
	once  sync.Once
	mu    sync.Mutex
	work  sync.Cond // they wait on it; its lock is mu
	queue []*conn   // guarded by mu
	ended bool      // guarded by mu
}

// start starts them, once, as goroutines of all.
func (w *writers) start(all *sync.WaitGroup) {
	w.once.Do(func() {
		w.work.L = &w.mu
		for range runtime.GOMAXPROCS(0) {
			all.Go(w.run)
		}
	})
}

// stop ends them, once no connection is left.
func (w *writers) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	w.work.Broadcast()
}

// add has a connection's output written soon.
func (w *writers) add(c *conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue = append(w.queue, c)
	if len(w.queue) == 1 {
		w.work.Signal()
	}
}

func (w *writers) run() {
	w.mu.Lock()
	defer w.mu.Unlock()
	var mine []*conn
	for {
		for len(w.queue) == 0 {
			if w.ended {
				return
			}
			w.work.Wait()
		}
		mine, w.queue = w.queue, mine[:0]
		w.mu.Unlock()
		for _, c := range mine {
			c.mu.Lock()
			c.queued = false
			c.flushLocked()
			c.mu.Unlock()
		}
		clear(mine)
		w.mu.Lock()
	}
}

// flushSoonLocked has the output written by one of the writers.
func (c *conn) flushSoonLocked() {
	switch {
	case len(c.out) >= maxOut/2:
		c.flushLocked()
	case len(c.out) > 0 && !c.queued && !c.writing && !c.stalled:
		c.queued = true
		c.srv.writers.add(c)
	}
}
