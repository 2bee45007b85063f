package differential

import "math/rand/v2"

// dice makes all random decisions. The same dice cause the same requests.
type dice interface {
	// IntN returns a number in [0, n).
	IntN(n int) int
}

// seeded returns dice from a seed.
func seeded(seed uint64) dice { return rand.New(rand.NewPCG(seed, 1)) }

// scripted are dice with recorded throws: the bytes of a fuzz target.
type scripted struct{ throws []byte }

// IntN takes as many bytes as n needs; after the last byte it reads zeros.
func (s *scripted) IntN(n int) int {
	v := 0
	for most := 1; most < n; most <<= 8 {
		if len(s.throws) > 0 {
			v = v<<8 | int(s.throws[0])
			s.throws = s.throws[1:]
		}
	}
	return v % n
}

func oneIn(d dice, n int) bool { return d.IntN(n) == n-1 }

func pick[T any](d dice, of ...T) T { return of[d.IntN(len(of))] }

// choice is one of several actions with its weight.
type choice struct {
	weight int
	do     func()
}

// choose runs one of the choices.
func choose(d dice, of ...choice) {
	sum := 0
	for _, c := range of {
		sum += c.weight
	}
	n := d.IntN(sum)
	for _, c := range of {
		if n -= c.weight; n < 0 {
			c.do()
			return
		}
	}
}
