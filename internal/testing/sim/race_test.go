//go:build race

package sim_test

// raceDetector: with it, Go 1.26 crashes now and then in the timers of a
// synctest bubble (https://github.com/golang/go/issues/78156), the more often
// the more timers there are. What runs here in bubbles runs with the detector
// over real sockets elsewhere.
const raceDetector = true
