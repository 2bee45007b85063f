package wire

import "regexp"

// asWritten matches gRPC's text of a status.
var asWritten = regexp.MustCompile(`rpc error: code = (\w+) desc = `)

// Plain returns an error's text for logs and users: gRPC's prefix of a status is
// shortened to the name of its code.
func Plain(err error) string { return asWritten.ReplaceAllString(err.Error(), "$1: ") }
