package yield

import "io"

// Steps counts the steps of a goroutine since it last yielded.
type Steps int

// Did adds n steps, and calls Now when there are most or more.
func (s *Steps) Did(n, most int) {
	if *s += Steps(n); *s >= Steps(most) {
		*s = 0
		Now()
	}
}

// Reader reads from a Reader a part at a time, and calls Now after each part: for readers that compute, or
// whose users do.
type Reader struct {
	io.Reader
	Part int // the size of a part, in bytes

	steps Steps
}

// Read implements io.Reader.
func (r *Reader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p[:min(len(p), r.Part)])
	r.steps.Did(n, r.Part)
	return n, err
}
