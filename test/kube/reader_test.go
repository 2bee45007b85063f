package kube_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/shardwatch/shardwatch/internal/kube/object"
)

// reader is the store of a reflector of config maps. It keeps only versions, so that thousands of
// reflectors fit into one process.
type reader struct {
	name     string
	selector string

	mu     sync.Mutex
	held   map[string]int64 // guarded by mu; the version of each object
	at     int64            // guarded by mu; version of the newest event or list
	lists  int              // guarded by mu
	events int              // guarded by mu
	wrong  []string         // guarded by mu
}

func (r *reader) version(o any) (name string, version int64) {
	m := o.(*corev1.ConfigMap)
	version, err := strconv.ParseInt(m.ResourceVersion, 10, 64)
	if err != nil {
		r.wrong = append(r.wrong, err.Error())
	}
	return m.Name, version
}

// Add implements cache.ReflectorStore. Versions of events only grow, which excludes repeated and
// resurrected objects.
func (r *reader) Add(o any) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events++
	name, version := r.version(o)
	if version <= r.at {
		r.wrong = append(r.wrong, fmt.Sprintf("%s has version %d after version %d", name, version, r.at))
	}
	r.held[name], r.at = version, max(r.at, version)
	return nil
}

// Update implements cache.ReflectorStore.
func (r *reader) Update(o any) error { return r.Add(o) }

// Delete implements cache.ReflectorStore. A node that sends a difference uses the client's own
// version for deletes, so it may equal the previous one.
func (r *reader) Delete(o any) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events++
	name, version := r.version(o)
	if _, ok := r.held[name]; !ok || version < r.at {
		r.wrong = append(r.wrong, fmt.Sprintf("%s is deleted at version %d, held: %v, after version %d", name, version, ok, r.at))
	}
	delete(r.held, name)
	r.at = max(r.at, version)
	return nil
}

// Replace implements cache.ReflectorStore: the reflector has listed again.
func (r *reader) Replace(all []any, version string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lists++
	clear(r.held)
	for _, o := range all {
		name, version := r.version(o)
		r.held[name] = version
	}
	at, err := strconv.ParseInt(version, 10, 64)
	r.at = at
	return err
}

// Resync implements cache.ReflectorStore.
func (r *reader) Resync() error { return nil }

// awaits waits until the store has a version of an object.
func (r *reader) awaits(ctx context.Context, t *testing.T, name string, version int64) {
	t.Helper()
	for {
		r.mu.Lock()
		has := r.held[name]
		r.mu.Unlock()
		if has >= version {
			return
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("%s has version %d of %s, want %d", r.name, has, name, version)
		}
	}
}

// hasListed waits until the reflector has a list.
func (r *reader) hasListed(ctx context.Context, t *testing.T) {
	t.Helper()
	eventually(ctx, t, r.name+" lists", func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.lists == 0 {
			return errors.New("it has not")
		}
		return nil
	})
}

// audience are reflectors at one URL.
type audience struct {
	readers []*reader
	bytes   atomic.Int64 // of response bodies

	mu       sync.Mutex
	failures map[string]int // guarded by mu; failed requests, by their answer
}

// failed returns the failed requests since the last call.
func (a *audience) failed() map[string]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := a.failures
	a.failures = map[string]int{}
	return all
}

// perConnection is the number of reflectors per connection, like the informers of one process.
const perConnection = 100

// atATime bounds the number of concurrent lists: a reflector keeps each whole object until its list
// is complete.
const atATime = 500

// kindsOfReaders is the number of reflectors after which their kinds repeat.
const kindsOfReaders = 5

