// Package intake bounds the memory of requests that clients have not sent to their end.
//
// gRPC keeps the parts of a request until it has all of it, before any handler, limit or
// policy sees the call: 10,000 streams of one connection can hold 2 MiB each. An [Intake]
// parses the bytes that arrive on the connections of a port (RFC 9113, 4.1; gRPC's messages
// within DATA frames), and knows the requests that have begun and are not complete:
//
//	creds = intake.New(budget, logger).Credentials(creds) // of a grpc.Server
//
// Small ones are bounded in number. Larger ones take their bytes from the budget; when its
// share is exhausted, their connection is not read until others give bytes back. In both
// cases the connection with the oldest one is closed: an honest request is complete in
// milliseconds, and an attacker pushes out its own.
//
// A request that arrives whole costs only the look at its frames.
//
// The server says which streams it resets: their clients say nothing more of them. The connections of an Intake
// have a method Forget for that.
//
// All methods of Intake may be called from any goroutine.
package intake
