package reload

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"log/slog"
	"os"
	"sync"
	"time"
)

// Part is something that was read from files.
type Part struct {
	// What is the name of the part, in one word: a label of metrics.
	What string
	// Files returns the files that are read together; a change of any file loads the part
	// again. It is called before each check, because loaded files may name other files.
	Files func() []string
	// Load reads the files again. After an error the previous contents must stay in use.
	Load func() error
	// Expires returns when the loaded files expire; nil: never.
	Expires func() time.Time
	// Issued returns the start of validity; nil: not known.
	Issued func() time.Time
}

// Every is the interval at which a running node checks its files.
const Every = 5 * time.Second

// Watcher loads parts again when their files change. Create it with New, run it
// once.
type Watcher struct {
	every time.Duration
	log   *slog.Logger
	parts []*part
}

type part struct {
	Part
	seen [sha256.Size]byte // the content loaded or tried; owned by Run

	mu       sync.Mutex
	loaded   time.Time // the last success; guarded by mu
	failures int64     // guarded by mu
	failing  bool      // the files' content is not in use; guarded by mu
}

// New returns a Watcher that checks the files at an interval. The caller has
// loaded the parts before.
func New(every time.Duration, log *slog.Logger, parts ...Part) *Watcher {
	w := &Watcher{every: every, log: log}
	now := time.Now()
	for _, p := range parts {
		w.parts = append(w.parts, &part{Part: p, loaded: now})
	}
	return w
}

// Run checks the files until ctx ends; then it returns nil. At its start it
// loads all parts again, because it does not know the changes since their first
// load, and again at each signal, changed or not. signals may be nil.
func (w *Watcher) Run(ctx context.Context, signals <-chan os.Signal) error {
	for _, p := range w.parts {
		w.load(p) // most likely unchanged
	}
	tick := time.NewTicker(w.every)
	defer tick.Stop()
	for {
		asked := false
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-signals:
			asked = true
		}
		for _, p := range w.parts {
			if !asked && digest(p.Files()) == p.seen {
				continue
			}
			if w.load(p) {
				w.log.Info("reloaded", p.facts()...)
			}
		}
	}
}

// load loads a part, and reports whether it succeeded. The next check detects a
// change in the meantime.
func (w *Watcher) load(p *part) bool {
	p.seen = digest(p.Files())
	err := p.Load()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failing = err != nil; p.failing {
		p.failures++
		w.log.Error("reload failed: the previous contents stay in use", "what", p.What, "files", p.Files(), "error", err)
		return false
	}
	p.loaded = time.Now()
	return true
}

// facts are the log attributes of a loaded part.
func (p *part) facts() []any {
	facts := []any{"what", p.What, "files", p.Files()}
	if p.Expires != nil {
		facts = append(facts, "expires", p.Expires())
	}
	return facts
}

// digest identifies the contents of files. An unreadable file counts as a content.
func digest(files []string) [sha256.Size]byte {
	h := sha256.New()
	for _, file := range files {
		text, err := os.ReadFile(file) //nolint:gosec // The operator names the file.
		if err != nil {
			text = []byte(err.Error())
		}
		_ = binary.Write(h, binary.BigEndian, int64(len(text))) // a hash takes everything
		_, _ = h.Write(text)
	}
	return [sha256.Size]byte(h.Sum(nil))
}
