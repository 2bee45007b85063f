package clients_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/shardwatch/shardwatch/internal/freeport"
	"github.com/shardwatch/shardwatch/test/conformance"
)

// TestEventSourceInChromium watches with the EventSource of a browser, behind a load balancer
// as a Kubernetes Service is one. EventSource alone sends Last-Event-ID when its connection ends;
// two of three nodes are killed.
func TestEventSourceInChromium(t *testing.T) {
	if testing.Short() {
		t.Skip("starts an etcd, nodes and a browser")
	}
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("there is no Chromium: apt-get install chromium")
	}
	survives(t, func(ctx context.Context, task conformance.Task, emit func(conformance.Update)) error {
		address, err := balance(ctx, task.Endpoints)
		if err != nil {
			return err
		}
		return browse(ctx, path, t.TempDir(), address, task, emit)
	}, 2)
}

// page follows a watch with an EventSource. A page collects parts, and begins anew when the watch
// was created again: the part of a revision is not counted by Last-Event-ID.
const page = `(prefix) => {
  const source = new EventSource("/v1/watch?state=true&prefix=" + encodeURIComponent(prefix));
  let events = [], kvs = [];
  const clear = () => { events = []; kvs = []; };
  const take = (kind, m, whole) => {
    if (m.begin) clear();
    events.push(...(m.events || []).map(({type, key, value}) => ({type, key, value})));
    kvs.push(...(m.keys || []).map(({key, value}) => ({key, value})));
    if (!whole) return;
    emit(JSON.stringify({kind, revision: m.revision, events, kvs}));
    clear();
  };
  source.addEventListener("created", clear);
  source.addEventListener("events", (e) => { const m = JSON.parse(e.data); take("batch", m, !m.fragment); });
  for (const kind of ["state", "delta", "resync"]) {
    source.addEventListener(kind, (e) => { const m = JSON.parse(e.data); take(kind, m, m.end); });
  }
  source.addEventListener("error", () => { if (source.readyState === EventSource.CLOSED) emit("closed"); });
  return true;
}`

// browse opens the page and hands out what it emits, until ctx ends.
func browse(ctx context.Context, chromium, dir, address string, task conformance.Task, emit func(conformance.Update)) error {
	options := []chromedp.ExecAllocatorOption{chromedp.ExecPath(chromium), chromedp.UserDataDir(dir), chromedp.DisableGPU}
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // Chromium's own does not work as root
	}
	failed := make(chan error, 1)
	fail := func(err error) {
		select {
		case failed <- err:
		default:
		}
	}
	tab, stop := chromedp.NewContext(ctx, chromedp.WithAllocatorOptions(options...), chromedp.WithListener(func(ev any) {
		switch ev := ev.(type) {
		case *runtime.EventExceptionThrown:
			fail(errors.New(ev.ExceptionDetails.Text))
		case *runtime.EventBindingCalled:
			var u conformance.Update
			if err := json.Unmarshal([]byte(ev.Payload), &u); err != nil {
				fail(errors.New("the page: " + ev.Payload))
				return
			}
			emit(u)
		}
	}))
	defer stop()
	// Any answer of the API makes the page one of its origin.
	if err := chromedp.Do(tab, chromedp.Navigate("http://"+address+"/v1/keys?prefix=/none/")); err != nil {
		return err
	}
	if _, err := chromedp.Call(tab, runtime.AddBinding, runtime.AddBindingParams{Name: "emit"}); err != nil {
		return err
	}
	prefix, err := json.Marshal(task.Key)
	if err != nil {
		return err
	}
	if _, err := chromedp.Run(tab, chromedp.Evaluate[bool]("("+page+")("+string(prefix)+")")); err != nil {
		return err
	}
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return nil
	}
}

// balance listens until ctx ends, and connects each client with the first node, by turns, that
// accepts a connection.
func balance(ctx context.Context, nodes []string) (address string, err error) {
	free, err := freeport.Take(1)
	if err != nil {
		return "", err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", free[0])
	if err != nil {
		return "", err
	}
	context.AfterFunc(ctx, func() { _ = listener.Close() })
	go func() {
		for turn := 0; ; turn++ {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				for i := range nodes {
					node, err := (&net.Dialer{}).DialContext(ctx, "tcp", nodes[(turn+i)%len(nodes)])
					if err != nil {
						continue // it is dead
					}
					join(ctx, conn, node)
					return
				}
			}()
		}
	}()
	return free[0], nil
}

// join copies between two connections until one of them, or ctx, ends.
func join(ctx context.Context, a, b net.Conn) {
	end := sync.OnceFunc(func() { _, _ = a.Close(), b.Close() })
	defer context.AfterFunc(ctx, end)()
	var g sync.WaitGroup
	for _, pair := range [][2]net.Conn{{a, b}, {b, a}} {
		g.Go(func() {
			_, _ = io.Copy(pair[0], pair[1])
			end()
		})
	}
	g.Wait()
}