// audience starts reflectors: of five, one uses JSON, one a selector, and three read everything in
// protobuf.
func (c *cluster) audience(ctx context.Context, t *testing.T, url string, n int) *audience {
	t.Helper()
	a := &audience{failures: map[string]int{}}
	var running sync.WaitGroup
	ctx, stop := context.WithCancel(ctx)
	t.Cleanup(func() {
		stop()
		running.Wait()
	})
	var sets [2]*kubernetes.Clientset
	for i := range n {
		if i >= atATime {
			a.readers[i-atATime].hasListed(ctx, t)
		}
		if i%perConnection == 0 {
			for j, enc := range []object.Encoding{object.Protobuf, object.JSON} {
				sets[j] = c.clients(t, url, func(cfg *rest.Config) {
					cfg.ContentType, cfg.AcceptContentTypes = enc.MediaType(), enc.MediaType()
					cfg.WrapTransport = a.count
					// client-go shares a connection among configurations with one dialer.
					cfg.Dial = new(net.Dialer).DialContext
				})
			}
		}
		r := &reader{name: fmt.Sprintf("reader-%d", i), held: map[string]int64{}}
		set := sets[0]
		switch i % kindsOfReaders {
		case 3:
			set = sets[1]
		case 4:
			r.selector = "parity=1"
		}
		lw := cache.ToListWatcherWithWatchListSemantics(cache.NewFilteredListWatchFromClient(set.CoreV1().RESTClient(), "configmaps", "default", func(o *metav1.ListOptions) {
			o.LabelSelector = r.selector
		}), set)
		a.readers = append(a.readers, r)
		running.Go(func() { cache.NewReflector(lw, &corev1.ConfigMap{}, r, 0).RunWithContext(ctx) })
	}
	return a
}

// count counts the bytes of response bodies, and failed requests.
func (a *audience) count(inner http.RoundTripper) http.RoundTripper {
	return tripper(func(r *http.Request) (*http.Response, error) {
		resp, err := inner.RoundTrip(r)
		answer := ""
		switch {
		case err != nil && r.Context().Err() == nil:
			answer = err.Error()
		case err == nil:
			resp.Body = &counter{resp.Body, &a.bytes}
			if resp.StatusCode != http.StatusOK {
				answer = resp.Status
			}
		}
		if answer != "" {
			a.mu.Lock()
			a.failures[answer]++
			a.mu.Unlock()
		}
		return resp, err
	})
}

type counter struct {
	io.ReadCloser
	n *atomic.Int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// sum adds up the counts of the reflectors.
func (a *audience) sum() (lists, events int) {
	for _, r := range a.readers {
		r.mu.Lock()
		lists += r.lists
		events += r.events
		r.mu.Unlock()
	}
	return lists, events
}

// fewer returns the number of events that these reflectors lack compared with a witness, which has
// one of each kind. Both must have the newest event, or the number is meaningless.
func (a *audience) fewer(witness *audience) (n int) {
	var had [kindsOfReaders]int
	for i, r := range witness.readers {
		r.mu.Lock()
		had[i] = r.events
		r.mu.Unlock()
	}
	for i, r := range a.readers {
		r.mu.Lock()
		n += had[i%kindsOfReaders] - r.events
		r.mu.Unlock()
	}
	return n
}

// await waits until all have a version of an object, which each selector matches.
func (a *audience) await(ctx context.Context, t *testing.T, name string, version int64) {
	t.Helper()
	for _, r := range a.readers {
		r.awaits(ctx, t, name, version)
	}
}

// compare returns the differences of the stores from an apiserver's objects, and the violations
// that they have recorded. There must be no writer.
func (a *audience) compare(ctx context.Context, t *testing.T, set *kubernetes.Clientset) (wrong []string) {
	t.Helper()
	want := map[string]map[string]int64{}
	for _, selector := range []string{"", "parity=1"} {
		list, err := set.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			t.Fatal(err)
		}
		want[selector] = map[string]int64{}
		for i := range list.Items {
			version, err := strconv.ParseInt(list.Items[i].ResourceVersion, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			want[selector][list.Items[i].Name] = version
		}
	}
	for _, r := range a.readers {
		r.mu.Lock()
		for _, text := range r.wrong {
			wrong = append(wrong, r.name+": "+text)
		}
		r.wrong = nil
		if !maps.Equal(r.held, want[r.selector]) {
			wrong = append(wrong, fmt.Sprintf("%s: %s", r.name, differ(r.held, want[r.selector])))
		}
		r.mu.Unlock()
	}
	return wrong
}

// differ describes the difference of a store.
func differ(got, want map[string]int64) (text string) {
	for name, version := range want {
		if got[name] != version {
			text += fmt.Sprintf("%s at %d, want %d; ", name, got[name], version)
		}
	}
	for name, version := range got {
		if _, ok := want[name]; !ok {
			text += fmt.Sprintf("%s at %d, want none; ", name, version)
		}
	}
	return text
}
