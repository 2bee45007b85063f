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

// HistoryRequest asks for a part of the past.
type HistoryRequest struct {
	Range kv.Range
	// From is the first revision to read, Before the first revision after the part: at most etcd's revision plus one.
	From, Before kv.Revision
	// PrevKV asks for previous values where etcd still has them.
	PrevKV bool
	// MaxBytes is the size from which the answer is cut, between two revisions. It must be above 0.
	MaxBytes int
}

// LogPage is a page of etcd's log.
type LogPage struct {
	Batches []kv.Batch
	// Next is the revision to continue with: Batches is complete below it. It is less
	// than HistoryRequest.Before when the answer was cut, which may be before the first
	// revision when many callers ask for much.
	Next kv.Revision
	Took time.Duration // how long the read of etcd took
}

const (
	// maxTogether bounds the requests that share one stream: etcd reads its log once for that many watches
	// that catch up (mvcc/watchable_store.go, maxWatchersPerSync).
	maxTogether = 512
	// maxTogetherBytes bounds the bytes of their batches, except for the last response.
	maxTogetherBytes = 32 << 20
	// maxPastMessage bounds one response in bytes. It is freed as it is decoded, and only
	// the requested part is kept. A larger response is fetched in fragments, for which
	// etcd reads its log again.
	maxPastMessage = 64 << 20
	// historyTimeout bounds one stream.
	historyTimeout = 30 * time.Second
	// historyEvery is how often etcd is asked for progress, which shows that all events have come.
	historyEvery = 20 * time.Millisecond
	// gatherFor is how long a stream waits for more callers: the callers of one client come at about the same time.
	gatherFor = 10 * time.Millisecond
)

// History reads a part of the past that a window no longer holds from etcd's own
// log. It fails with a *kv.CompactedError whose floor is etcd's
// compact revision.
//
// It is expensive for etcd, which reads its log from the lowest revision on. So up to
// 512 concurrent callers share one stream, which has a permit. A response may have 64
// MiB: no Follow shares its connection.
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

// readWaiting answers the waiting callers, unless another goroutine has done so by now.
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
	c.readTogether(context.WithoutCancel(ctx), c.pastReads.take(maxTogether)) // they still wait if we give up
	return nil
}

// pastRead is a request that waits or is in progress.
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

// pastReads are the waiting requests. The zero value has none.
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

// pastSpan has the first revisions of responses that exceeded maxPastMessage: [from, to).
// The zero pastSpan is empty.
type pastSpan struct{ from, to kv.Revision }

// maxPastRevisions is the largest number of revisions that etcd sends in one response
// (mvcc/watcher_group.go, watchBatchMaxRevs).
const maxPastRevisions = 1000

// spanOf returns the first revisions of the responses to batch, and of responses that share revisions with them.
func spanOf(batch []*pastRead) pastSpan {
	out := pastSpan{from: batch[0].From, to: batch[0].From}
	for _, one := range batch {
		out.from, out.to = min(out.from, one.From), max(out.to, one.From)
	}
	out.to += maxPastRevisions
	return out
}

// touches reports whether a response to batch begins in the span. If it were requested in one
// piece, etcd would read its log and encode all of the response for nothing.
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
	created := make(chan struct{})        // closed when all watches are
	ended := make(chan int64, len(batch)) // IDs of watches that etcd has ended
	sending.Go(func() { askForPast(ctx, stream, batch, fragment, created, ended) })
	for left, answered, bytes := len(batch), 0, 0; left > 0 && bytes < maxTogetherBytes; {
		r, err := stream.receive()
		if err != nil {
			return etcdconn.Broken("receive", err)
		}
		// A cut is after a whole revision. As a fragment, the response would leave that revision to
		// the next one, which is not read: a page without an event begins again at the same revision.
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

// concerned returns the requests of batch that a response belongs to, after etcd has
// answered that many of them. The number of a request is the ID of its watch, but a
// watch that etcd refuses has none. A refusal is assigned by its position, because one
// loop of etcd answers all requests of a stream in order (api/v3rpc/watch.go,
// recvLoop).
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

// askForPast sends the requests: the watches, and once they are created, requests for
// progress, which shows that no more events will come. A watch that etcd has ended must
// be cancelled, or there is no progress for the others (watchable_store.go,
// progressIfSync).
func askForPast(ctx context.Context, stream *watchStream, batch []*pastRead, fragment bool, created <-chan struct{}, ended <-chan int64) {
	for i, one := range batch {
		key, end := one.Range.Etcd()
		// When sending fails, receiving returns the cause (grpc.ClientStream.SendMsg).
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
