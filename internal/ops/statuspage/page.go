package statuspage

import (
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/wait"
)

// Cluster is the data of the page; internal/node implements it.
type Cluster interface {
	// Map returns the shard map; nil if unknown.
	Map() *shard.Map
	// Members returns gossip's view of the members.
	Members() []*shardwatchv1.Member
	// Changes returns a channel that is closed when the map or the members change.
	Changes() <-chan struct{}
	// Status returns this node's status, StatusOf another node's.
	Status() *shardwatchv1.StatusResponse
	StatusOf(ctx context.Context, node shard.NodeID) (*shardwatchv1.StatusResponse, error)
}

// Config configures a Page.
type Config struct {
	Cluster Cluster
	Self    shard.NodeID
	// ClientTLS: the client port has TLS, and so has the key browser that the page links to.
	ClientTLS bool
	// ShowKeys reports whether every client that reaches the port may see the start keys of shards; nil: none
	// may.
	ShowKeys func() bool
	Logger   *slog.Logger
}

// Bounds and intervals.
const (
	// MaxViewers bounds the browsers at a time; excess ones get 503.
	MaxViewers = 64
	// every is the interval at which the nodes are asked while the page is open, soonest the minimum interval
	// after a change.
	every   = time.Second
	soonest = 200 * time.Millisecond
	// bytesPerSecond bounds the data sent to each browser, before compression: the larger the views, the rarer.
	bytesPerSecond = 256 << 10
	// askTimeout bounds the wait for a node's status, askAtATime the nodes asked concurrently.
	askTimeout = 500 * time.Millisecond
	askAtATime = 32
	// writeTimeout bounds the time a browser takes to read a view; aliveEvery is the interval of keepalives
	// while there is no new view.
	writeTimeout = 10 * time.Second
	aliveEvery   = 10 * time.Second
)

// Page serves the page. Create it with New; Run updates it. Its handlers may be called before Run, and wait for
// it.
type Page struct {
	cfg   Config
	files map[string]file

	come wait.Bell // wakes Run for the first viewer

	mu      sync.Mutex
	viewers int         // guarded by mu
	latest  []byte      // guarded by mu; a View as JSON; nil: no fresh one
	changed wait.Signal // of latest

	// Owned by Run.
	before *observed
	news   []Event
	told   uint64
}

// New returns a Page.
func New(cfg Config) *Page {
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	return &Page{cfg: cfg, files: load(), come: wait.NewBell()}
}

// Run follows the cluster until ctx ends.
func (p *Page) Run(ctx context.Context) error {
	for {
		changed := p.cfg.Cluster.Changes() // before reading the values, to miss no change
		pause := p.observe(ctx)
		var next <-chan time.Time // nil without viewers: wait for a change
		if pause > 0 {
			next = time.After(pause)
		}
		select {
		case <-changed:
		case <-next:
		case <-p.come:
		case <-ctx.Done():
			return nil
		}
		if !wait.Sleep(ctx, soonest) {
			return nil
		}
	}
}

// observe records events and, while the page is open, makes the view. It returns the time until the next one;
// 0: the page is not open.
func (p *Page) observe(ctx context.Context) time.Duration {
	p.mu.Lock()
	looking := p.viewers > 0
	p.mu.Unlock()
	o := &observed{self: string(p.cfg.Self), at: time.Now(), shards: p.cfg.Cluster.Map(), members: p.cfg.Cluster.Members()}
	if looking {
		p.ask(ctx, o)
	}
	if p.before != nil {
		for _, e := range news(p.before, o) {
			p.told++
			e.ID = p.told
			p.news = append([]Event{e}, p.news[:min(len(p.news), maxNews-1)]...)
		}
	}
	p.before = o
	if !looking {
		p.publish(nil)
		return 0
	}
	v := o.view(p.cfg.ShowKeys != nil && p.cfg.ShowKeys())
	v.News, v.KeysPage = p.news, o.keysPage(p.cfg.ClientTLS)
	b, err := json.Marshal(v)
	if err != nil { // cannot happen with the fields of View
		p.cfg.Logger.Error("status page not encoded", "error", err)
		return every
	}
	pause := max(every, time.Duration(len(b))*time.Second/bytesPerSecond)
	v.Next = pause.Seconds()
	if b, err = json.Marshal(v); err == nil {
		p.publish(b)
	}
	return pause
}

// ask asks every node for its status.
func (p *Page) ask(ctx context.Context, o *observed) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	o.status, o.silent = make(map[string]*shardwatchv1.StatusResponse), make(map[string]string)
	var mu sync.Mutex
	var g errgroup.Group
	g.SetLimit(askAtATime)
	for _, m := range o.members {
		g.Go(func() error {
			var s *shardwatchv1.StatusResponse
			why := ""
			switch name := m.GetName(); {
			case name == o.self:
				s = p.cfg.Cluster.Status()
			case m.GetState() == shardwatchv1.MemberState_MEMBER_STATE_LEFT:
				why = "it has left"
			case m.GetState() == shardwatchv1.MemberState_MEMBER_STATE_DEAD:
				why = "gossip reports it as dead"
			default:
				var err error
				if s, err = p.cfg.Cluster.StatusOf(ctx, shard.NodeID(name)); err != nil {
					s, why = nil, "it cannot be reached"
					if ctx.Err() != nil {
						why = "no answer within " + askTimeout.String()
					}
				}
			}
			mu.Lock()
			defer mu.Unlock()
			if s != nil {
				o.status[m.GetName()] = s
			} else {
				o.silent[m.GetName()] = why
			}
			return nil
		})
	}
	_ = g.Wait() // nodes that do not answer are in silent
}

