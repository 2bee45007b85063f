package port

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// The watchdog ends a write that takes too long.
func TestAWriteThatTakesTooLongEnds(t *testing.T) {
	ended := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		defer close(ended)
		d := NewWatchdog(w, http.NewResponseController(w), 10*time.Millisecond)
		d.Begin()
		var err error
		for err == nil {
			_, err = w.Write(make([]byte, 64<<10)) // the client reads nothing
		}
		d.End()
	}))
	defer server.Close()
	resp, err := http.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	<-ended
}

// deadlines counts the deadlines of a writer.
type deadlines struct {
	http.ResponseWriter
	set chan time.Time
}

// SetWriteDeadline is called by http.ResponseController.
func (d *deadlines) SetWriteDeadline(at time.Time) error {
	d.set <- at
	return nil
}

// A watchdog that fires after the handler has returned does not touch the writer.
func TestAWatchdogThatEndsLeavesTheWriterAlone(t *testing.T) {
	w := &deadlines{set: make(chan time.Time, 10)}
	d := NewWatchdog(w, http.NewResponseController(w), time.Hour)
	d.bark()
	if len(w.set) != 1 {
		t.Fatal("the watchdog set no deadline")
	}
	d.End()
	d.bark()
	if len(w.set) != 1 {
		t.Error("the watchdog used the writer after the handler had returned")
	}
}

// cut is a writer over HTTP/2. It records its deadlines.
type cut struct {
	*deadlines
	ends chan struct{}
}

func (c *cut) Cut() { close(c.ends) }

// Over HTTP/2, a watchdog ends a response without a deadline, which would reset the stream.
func TestAWatchOverHTTP2IsNotReset(t *testing.T) {
	w := &cut{&deadlines{httptest.NewRecorder(), make(chan time.Time, 10)}, make(chan struct{})}
	d := NewWatchdog(w, http.NewResponseController(w), time.Millisecond)
	d.Begin()
	<-w.ends
	d.End()
	if len(w.set) > 0 {
		t.Error("the response got a deadline, which resets the stream")
	}
}
