package outcome

import "errors"

// The reasons why a client leaves a node.
var (
	ErrSilent   = errors.New("node is silent")
	ErrIdle     = errors.New("no watches left")
	ErrProtocol = errors.New("node broke the protocol")
	ErrNoStart  = errors.New("node did not start the watch in time")
	ErrFull     = errors.New("consumer did not keep up")
	ErrEnded    = errors.New("node ended the stream")
	ErrRefused  = errors.New("connection refused or broken")
	ErrSlow     = errors.New("node did not answer in time")
	ErrLogin    = errors.New("timed out waiting for the login of another call")
	ErrLags     = errors.New("node has not caught up to the list's revision")
	ErrForeign  = errors.New("node belongs to another cluster")
	ErrHome     = errors.New("the preferred node serves again")
	ErrBehind   = errors.New("node has not caught up to the watch's position")
)
