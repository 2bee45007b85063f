package source

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardwatch/shardwatch/internal/kube/object"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/wait"
)

// isProbe reports whether a watch is a probe's. The main watch has no timeout.
func isProbe(query url.Values) bool { return query.Get("timeoutSeconds") != "" }

// asking returns a source of things. Its apiservers, a and others, answer requests for things with answer, and
// /readyz with 200.
func asking(t *testing.T, answer func(r *http.Request, query url.Values) *http.Response, others ...string) *Source {
	t.Helper()
	cfg := Defaults()
	cfg.Servers = append([]string{"https://a"}, others...)
	cfg.HTTP = &http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) {
		resp := response(http.StatusOK, "")
		if r.URL.Path != "/readyz" {
			resp = answer(r, r.URL.Query())
		}
		if err := r.Context().Err(); err != nil {
			return nil, err
		}
		resp.Request = r
		return resp, nil
	})}
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c.Source(Resource{Version: "v1", Name: "things"}, nil)
}

func response(code int, body string) *http.Response {
	return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {object.JSON.MediaType()}}, Body: io.NopCloser(strings.NewReader(body))}
}

// streaming returns a response to a watch that sends the output of write, and stays open until its client ends it.
func streaming(r *http.Request, write func(w io.Writer)) *http.Response {
	out, in := io.Pipe()
	context.AfterFunc(r.Context(), func() { _ = in.CloseWithError(r.Context().Err()) })
	go write(in)
	resp := response(http.StatusOK, "")
	resp.Body = out
	return resp
}

func listAt(version int) string {
	return fmt.Sprintf(`{"kind":"ThingList","apiVersion":"v1","metadata":{"resourceVersion":"%d"},"items":[]}`, version)
}

func sendBookmark(w io.Writer, version int64) {
	_, _ = w.Write(object.AppendEvent(nil, object.JSON, object.Bookmark, object.NewBookmark(object.JSON, "v1", "Thing", version, false)))
}

// Failed probes do not end the main watch, which delivers events meanwhile. The apiserver is overloaded: it does
// not answer the list of the first probe, refuses the next two probes, and closes the watch of the fourth.
func TestAWatchContinuesWhileProbesFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const last = 1 << 20
		watches, lists, version := 0, 0, 9
		var events atomic.Int32
		var before, meanwhile int32 // number of events when the list hangs, and when it times out
		s := asking(t, func(r *http.Request, query url.Values) *http.Response {
			if query.Get("watch") == "" {
				lists++
				switch lists {
				case 2:
					before = events.Load()
					<-r.Context().Done()
					meanwhile = events.Load()
				case 3:
					return response(http.StatusTooManyRequests, "")
				case 4:
					return response(http.StatusGatewayTimeout, "")
				}
				return response(http.StatusOK, listAt(last))
			}
			if isProbe(query) {
				if lists == 5 {
					return response(http.StatusOK, string(object.AppendEvent(nil, object.JSON, object.Error, []byte(`{"kind":"Status","apiVersion":"v1","code":500}`))))
				}
				return streaming(r, func(w io.Writer) { sendBookmark(w, last) })
			}
			watches++
			return streaming(r, func(w io.Writer) {
				for ; wait.Sleep(r.Context(), 50*time.Millisecond); version++ {
					thing := fmt.Appendf(nil, `{"kind":"Thing","apiVersion":"v1","metadata":{"name":"a","resourceVersion":"%d"}}`, version)
					if _, err := w.Write(object.AppendEvent(nil, object.JSON, object.Modified, thing)); err != nil {
						return
					}
				}
			})
		})
		want := new(kv.Demand)
		want.Ask(last)
		for u, err := range s.Follow(t.Context(), kv.FollowRequest{From: 9, Want: want}) {
			if err != nil {
				t.Fatalf("the main watch failed after %d events: %v", events.Load(), err)
			}
			if u.Kind == kv.UpdateBatch {
				events.Add(1)
			}
			if u.Kind == kv.UpdateProgress {
				break
			}
		}
		if watches != 1 || lists != 6 || meanwhile-before < 50 {
			t.Errorf("%d watches, %d lists, %d events while a list hung; want 1 watch, 6 lists, at least 50 events", watches, lists, meanwhile-before)
		}
	})
}

