package reload_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/shardwatch/shardwatch/internal/files/reload"
)

// one is a part with one file. It loads any content except "bad".
type one struct {
	file string

	mu    sync.Mutex
	has   string // guarded by mu
	loads int    // guarded by mu
}

// is returns the loaded content, and the number of loads.
func (o *one) is() (has string, loads int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.has, o.loads
}

// logged is a log that may be read while it is being written.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (o *one) files() []string { return []string{o.file} }

func (o *one) load() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.loads++
	text, err := os.ReadFile(o.file)
	if err != nil {
		return err
	}
	if string(text) == "bad" {
		return errors.New(o.file + ":1: bad")
	}
	o.has = string(text)
	return nil
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestFollowsContents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logged
		o := &one{file: filepath.Join(t.TempDir(), "f"), has: "a"}
		write(t, o.file, "a")
		w := reload.New(time.Second, slog.New(slog.NewTextHandler(&log, nil)), reload.Part{What: "it", Files: o.files, Load: o.load})
		signals := make(chan os.Signal)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- w.Run(ctx, signals) }()
		look := func(has string, loads int) {
			t.Helper()
			time.Sleep(5 * time.Second) // fake
			synctest.Wait()
			if gotHas, gotLoads := o.is(); gotHas != has || gotLoads != loads {
				t.Errorf("has %q after %d loads, want %q after %d", gotHas, gotLoads, has, loads)
			}
		}
		look("a", 1)
		write(t, o.file, "a") // the same content
		look("a", 1)
		write(t, o.file, "b")
		look("b", 2)
		write(t, o.file, "bad") // loaded once, not every second
		look("b", 3)
		if n := strings.Count(log.String(), "reload failed"); n != 1 || !strings.Contains(log.String(), o.file+":1: bad") {
			t.Errorf("%d lines about the failure, want one:\n%s", n, log.String())
		}
		if err := os.Remove(o.file); err != nil {
			t.Fatal(err)
		}
		look("b", 4)
		write(t, o.file, "c")
		look("c", 5)
		signals <- os.Interrupt
		look("c", 6)
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// A change since the last load is loaded at once, before and after New. Nothing is logged
// without a change.
func TestAChangeBeforeTheStartIsSeen(t *testing.T) {
	for name, c := range map[string]struct {
		text, has string
		said      int // lines in the log
	}{
		"changed":     {"b", "b", 0},
		"not changed": {"a", "a", 0},
		"broken":      {"bad", "a", 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log logged
				o := &one{file: filepath.Join(t.TempDir(), "f"), has: "a"}
				write(t, o.file, c.text)
				w := reload.New(time.Second, slog.New(slog.NewTextHandler(&log, nil)), reload.Part{What: "it", Files: o.files, Load: o.load})
				ctx, stop := context.WithCancel(t.Context())
				done := make(chan error)
				go func() { done <- w.Run(ctx, nil) }()
				synctest.Wait() // at the first tick
				if has, _ := o.is(); has != c.has {
					t.Errorf("has %q, want %q", has, c.has)
				}
				time.Sleep(time.Minute) // fake
				if said := strings.Count(log.String(), "\n"); said != c.said {
					t.Errorf("%d lines, want %d:\n%s", said, c.said, log.String())
				}
				stop()
				<-done
			})
		})
	}
}

// Kubernetes writes the files of a new version into a new directory, and then replaces one
// symbolic link.
func TestSeesASwappedVolume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		volume := t.TempDir()
		for version, text := range map[string]string{"..1": "a", "..2": "b"} {
			if err := os.Mkdir(filepath.Join(volume, version), 0o700); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(volume, version, "f"), text)
		}
		swap := func(version string) {
			link := filepath.Join(volume, "..new")
			if err := errors.Join(os.Symlink(version, link), os.Rename(link, filepath.Join(volume, "..data"))); err != nil {
				t.Fatal(err)
			}
		}
		swap("..1")
		o := &one{file: filepath.Join(volume, "f"), has: "a"}
		if err := os.Symlink("..data/f", o.file); err != nil {
			t.Fatal(err)
		}
		w := reload.New(time.Second, slog.New(slog.DiscardHandler), reload.Part{What: "it", Files: o.files, Load: o.load})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- w.Run(ctx, nil) }()
		swap("..2")
		time.Sleep(2 * time.Second) // fake
		stop()
		<-done
		if has, _ := o.is(); has != "b" {
			t.Errorf("has %q", has)
		}
	})
}

// A loaded file may name another file, as a policy names the keys of tokens. From then on,
// that file is watched, too.
func TestFollowsNamedFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		o := &one{file: filepath.Join(dir, "first")}
		named := filepath.Join(dir, "named")
		write(t, o.file, "first")
		write(t, named, "a")
		list := func() []string {
			has, _ := o.is()
			return append(o.files(), has)
		}
		w := reload.New(time.Second, slog.New(slog.DiscardHandler), reload.Part{What: "it", Files: list, Load: o.load})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- w.Run(ctx, nil) }()
		write(t, o.file, named)
		time.Sleep(5 * time.Second) // fake
		synctest.Wait()
		_, before := o.is()
		write(t, named, "b")
		time.Sleep(5 * time.Second) // fake
		synctest.Wait()
		if _, loads := o.is(); loads != before+1 {
			t.Errorf("%d loads after %d, want one more", loads, before)
		}
		stop()
		<-done
	})
}

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ends := time.Now().Add(time.Hour)
		o := &one{file: filepath.Join(t.TempDir(), "f")}
		write(t, o.file, "a")
		w := reload.New(time.Second, slog.New(slog.DiscardHandler), reload.Part{
			What: "it", Files: o.files, Load: o.load, Expires: func() time.Time { return ends },
			Issued: func() time.Time { return ends.Add(-90 * time.Minute) },
		})
		reader := metric.NewManualReader()
		if err := w.Register(metric.NewMeterProvider(metric.WithReader(reader)).Meter("x")); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- w.Run(ctx, nil) }()
		synctest.Wait() // Run has started
		write(t, o.file, "bad")
		time.Sleep(90 * time.Second) // fake
		stop()
		<-done
		var got metricdata.ResourceMetrics
		if err := reader.Collect(t.Context(), &got); err != nil {
			t.Fatal(err)
		}
		values := map[string]float64{}
		for _, m := range got.ScopeMetrics[0].Metrics {
			switch d := m.Data.(type) {
			case metricdata.Sum[int64]:
				values[m.Name] = float64(d.DataPoints[0].Value)
			case metricdata.Gauge[int64]:
				values[m.Name] = float64(d.DataPoints[0].Value)
			case metricdata.Gauge[float64]:
				values[m.Name] = d.DataPoints[0].Value
			}
		}
		for name, want := range map[string]float64{
			"shardwatch.config.reload_failures":           1,
			"shardwatch.config.reload_failing":            1,
			"shardwatch.config.last_reload_timestamp":     float64(began.Unix()),
			"shardwatch.tls.certificate_expiry_timestamp": float64(ends.Unix()),
			"shardwatch.tls.certificate_lifetime":         5400,
		} {
			if values[name] != want {
				t.Errorf("%s is %v, want %v", name, values[name], want)
			}
		}
	})
}
