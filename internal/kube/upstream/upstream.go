// Package upstream passes requests of Kubernetes' API on to an apiserver.
//
// Read [New] first. Its handler may be called by many goroutines at once.
package upstream

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/shardwatch/shardwatch/internal/budget"
	"github.com/shardwatch/shardwatch/internal/kube/guard"
	"github.com/shardwatch/shardwatch/internal/kube/object"
	"github.com/shardwatch/shardwatch/internal/kube/source"
	"github.com/shardwatch/shardwatch/internal/wait"
)

// Config configures the forwarding of requests.
type Config struct {
	// Source provides the apiservers, those that answer first.
	Source *source.Client
	// Streams sends requests over HTTP/2, and Upgrades those that change the
	// protocol over HTTP/1.1.
	Streams, Upgrades http.RoundTripper
	// Impersonate means that the node impersonates users, with the certificate of the
	// transports or Token. Otherwise that certificate is a front proxy's.
	Impersonate bool
	Token       func() (string, error) // nil: none
	Logger      *slog.Logger
}

// New returns a handler that passes requests on to an apiserver, with the
// identity that guard.With has put into their context. While no apiserver answers,
// it answers 429: 502 or 503 would make a reflector list again.
func New(cfg Config) http.Handler {
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	u := &upstream{cfg}
	return &httputil.ReverseProxy{
		BufferPool:     copies{},
		Transport:      u,
		FlushInterval:  -1, // watches and logs are streams
		Rewrite:        u.rewrite,
		ModifyResponse: modify,
		ErrorHandler:   u.failed,
		ErrorLog:       slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelDebug),
	}
}

type upstream struct{ cfg Config }

// Window is the number of bytes of a response that Config.Streams should receive
// before the client reads them.
const Window = 64 << 10

const (
	// copyBytes is the size of the buffer that copies a response.
	copyBytes = 8 << 10
	// passBytes is the memory of a request that is passed on, without its body.
	passBytes = Window + copyBytes + 8<<10
	// bodyBytes is the memory for a body of unknown length: net/http reads it in pieces of the
	// apiserver's frame size, and at most of this size (http2clientStream.frameScratchBufferLen).
	bodyBytes = 512 << 10
)

// Bytes returns the memory that a request takes while it is passed on, and the use of the budget.
func Bytes(r *http.Request) (budget.Use, int64) {
	if watches(r) {
		return budget.Watches, passBytes
	}
	switch body := r.ContentLength; {
	case r.Body == nil || r.Body == http.NoBody:
		return budget.JSON, passBytes
	case body < 0:
		return budget.JSON, passBytes + bodyBytes
	default:
		return budget.JSON, passBytes + min(body, bodyBytes)
	}
}

// watches reports whether a request is a watch.
func watches(r *http.Request) bool {
	watch, err := strconv.ParseBool(r.URL.Query().Get("watch"))
	return err == nil && watch && reads(r)
}

// copies provides the buffers that copy responses.
type copies struct{}

var copyBuffers = sync.Pool{New: func() any { return new([copyBytes]byte) }} //nolint:gochecknoglobals // a pool of the process

// Get implements httputil.BufferPool.
func (copies) Get() []byte { return copyBuffers.Get().(*[copyBytes]byte)[:] } //nolint:forcetypeassert // the pool has only this type

// Put implements httputil.BufferPool.
func (copies) Put(b []byte) { copyBuffers.Put((*[copyBytes]byte)(b)) }

// The headers of a front proxy, as kubeadm and most distributions configure them.
const (
	remoteUser  = "X-Remote-User"
	remoteUID   = "X-Remote-Uid"
	remoteGroup = "X-Remote-Group"
	remoteExtra = "X-Remote-Extra-"
	// remote is the common prefix of these headers, impersonate the prefix of impersonation headers.
	remote      = "X-Remote-"
	impersonate = "Impersonate-"
)

// Impersonates reports whether a request impersonates another user.
func Impersonates(r *http.Request) bool {
	for name := range r.Header {
		if strings.HasPrefix(name, impersonate) {
			return true
		}
	}
	return false
}

