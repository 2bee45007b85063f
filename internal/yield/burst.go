package yield

import "context"

// Burst takes turns for a goroutine that usually does short work, but sometimes very much of it, such as a
// connection's reader whose client sends ten thousand requests at once. The first steps need no turn. The zero
// Burst is ready. One goroutine at a time may use it.
type Burst struct {
	steps int
	leave func() // ends the turn; nil: there is none
}

// Step is called before each step. After most steps without a turn, it calls take, which returns in the
// client's turn; it does so again after each most steps, and after a Pause. If take fails, it continues without
// a turn.
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

// Pause ends the turn, if there is one. Call it before operations that may block.
func (b *Burst) Pause() {
	if b.leave != nil {
		b.leave()
		b.leave = nil
	}
}

// End ends the burst, after its last step.
func (b *Burst) End() {
	b.Pause()
	b.steps = 0
}
