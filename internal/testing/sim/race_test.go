//go:build race

package sim_test

// raceDetector: with it, Go 1.26 sometimes crashes in the timers of a synctest bubble
// (https://github.com/golang/go/issues/78156); more timers make it likelier. The code of
// these tests runs with the detector over real sockets elsewhere.
const raceDetector = true