func (p *Page) publish(b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.viewers == 0 {
		b = nil // the last viewer has left meanwhile
	}
	if b == nil && p.latest == nil {
		return
	}
	p.latest = b
	p.changed.Notify()
}

func (p *Page) view() (latest []byte, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.latest, p.changed.Wait()
}

// enter admits a viewer; false: there are too many.
func (p *Page) enter() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.viewers >= MaxViewers {
		return false
	}
	if p.viewers++; p.viewers == 1 {
		p.come.Wake()
	}
	return true
}

func (p *Page) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.viewers--; p.viewers == 0 {
		p.latest = nil // the next viewer must not get an outdated view
	}
}

//go:embed assets
var assets embed.FS

// file is an asset of the page.
type file struct {
	body, kind, tag string
}

func newFile(name, body string) file {
	kinds := map[string]string{
		".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8",
		".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
	}
	sum := sha256.Sum256([]byte(body))
	return file{body: body, kind: kinds[path.Ext(name)], tag: `"` + hex.EncodeToString(sum[:8]) + `"`}
}

// load returns the embedded files, by name.
func load() map[string]file {
	out := make(map[string]file)
	entries, _ := assets.ReadDir("assets") // embedded
	for _, e := range entries {
		body, _ := assets.ReadFile("assets/" + e.Name())
		out[e.Name()] = newFile(e.Name(), string(body))
	}
	return out
}

// Register adds the page to mux:
//
//   - /, the page, and its assets under /status/;
//   - /status/stream, a View for each change and at least one a second, more
//     seldom when they are large, as server-sent events;
//   - /status.json, one View.
func (p *Page) Register(mux *http.ServeMux) {
	mux.Handle("GET /{$}", p.files["index.html"])
	for name, f := range p.files {
		if name != "index.html" {
			mux.Handle("GET /status/"+name, f)
		}
	}
	mux.HandleFunc("GET /status/stream", p.stream)
	mux.HandleFunc("GET /status.json", p.one)
}

// policy forbids everything but the page's own files.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Guard sets the headers of a page that loads only files of this node, and returns them.
func Guard(w http.ResponseWriter) http.Header {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	return h
}

// ServeHTTP sends the file.
func (f file) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := Guard(w)
	h.Set("Content-Type", f.kind)
	h.Set("Cache-Control", "no-cache") // revalidate: an upgraded node has other files
	h.Set("ETag", f.tag)
	http.ServeContent(w, r, "", time.Time{}, strings.NewReader(f.body))
}

// Look adds the files shared with other pages of a node, /status/page.css and /status/icon.svg, and the page's
// own files below /status/ to mux.
func Look(mux *http.ServeMux, own map[string]string) {
	shared := load()
	for _, name := range []string{"page.css", "icon.svg"} {
		mux.Handle("GET /status/"+name, shared[name])
	}
	for name, body := range own {
		mux.Handle("GET /status/"+name, newFile(name, body))
	}
}

func tooMany(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "5")
	http.Error(w, "too many readers of this page: use another node", http.StatusServiceUnavailable)
}

// one sends one view.
func (p *Page) one(w http.ResponseWriter, r *http.Request) {
	if !p.enter() {
		tooMany(w)
		return
	}
	defer p.leave()
	for {
		latest, changed := p.view()
		if latest != nil {
			h := Guard(w)
			h.Set("Content-Type", "application/json")
			h.Set("Cache-Control", "no-store")
			_, _ = w.Write(append(latest[:len(latest):len(latest)], '\n')) // the client has left
			return
		}
		if !wait.For(r.Context(), changed) {
			return
		}
	}
}

// stream sends views until the client leaves or the node ends.
func (p *Page) stream(w http.ResponseWriter, r *http.Request) {
	if !p.enter() {
		tooMany(w)
		return
	}
	defer p.leave()
	h := Guard(w)
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // proxies must forward each view at once
	out := &eventStream{w: w, c: http.NewResponseController(w)}
	// The server's read deadline would end this long request.
	_ = out.c.SetReadDeadline(time.Time{})
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		out.zip = gzip.NewWriter(w)
		out.w = out.zip
	}
	alive := time.NewTicker(aliveEvery)
	defer alive.Stop()
	err := out.send("retry: 1000\n\n")
	for err == nil {
		latest, changed := p.view()
		if latest != nil {
			err = out.send("data: ", string(latest), "\n\n")
		}
		for again := false; err == nil && !again; {
			select {
			case <-changed:
				again = true
			case <-alive.C:
				err = out.send(": alive\n\n")
			case <-r.Context().Done():
				return
			}
		}
	}
}

// eventStream is a response of server-sent events.
type eventStream struct {
	w   io.Writer
	zip *gzip.Writer // nil: not compressed
	c   *http.ResponseController
}

// send writes text and flushes it to the client.
func (s *eventStream) send(text ...string) error {
	_ = s.c.SetWriteDeadline(time.Now().Add(writeTimeout)) // fails in tests without a connection
	for _, t := range text {
		if _, err := io.WriteString(s.w, t); err != nil {
			return err
		}
	}
	if s.zip != nil {
		if err := s.zip.Flush(); err != nil {
			return err
		}
	}
	return s.c.Flush()
}