// If an apiserver refuses the list of a probe, the watch ends: the resource may be withdrawn, which a watch does
// not show.
func TestARefusedProbeEndsTheWatch(t *testing.T) {
	for _, code := range []int{http.StatusForbidden, http.StatusNotFound} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			lists := 0
			s := asking(t, func(r *http.Request, query url.Values) *http.Response {
				if query.Get("watch") != "" {
					return streaming(r, func(io.Writer) {})
				}
				switch lists++; lists {
				case 1:
					return response(http.StatusOK, listAt(8))
				case 10:
					cancel() // the source would retry for ever
				}
				return response(code, "")
			})
			want := new(kv.Demand)
			want.Ask(30)
			var failure error
			for _, err := range s.Follow(ctx, kv.FollowRequest{From: 9, Want: want}) {
				failure = err
			}
			if CodeOf(failure) != code {
				t.Errorf("a probe was answered with %d, but following failed with %v", code, failure)
			}
		})
	}
}

// If the followed apiserver fails each probe while its watch stays open, the source switches to another apiserver
// that answers. If no other one answers, it keeps the watch.
func TestAnApiserverWithoutEtcdIsLeft(t *testing.T) {
	for _, answers := range []bool{true, false} { // the other one
		synctest.Test(t, func(t *testing.T) {
			watches, lists := map[string]int{}, map[string]int{}
			s := asking(t, func(r *http.Request, query url.Values) *http.Response {
				at := r.URL.Host
				switch {
				case isProbe(query):
					return streaming(r, func(w io.Writer) { sendBookmark(w, 30) })
				case query.Get("watch") != "":
					watches[at]++
					return streaming(r, func(io.Writer) {})
				}
				lists[at]++
				if at == "b" && !answers || at == "a" && lists[at] > 1 && lists[at] < 6 {
					return response(http.StatusServiceUnavailable, "")
				}
				return response(http.StatusOK, listAt(30))
			}, "https://b")
			want := new(kv.Demand)
			want.Ask(30)
			for u, err := range s.Follow(t.Context(), kv.FollowRequest{From: 9, Want: want}) {
				if err != nil {
					t.Fatal(err)
				}
				if u.Kind == kv.UpdateProgress {
					break
				}
			}
			if answers && (watches["a"] != 1 || lists["a"] != 1+probeFails || watches["b"] != 1) || !answers && (watches["a"] != 1 || lists["a"] != 6 || watches["b"] != 0) {
				t.Errorf("another apiserver answers: %t; watches %v, lists %v by apiserver", answers, watches, lists)
			}
		})
	}
}

// A reader requests progress after a probe has satisfied an earlier request, while the apiserver keeps that
// probe's watch open. The next probe begins at once. A pause follows a probe without progress.
func TestAReaderDoesNotWaitForTheEndOfAProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		probes := 0
		var began []time.Duration // of probes, since the last progress
		var progress time.Time
		s := asking(t, func(r *http.Request, query url.Values) *http.Response {
			if query.Get("watch") == "" {
				return response(http.StatusOK, listAt(50))
			}
			if !isProbe(query) {
				return streaming(r, func(io.Writer) {})
			}
			probes++
			began = append(began, time.Since(progress))
			version := map[int]int64{1: 30, 2: 40, 3: 40, 4: 50}[probes]
			return streaming(r, func(w io.Writer) { sendBookmark(w, version) })
		})
		want := new(kv.Demand)
		want.Ask(30)
		for u, err := range s.Follow(t.Context(), kv.FollowRequest{From: 9, Want: want}) {
			if err != nil {
				t.Fatal(err)
			}
			if u.Kind != kv.UpdateProgress {
				continue
			}
			if u.Revision == 50 {
				break
			}
			progress = time.Now()
			want.Ask(u.Revision + 10)
		}
		if len(began) != 4 || began[1] != 0 || began[2] != 0 || began[3] != probeAgain {
			t.Errorf("intervals between progress and the next probes: %v", began[1:])
		}
	})
}
