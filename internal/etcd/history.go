package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/shardwatch/shardwatch/internal/etcd/etcdconn"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// HistoryRequest is a part of the past.
type HistoryRequest struct {
	Range kv.Range
	// From is the first revision that is wanted, Before the first that is not, etcd's revision plus one at most.
	From, Before kv.Revision
	// PrevKV asks for previous values, as far as etcd still has them.
	PrevKV bool
	// MaxBytes is the size from which on the answer is cut, between two revisions. Must be above 0.
	MaxBytes int
}

// LogPage is a page of etcd's log.
type LogPage struct {
	Batches []kv.Batch
	// Next is the revision to continue with: all that happened before it is in
	// Batches. Less than HistoryRequest.Before when the answer was cut, which
	// may be before the first revision when many ask for much.
	Next kv.Revision
	Took time.Duration // how long etcd was asked for it
}

const (
	// maxTogether bounds the requests that are answered by one stream: etcd reads its log once for so many
	// watches that catch up (mvcc/watchable_store.go, maxWatchersPerSync).
	maxTogether = 512
	// maxTogetherBytes bounds the bytes of their batches, but for the last response.
	maxTogetherBytes = 32 << 20
	// maxPastMessage bounds one response in bytes: it is freed as it is
	// decoded, and no more of it is kept than a request wants. A larger one is fetched in
	// fragments, for which etcd reads its log again.
	maxPastMessage = 64 << 20
	// historyTimeout bounds one stream.
	historyTimeout = 30 * time.Second
	// historyEvery is how often etcd is asked whether all has come.
	historyEvery = 20 * time.Millisecond
	// gatherFor is how long a stream waits for more callers: those of one client come at about the same time.
	gatherFor = 10 * time.Millisecond
)

// History reads a part of the past that a window no longer holds from etcd's own
// log. It fails with a *kv.CompactedError whose floor is etcd's
// compact revision.
//
// It is dear for etcd, which reads its log from the lowest revision on. So
// concurrent callers are answered together, by one stream for up to 512
// that has a permit. A response may have 64 MiB: no Follow shares its connection.
func (c *Client) History(ctx context.Context, r HistoryRequest) (LogPage, error) {
	one := &pastRead{HistoryRequest: r, done: make(chan struct{})}
	c.pastReads.add(one)
	for {
		select {
		case <-one.done:
			if one.err == nil {
				one.err = c.Admit(ctx, 0)
			}
			return one.history, one.err
		case <-ctx.Done():
			c.pastReads.remove(one)
			return LogPage{}, fmt.Errorf("read etcd's history: %w", ctx.Err())
		case c.historian <- struct{}{}:
			err := c.readWaiting(ctx)
			<-c.historian
			if err != nil {
				c.pastReads.remove(one)
				return LogPage{}, err
			}
		}
	}
}

// readWaiting answers the waiting callers. Another goroutine may have done so by now.
func (c *Client) readWaiting(ctx context.Context) error {
	if c.pastReads.none() {
		return nil
	}
	release, err := c.permits.Acquire(ctx, "read history")
	if err != nil {
		return err
	}
	defer release()
	time.Sleep(gatherFor)
	c.readTogether(context.WithoutCancel(ctx), c.pastReads.take(maxTogether)) // they have not given up if we do
	return nil
}

// pastRead is a request that waits or is being answered.
type pastRead struct {
	HistoryRequest
	history LogPage
	err     error
	done    chan struct{} // closed when the above are set

	// For the goroutine that reads for it.
	a     *assembly
	bytes int
	over  bool
}

// pastReads are the requests that wait. The zero pastReads are none.
type pastReads struct {
	mu   sync.Mutex
	list []*pastRead // guarded by mu
}

func (p *pastReads) add(one *pastRead) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list = append(p.list, one)
}

func (p *pastReads) none() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.list) == 0
}

func (p *pastReads) remove(one *pastRead) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.list, one); i >= 0 {
		p.list = slices.Delete(p.list, i, i+1)
	}
}

func (p *pastReads) take(most int) []*pastRead {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := min(most, len(p.list))
	out := slices.Clone(p.list[:n])
	p.list = slices.Delete(p.list, 0, n)
	return out
}

// readTogether answers all of batch.
func (c *Client) readTogether(ctx context.Context, batch []*pastRead) {
	ctx, cancel := context.WithTimeout(ctx, historyTimeout)
	defer cancel()
	fragment, began := c.largePast.touches(batch), time.Now()
	err := c.readPast(ctx, batch, fragment)
	if errors.Is(err, etcdconn.ErrToken) {
		err = c.readPast(ctx, batch, fragment) // with a new token
	}
	if errors.Is(err, etcdconn.ErrTooLarge) && !fragment {
		c.largePast = spanOf(batch)
		err = c.readPast(ctx, batch, true)
	}
	for _, one := range batch {
		if !one.over {
			one.err = fmt.Errorf("read etcd's history of %v from %d: %w", one.Range, one.From, err)
		}
		one.history.Took = time.Since(began)
		close(one.done)
	}
}

// pastSpan is where responses begin that exceeded maxPastMessage, as revisions: [from, to).
// The zero pastSpan is none.
type pastSpan struct{ from, to kv.Revision }

// maxPastRevisions is how many revisions etcd sends in one response at most
// (mvcc/watcher_group.go, watchBatchMaxRevs).
const maxPastRevisions = 1000

