package membership

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/memberlist"
)

// announceWait bounds how long a change of our metadata may delay the next
// change. Gossip continues to spread it afterwards.
const announceWait = time.Second

// announce is the only function that changes our entry in memberlist.
func (m *Membership) announce(ctx context.Context, ml *memberlist.Memberlist) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-m.announces:
			m.mu.Lock()
			left := m.left
			m.mu.Unlock()
			if left {
				continue
			}
			if err := ml.UpdateNode(announceWait); err != nil {
				m.log.Debug("new metadata has not reached all nodes yet", "error", err)
			}
		case answer := <-m.leaves:
			answer <- m.leave(ml)
		}
	}
}

func (m *Membership) leave(ml *memberlist.Memberlist) error {
	m.mu.Lock()
	quarrel := m.standing.refused || !m.conflict.since.IsZero()
	m.left = true
	m.mu.Unlock()
	defer m.looks.Wake()
	if quarrel {
		// The announcement would carry only our name, and hit the node that holds it.
		return errors.New("leave gossip: not announced, because another node has this node's name")
	}
	if err := ml.Leave(m.cfg.LeaveTimeout); err != nil {
		return fmt.Errorf("leave gossip: %w", err)
	}
	return nil
}
