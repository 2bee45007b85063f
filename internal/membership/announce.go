package membership

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/memberlist"
)

// announceWait bounds how long a change of our metadata may hold up the next.
// It is gossiped further after that.
const announceWait = time.Second

// announce is the only one that changes what memberlist says about us.
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
		// The news would carry our name only, and hit the node that has it.
		return errors.New("leave gossip: not announced, because another node has this node's name")
	}
	if err := ml.Leave(m.cfg.LeaveTimeout); err != nil {
		return fmt.Errorf("leave gossip: %w", err)
	}
	return nil
}
