// Package wire translates between the words of the house and the API: errors
// and status codes, maps and members, events and their bytes, both ways.
//
// Everything here is a pure function, but for [Codec], which hands
// pre-encoded messages to grpc-go as they are.
package wire
