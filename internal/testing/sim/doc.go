// Package sim is for tests of many hosts in one process on fake time
// (testing/synctest).
//
// Read [Network] first: named hosts, connections between them for gRPC, and
// the faults of both. Package memetcd beside it is an etcd for the same place.
// All methods may be called by any goroutine.
//
// # gRPC in a bubble
//
// A bubble's time moves when all its goroutines are durably blocked: on
// channels, timers, sync.Cond and sync.WaitGroup made in the bubble. One that
// waits on something else stops the clock forever, and the test ends with its
// timeout. Then run it with a short -timeout, and search the stacks for the
// goroutine with "synctest bubble" and without "durable".
//
// grpc-go 1.85 works in a bubble, over a Network as over bufconn, with these
// traps:
//
//   - Make everything inside: network, listener, server, client, and the
//     contexts too. The testing.T outside of the bubble has a context whose Done
//     channel is not durable; so has a bufconn listener made before the bubble.
//   - Targets begin with "passthrough:///". The default of grpc.NewClient is
//     dns, which asks the real network while the clock is stopped.
//   - The clock stops when the test's function returns (after its cleanups).
//     A goroutine that needs a timer to end is then a deadlock, and a panic. So
//     close clients and stop servers before; with grpc.WaitForHandlers, Stop waits
//     for handlers as well. ClientConn.Close waits for up to 5 s of fake time to
//     send its GOAWAY over a dead link, and Server.GracefulStop waits forever while
//     a watch is open.
//   - Only keepalive detects a silent host, and it is off by default. A server
//     disconnects clients that ping more often than every 5 minutes
//     (ENHANCE_YOUR_CALM, too_many_pings), which happens in any test that sleeps for
//     a minute of fake time: set its KeepaliveEnforcementPolicy. Pings without an
//     open stream need PermitWithoutStream.
//   - A connection without calls goes idle after 30 minutes, which is one Sleep
//     here: grpc.WithIdleTimeout(0) prevents it.
//   - Reconnecting waits with jitter from a generator that cannot be seeded, up to
//     120 s, and an attempt at a silent host takes 20 s. For reproducible tests, give
//     grpc.WithConnectParams a Jitter of 0, a MaxDelay and a MinConnectTimeout.
//   - Without latency, two sides that answer each other at once keep the clock
//     from moving. Network.SetLatency of a millisecond is enough. Without latency,
//     synctest.Wait means "everything sent has arrived and been processed"; with
//     latency, sleep.
//   - A goroutine that waits for a mutex is not durably blocked: while the holder
//     of a contended mutex waits, the clock stops. Never wait, send or write to a
//     connection under a lock, as everywhere in this repository.
//   - A channel or sync.WaitGroup that is a package variable is not durable.
//     clientv3's Watch waits on one (valCtxCh, client/v3/watch.go) and stops the
//     clock; its other calls work. The raw etcdserverpb.WatchClient does too.
//   - grpc-go's own pools hold plain memory, so no channel passes from one bubble
//     to the next. Importing channelz's service, which counts and traces in the
//     background, is untested.
//   - It is the year 2000: certificates made outside are not valid yet.
package sim
