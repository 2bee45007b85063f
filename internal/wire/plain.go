package wire

import "regexp"

// asWritten is how gRPC writes a status down.
var asWritten = regexp.MustCompile(`rpc error: code = (\w+) desc = `)

// Plain returns an error's text for people: where it has a status of gRPC's,
// that is the name of its code and its message.
func Plain(err error) string { return asWritten.ReplaceAllString(err.Error(), "$1: ") }
