package membership

import (
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/shardwatch/shardwatch/internal/beat"
)

// timed counts a node's probes and looks at beats and in between.
type timed struct {
	Transport
	at, between *atomic.Int64
}

func (c timed) note() {
	if time.Now().Truncate(beat.Every).Equal(time.Now()) {
		c.at.Add(1)
	} else {
		c.between.Add(1)
	}
}

// WriteToAddress sends a probe or its answer.
func (c timed) WriteToAddress(b []byte, a memberlist.Address) (time.Time, error) {
	c.note()
	return c.Transport.WriteToAddress(b, a)
}

// IngestStream begins a look at the members: see countedLooks.
func (c timed) IngestStream(conn net.Conn) error {
	c.note()
	return c.Transport.IngestStream(conn)
}

// Idle nodes probe each other and read their members at beats, whenever they started: any
// other moment would wake the process again.
func TestProbesAndReadsOfMembersFallOnTicks(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		const seconds = 60
		var at, between atomic.Int64
		var nodes []*running
		for i := range 3 {
			time.Sleep(70 * time.Millisecond)
			nodes = append(nodes, b.start(i+1, func(c *Config) { c.Transport = timed{c.Transport, &at, &between} }))
		}
		defer func() { stopAll(nodes) }()
		together(t, nodes)
		time.Sleep(time.Minute) // the joins are gossiped
		at.Store(0)
		between.Store(0)
		time.Sleep(seconds * time.Second)
		if at, between := at.Load(), between.Load(); at < 3*seconds || between > 0 {
			t.Errorf("probes, answers and looks: %d at beats, %d in between", at, between)
		}
	})
}