// spanOf returns where the responses to batch begin, and those that share revisions with them.
func spanOf(batch []*pastRead) pastSpan {
	out := pastSpan{from: batch[0].From, to: batch[0].From}
	for _, one := range batch {
		out.from, out.to = min(out.from, one.From), max(out.to, one.From)
	}
	out.to += maxPastRevisions
	return out
}

// touches reports whether a response to batch begins in the span: to ask for it in one piece would
// have etcd read its log, and encode all of the response, for nothing.
func (s pastSpan) touches(batch []*pastRead) bool {
	return slices.ContainsFunc(batch, func(one *pastRead) bool { return s.from <= one.From && one.From < s.to })
}

// readPast reads the rest of batch, by one stream with a watch for each; see
// position.fragment.
func (c *Client) readPast(ctx context.Context, batch []*pastRead, fragment bool) error {
	batch = slices.DeleteFunc(slices.Clone(batch), func(one *pastRead) bool { return one.over })
	for _, one := range batch {
		one.a = newAssembly(one.From)
		one.history = LogPage{Next: one.From}
	}
	ctx, cancel := context.WithCancel(ctx)
	var sending sync.WaitGroup
	defer sending.Wait()
	defer cancel()
	stream, err := c.openWatch(ctx, c.Past, grpc.MaxCallRecvMsgSize(min(c.cfg.MaxResponseBytes, maxPastMessage)))
	if err != nil {
		return err
	}
	for _, one := range batch {
		stream.last.keep = max(stream.last.keep, one.MaxBytes)
	}
	c.count.histories.Add(1)
	defer c.count.opened()()
	created := make(chan struct{})        // all watches are
	ended := make(chan int64, len(batch)) // IDs of watches that etcd has ended
	sending.Go(func() { askForPast(ctx, stream, batch, fragment, created, ended) })
	for left, answered, bytes := len(batch), 0, 0; left > 0 && bytes < maxTogetherBytes; {
		r, err := stream.receive()
		if err != nil {
			return etcdconn.Broken("receive", err)
		}
		// A cut is behind a whole revision. As a fragment, the response would leave that to the next
		// one, which is not read: a page without an event begins again at the same revision.
		r.fragment = r.fragment && !r.cut
		about := concerned(batch, r, answered)
		if r.created {
			if answered++; answered == len(batch) {
				close(created)
			}
		}
		for _, one := range about {
			if one.over {
				continue
			}
			updates, err := one.a.add(r, time.Now())
			if errors.Is(err, etcdconn.ErrToken) {
				c.Forget(stream.token)
				return err
			}
			if one.err = err; err != nil {
				one.over = true
				if r.watch != anyWatch {
					ended <- r.watch
				}
			} else {
				bytes += one.take(updates)
				one.over = one.over || r.cut
			}
			if one.over {
				left--
			}
		}
	}
	for _, one := range batch {
		one.over = true
	}
	return nil
}

// concerned returns which requests of batch a response is about, after etcd has
// answered that many of them. The number of a request is the ID of its watch, but
// a watch that etcd refuses has none: the refusal is told apart by its place,
// because one loop of etcd answers all requests of a stream in their order
// (api/v3rpc/watch.go, recvLoop).
func concerned(batch []*pastRead, r *watchResponse, answered int) []*pastRead {
	id := r.watch
	if r.created && r.canceled && id == anyWatch {
		id = int64(answered + 1)
	}
	switch {
	case id == anyWatch:
		return batch
	case id >= 1 && id <= int64(len(batch)):
		return batch[id-1 : id]
	}
	return nil
}

// askForPast sends the requests: the watches, and once they are there, for
// progress, which shows that no more events are to come. A watch that etcd has
// ended must be cancelled, or there is none for the others (watchable_store.go,
// progressIfSync).
func askForPast(ctx context.Context, stream *watchStream, batch []*pastRead, fragment bool, created <-chan struct{}, ended <-chan int64) {
	for i, one := range batch {
		key, end := one.Range.Etcd()
		// When sending fails, receiving says why (grpc.ClientStream.SendMsg).
		_ = stream.Send(createRequest(&etcdserverpb.WatchCreateRequest{
			Key: key, RangeEnd: end, StartRevision: int64(one.From), WatchId: int64(i + 1), PrevKv: one.PrevKV, Fragment: fragment,
		}))
	}
	every := time.NewTicker(historyEvery)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-created:
			created = nil
			_ = stream.Send(progressRequest())
		case id := <-ended:
			_ = stream.Send(cancelRequest(id))
		case <-every.C:
			if created == nil {
				_ = stream.Send(progressRequest())
			}
		}
	}
}

// take keeps the requested events, until it has all or enough of them, and returns their size.
func (one *pastRead) take(updates []kv.Update) (bytes int) {
	for _, u := range updates {
		if u.Kind == kv.UpdateBatch && u.Revision < one.Before {
			one.history.Batches = append(one.history.Batches, u.Batch)
			for i := range u.Batch.Events {
				bytes += kv.EventSize(&u.Batch.Events[i], true)
			}
		}
		one.history.Next = min(u.Revision+1, one.Before)
		if one.over = one.history.Next == one.Before || one.bytes+bytes >= one.MaxBytes; one.over {
			break
		}
	}
	one.bytes += bytes
	return bytes
}
