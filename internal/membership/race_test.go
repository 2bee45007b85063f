//go:build race

package membership

// raceDetector: with it, Go 1.26 sometimes crashes in the timers of a synctest
// bubble (https://github.com/golang/go/issues/78156), more often with more
// timers. Other tests run the same code with the detector over real sockets.
const raceDetector = true
