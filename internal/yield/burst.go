package yield

import "context"

// Burst gives turns to a goroutine that does short work, and then very much of it: as a
// connection's reader, to which its client sends ten thousand requests at once. The first
// steps need no turn. The zero Burst has had none. One goroutine at a time may use it.
type Burst struct {
	steps int
	leave func() // ends its turn; nil: it has none
}

// Step is called before each step. After each most steps in a row, and before the next one if
// the turn has been given away, it calls take, which returns in the client's turn. It continues without a turn if that fails.
func (b *Burst) Step(ctx context.Context, most int, take func(context.Context) (leave func(), err error)) {
	b.steps++
	if b.steps <= most || b.leave != nil && b.steps%most != 0 {
		return
	}
	b.Pause()
	if leave, err := take(ctx); err == nil {
		b.leave = leave
	}
}

// Pause gives the turn away, if there is one. Call it before anything that may wait.
func (b *Burst) Pause() {
	if b.leave != nil {
		b.leave()
		b.leave = nil
	}
}

// End is Pause after the last step in a row.
func (b *Burst) End() {
	b.Pause()
	b.steps = 0
}
