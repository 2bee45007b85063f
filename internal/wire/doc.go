// Package wire converts between internal types and those of the API, in both
// directions: errors and status codes, maps and members, events and their bytes.
//
// Everything here is a pure function, except [Codec], which passes encoded messages to
// grpc-go unchanged.
package wire