// rewrite replaces the sender's credentials by its identity.
func (u *upstream) rewrite(r *httputil.ProxyRequest) {
	r.SetXForwarded()
	h := r.Out.Header
	h.Del("Authorization")
	for name := range h {
		if strings.HasPrefix(name, remote) {
			h.Del(name)
		}
	}
	id := guard.From(r.In)
	if id == nil {
		id = &guard.Identity{User: "system:anonymous", Groups: []string{"system:unauthenticated"}}
	}
	user, uid, group, extra := remoteUser, remoteUID, remoteGroup, remoteExtra
	if u.cfg.Impersonate {
		user, uid, group, extra = impersonate+"User", impersonate+"Uid", impersonate+"Group", impersonate+"Extra-"
	}
	h.Set(user, id.User)
	if id.UID != "" {
		h.Set(uid, id.UID)
	}
	h.Del(group)
	for _, name := range id.Groups {
		h.Add(group, name)
	}
	for name, values := range id.Extra {
		h[http.CanonicalHeaderKey(extra+escape(name))] = values
	}
}

// escape returns the name of an extra field as part of a header name.
func escape(name string) string {
	var b strings.Builder
	for i := range len(name) {
		c := name[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-_.", c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// errNotSent reports that no apiserver has received a request.
var errNotSent = errors.New("no apiserver can be reached")

// RoundTrip sends a request to the preferred apiserver, or to another one if it cannot
// be reached.
func (u *upstream) RoundTrip(r *http.Request) (*http.Response, error) {
	body := r.Body // nil: none
	if body != nil {
		defer func() {
			if body != nil {
				_ = body.Close()
			}
		}()
	}
	errs := []error{errNotSent}
	for _, server := range u.cfg.Source.Servers() {
		out, err := u.at(server, r)
		if err != nil {
			return nil, err
		}
		if body != nil {
			out.Body = io.NopCloser(body)
		}
		resp, err := u.transport(r).RoundTrip(out)
		if err == nil && body == nil {
			err = u.refusal(r, server, resp)
		}
		if err == nil {
			u.cfg.Source.Answered(server, resp.StatusCode)
			body = nil       // the transport reads it until the response is closed
			resp.Request = r // has the path without a path prefix of the server's URL
			return resp, nil
		}
		if r.Context().Err() != nil {
			return nil, err
		}
		u.cfg.Source.Avoid(server, err)
		var dialed *net.OpError
		if again := reads(r) && body == nil; !again && (!errors.As(err, &dialed) || dialed.Op != "dial") {
			return nil, err // the apiserver may have executed it
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// refusal fails if the client is not the reason why a list or watch is refused: a refusal makes a reflector
// list again. An apiserver that has just started has not loaded roles and service accounts.
func (u *upstream) refusal(r *http.Request, server string, resp *http.Response) error {
	if resp.StatusCode != http.StatusUnauthorized && resp.StatusCode != http.StatusForbidden || !listsOrWatches(r) {
		return nil
	}
	var err error
	if u.refusesNode(r, server, resp) {
		err = errors.New("the apiserver rejects this node's credentials")
	} else if err = u.cfg.Source.Ready(r.Context(), server); err != nil {
		err = fmt.Errorf("the apiserver is not ready: %w", err)
	}
	if err != nil {
		_ = resp.Body.Close()
		return fmt.Errorf("%s: %d: %w", server, resp.StatusCode, err)
	}
	return nil
}

// refusesNode reports whether an apiserver refuses this node, and not its client. The client is authenticated, so 401
// is not about the client. It may come from the server of an aggregated API: then the apiserver itself does not answer
// 401.
func (u *upstream) refusesNode(r *http.Request, server string, resp *http.Response) bool {
	if resp.StatusCode == http.StatusUnauthorized {
		version := r.Clone(r.Context())
		version.URL = &url.URL{Path: "/version"}
		out, err := u.at(server, version)
		if err != nil {
			return true
		}
		own, err := u.cfg.Streams.RoundTrip(out)
		if err != nil {
			return true
		}
		_ = own.Body.Close()
		return own.StatusCode == http.StatusUnauthorized
	}
	if !u.cfg.Impersonate {
		return false
	}
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10)) // the read of the rest fails again
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(text), resp.Body), resp.Body}
	enc := object.JSON
	if strings.HasPrefix(resp.Header.Get("Content-Type"), object.Protobuf.MediaType()) {
		enc = object.Protobuf
	}
	status, err := object.ParseStatus(enc, text)
	return err == nil && refusedImpersonation.MatchString(status.Message)
}

// refusedImpersonation matches the refusal of an impersonation (apiserver/pkg/endpoints/filters/impersonation.go and
// apiserver/pkg/endpoints/handlers/responsewriters). Names chosen by a client are quoted there, with quotes escaped.
var refusedImpersonation = regexp.MustCompile(`(^|: )User "[^"\\]*" cannot impersonate resource "`)

// listsOrWatches reports whether a request is a list or watch, as reflectors send.
func listsOrWatches(r *http.Request) bool {
	_, _, name, ok := source.ParsePath(r.URL.Path)
	return r.Method == http.MethodGet && ok && name == ""
}

func reads(r *http.Request) bool { return r.Method == http.MethodGet || r.Method == http.MethodHead }

// at returns a request for one server.
func (u *upstream) at(server string, r *http.Request) (*http.Request, error) {
	to, err := url.Parse(strings.TrimSuffix(server, "/") + r.URL.EscapedPath())
	if err != nil {
		return nil, err
	}
	to.RawQuery = r.URL.RawQuery
	out := r.WithContext(r.Context())
	out.URL, out.Host = to, ""
	if u.cfg.Token != nil {
		token, err := u.cfg.Token()
		if err != nil {
			return nil, fmt.Errorf("token of this node: %w", err)
		}
		out.Header = r.Header.Clone()
		out.Header.Set("Authorization", "Bearer "+token)
	}
	return out, nil
}

func (u *upstream) transport(r *http.Request) http.RoundTripper {
	if r.Header.Get("Upgrade") != "" {
		return u.cfg.Upgrades
	}
	return u.cfg.Streams
}

// failed answers a request that no apiserver has answered.
func (u *upstream) failed(w http.ResponseWriter, r *http.Request, err error) {
	u.cfg.Logger.Debug("no apiserver answers a request", "method", r.Method, "path", r.URL.Path, "error", err)
	if !reads(r) && !errors.Is(err, errNotSent) {
		// Fail like an apiserver that dies: 429 would mean that the request had no effect.
		panic(http.ErrAbortHandler)
	}
	status, header, body := answer(fmt.Errorf("apiserver does not answer: %w", err))
	maps.Copy(w.Header(), header)
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client may have gone
}

// modify replaces a temporary failure of a list or watch by one that makes the
// client retry. It keeps 504: the requested version is not available yet.
func modify(resp *http.Response) error {
	switch resp.StatusCode {
	case http.StatusOK:
		if watches(resp.Request) {
			resp.Body = &passedWatch{ReadCloser: resp.Body, began: time.Now(), ctx: resp.Request.Context()}
		}
		return nil
	case http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable:
	default:
		return nil
	}
	if !listsOrWatches(resp.Request) {
		return nil
	}
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10)) // an incomplete reason is enough
	_ = resp.Body.Close()
	status, header, body := answer(fmt.Errorf("apiserver fails with %d: %s", resp.StatusCode, bytes.TrimSpace(text)))
	resp.StatusCode, resp.Status, resp.Header = status, "", header
	resp.ContentLength, resp.Body = int64(len(body)), io.NopCloser(bytes.NewReader(body))
	return nil
}

// answer returns the response that makes a client retry later.
func answer(why error) (status int, header http.Header, body []byte) {
	later := object.Later(why)
	body = later.Encode(object.JSON)
	return later.Code, http.Header{
		"Content-Type": {object.JSON.MediaType()}, "Retry-After": {strconv.Itoa(later.RetryAfter)}, "Content-Length": {strconv.Itoa(len(body))},
	}, body
}

// ShortestWatch is the least time that a watch stays open: a reflector lists again
// if its watch ends within a second without an event.
const ShortestWatch = 1500 * time.Millisecond

// passedWatch is a watch that an apiserver serves. If the apiserver dies, the watch ends as
// after its timeout, and a reflector resumes it; a stream that is reset, or that ends within
// its first second, makes the reflector list.
type passedWatch struct {
	io.ReadCloser
	began time.Time
	ctx   context.Context //nolint:containedctx // of the request that the body belongs to
}

// Read implements io.Reader.
func (p *passedWatch) Read(b []byte) (int, error) {
	n, err := p.ReadCloser.Read(b)
	if err == nil || p.ctx.Err() != nil {
		return n, err
	}
	wait.Sleep(p.ctx, ShortestWatch-time.Since(p.began))
	return n, io.EOF
}
