// Package intake bounds the memory of requests that clients have not sent completely.
//
// gRPC buffers a request until it is complete, before any handler, limit or
// policy sees the call: 10,000 streams of one connection can hold 2 MiB each. An [Intake]
// parses the bytes that arrive on the connections of a port (RFC 9113, 4.1; gRPC's messages
// within DATA frames), and tracks the incomplete requests:
//
//	creds = intake.New(budget, maxMessage, logger).Credentials(creds) // of a grpc.Server
//
// Small requests are bounded in number. Larger requests take their bytes from the budget; when
// its share is exhausted, their connection is not read until others release bytes. In both
// cases the Intake closes the connection with the oldest request: an honest request is complete
// in milliseconds, and an attacker displaces its own requests.
//
// A request that arrives whole costs only the parsing of its frames.
//
// The server reports the streams that it resets, because their clients send nothing more on them.
// For this purpose the connections of an Intake have a method Forget.
//
// All methods of Intake may be called from any goroutine.
package intake
