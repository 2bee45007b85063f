package kube_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// pipes is an in-memory listener: in a bubble of synctest, goroutines that wait for a socket would
// stop the time.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	refuse atomic.Int32 // number of connections to refuse next
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	close(p.closed)
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "unix"} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	if p.refuse.Add(-1) >= 0 {
		return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	}
	client, server := net.Pipe()
	select {
	case p.conns <- server:
		return client, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// answer writes an apiserver's answer to a watch.
type answer func(w http.ResponseWriter)

// failing answers with a failure.
func failing(code int, reason metav1.StatusReason, headers ...string) answer {
	return func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "application/json")
		for i := 0; i < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(failure(code, reason)) // the client may have left
	}
}

func failure(code int, reason metav1.StatusReason) *metav1.Status {
	return &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: int32(code), Reason: reason}
}

// stream is an open watch with events, which closes after a period.
func stream(open time.Duration, events ...metav1.WatchEvent) answer {
	return func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusOK)
		for _, e := range events {
			_ = json.NewEncoder(w).Encode(e) // the client may have left
		}
		_ = http.NewResponseController(w).Flush()
		time.Sleep(open) // fake time of the bubble
	}
}

func event(kind string, o runtime.Object) metav1.WatchEvent {
	return metav1.WatchEvent{Type: kind, Object: runtime.RawExtension{Object: o}}
}

// versioned is a config map at a version; a bookmark has no name.
func versioned(name, version string, annotations map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: version, Annotations: annotations}}
}

// script answers a reflector's requests: the state at version 10, an event at version 11, the end
// of that watch, and then the tested answer.
type script struct {
	pipes
	tested answer // nil: the connection is refused
	steps  atomic.Int32
	next   chan string // the reflector's requests after the tested answer
}

func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	step, streams := s.steps.Add(1), query.Get("sendInitialEvents") != ""
	if streams { // one request for the state and the event
		step = s.steps.Add(1) - 1
	}
	changed := event("ADDED", versioned("b", "11", nil))
	w.Header().Set("Connection", "close") // each request uses a new connection
	switch {
	case step == 1 && streams:
		s.refuse.Store(s.refusals())
		end := event("BOOKMARK", versioned("", "10", map[string]string{metav1.InitialEventsAnnotationKey: "true"}))
		stream(2*time.Second, event("ADDED", versioned("a", "9", nil)), end, changed)(w)
	case step == 1:
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(&corev1.ConfigMapList{ // the client may have left
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMapList"}, ListMeta: metav1.ListMeta{ResourceVersion: "10"},
			Items: []corev1.ConfigMap{*versioned("a", "9", nil)},
		})
	case step == 2:
		s.refuse.Store(s.refusals())
		stream(2*time.Second, changed)(w)
	case step == 3 && s.tested != nil:
		s.tested(w)
	default:
		what := "list"
		if query.Get("watch") != "" && !streams {
			what = "watch " + query.Get("resourceVersion")
		}
		select {
		case s.next <- what:
		default: // a request after the next one
		}
		<-r.Context().Done()
	}
}

func (s *script) refusals() int32 {
	if s.tested == nil {
		return 1
	}
	return 0
}

// inPages is a ListerWatcher without streaming lists.
type inPages struct{ *cache.ListWatch }

// IsWatchListSemanticsUnSupported is client-go's check for that.
func (inPages) IsWatchListSemanticsUnSupported() bool { return true }

// requestAfter returns a reflector's next request after an answer to its watch: "watch 11" if it
// resumes, "list" if it lists again.
func requestAfter(t *testing.T, streaming bool, tested answer) (next string) {
	t.Helper()
	s := &script{pipes: pipes{conns: make(chan net.Conn), closed: make(chan struct{})}, tested: tested, next: make(chan string, 1)}
	server := &http.Server{ErrorLog: log.New(io.Discard, "", 0), Handler: s}
	served := make(chan error)
	go func() { served <- server.Serve(&s.pipes) }()
	set, err := kubernetes.NewForConfig(&rest.Config{Host: "http://apiserver", Dial: s.dial, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON}})
	if err != nil {
		t.Fatal(err)
	}
	all := cache.NewListWatchFromClient(set.CoreV1().RESTClient(), "configmaps", "default", fields.Everything())
	var lw cache.ListerWatcher = all
	if !streaming {
		lw = inPages{all}
	}
	ctx, cancel := context.WithCancel(t.Context())
	running := make(chan struct{})
	go func() {
		defer close(running)
		cache.NewReflectorWithOptions(lw, &corev1.ConfigMap{}, cache.NewStore(cache.MetaNamespaceKeyFunc), cache.ReflectorOptions{}).RunWithContext(ctx)
	}()
	next = <-s.next
	cancel()
	<-running
	_ = server.Close()
	<-served
	return next
}

// TestAnswersThatMakeAReflectorList records client-go's reaction to each answer to a reflector's
// watch. The node's answers rely on it (internal/kube/api): if this test fails with a new
// client-go, its rules and docs/kubernetes.md have to change, too.
func TestAnswersThatMakeAReflectorList(t *testing.T) {
	const resumes, lists = "watch 11", "list"
	bookmark := event("BOOKMARK", versioned("", "11", nil))
	for _, test := range []struct {
		name   string
		answer answer
		want   string
	}{
		{"429 with Retry-After", failing(429, metav1.StatusReasonTooManyRequests, "Retry-After", "1"), resumes},
		{"429", failing(429, metav1.StatusReasonTooManyRequests), resumes},
		{"open for 1.2 s", stream(1200 * time.Millisecond), resumes},
		{"a bookmark, closed at once", stream(0, bookmark), resumes},
		{"closed at once", stream(0), lists},
		{"closed after 0.9 s", stream(900 * time.Millisecond), lists},
		{"401", failing(401, metav1.StatusReasonUnauthorized), lists},
		{"403", failing(403, metav1.StatusReasonForbidden), lists},
		{"410", failing(410, metav1.StatusReasonExpired), lists},
		{"500", failing(500, metav1.StatusReasonInternalError), lists},
		{"503", failing(503, metav1.StatusReasonServiceUnavailable), lists},
		{"504", failing(504, metav1.StatusReasonTimeout), lists},
		{"500 with Retry-After", failing(500, metav1.StatusReasonInternalError, "Retry-After", "1"), resumes},
		{"503 with Retry-After", failing(503, metav1.StatusReasonServiceUnavailable, "Retry-After", "1"), resumes},
		{"410 in an event", stream(0, event("ERROR", failure(410, metav1.StatusReasonExpired))), lists},
		{"429 in an event", stream(0, event("ERROR", failure(429, metav1.StatusReasonTooManyRequests))), resumes},
		{"500 in an event", stream(0, event("ERROR", failure(500, metav1.StatusReasonInternalError))), lists},
		{"a connection that breaks before the answer", func(http.ResponseWriter) { panic(http.ErrAbortHandler) }, resumes},
		{"a refused connection", nil, resumes},
	} {
		for _, streaming := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/streaming=%v", test.name, streaming), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					if got := requestAfter(t, streaming, test.answer); got != test.want {
						t.Errorf("after %s the next request is %q, want %q", test.name, got, test.want)
					}
				})
			})
		}
	}
}
