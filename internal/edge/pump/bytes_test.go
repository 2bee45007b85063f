package pump_test

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/shardwatch/shardwatch/internal/edge/pump"
)

// collector is a transport that collects the bytes sent to it.
type collector struct {
	transport
	got bytes.Buffer
}

func (c *collector) SendFramed(_ func(), parts ...[]byte) error {
	for _, p := range parts {
		c.got.Write(p)
	}
	return nil
}

// Bytes that are not messages, of all sizes, arrive unchanged and in order, and are sent at the end
// of the turn.
func TestSendBytes(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var want bytes.Buffer
	var all [][]byte
	for range 300 {
		n := r.IntN(2000)
		if r.IntN(10) == 0 {
			n = r.IntN(40_000)
		}
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		all = append(all, b)
		want.Write(b)
	}
	var p pump.Pumps
	c := &collector{transport: transport{c: &connection{}}}
	s := p.OpenAt("client", c)
	var task pump.Task
	done := make(chan struct{})
	task.Init(s, func(*pump.Scratch) bool {
		if len(all) == 0 {
			close(done)
			return false
		}
		n := min(len(all), 1+r.IntN(30))
		for _, b := range all[:n] {
			if err := s.SendBytes(b); err != nil {
				t.Error(err)
			}
		}
		all = all[n:]
		return true
	})
	task.Start()
	<-done
	s.Close()
	p.Wait()
	if !bytes.Equal(c.got.Bytes(), want.Bytes()) {
		t.Errorf("got %d bytes, want the %d bytes sent", c.got.Len(), want.Len())
	}
}
