package mutants

func rawconnGroup() Group {
	return Group{Package: "internal/edge/rawconn", Mutants: []Mutant{
		{
			Name: "rawconn-half-a-write", Bug: "ends a write when the kernel accepts no more for now", File: "conn_linux.go",
			Old: "\t\tcase errors.Is(err, syscall.EAGAIN):\n\t\t\treturn false", New: "\t\tcase errors.Is(err, syscall.EAGAIN):\n\t\t\treturn true", Tests: "TestALargeWriteArrivesWhole",
		},
		{
			Name: "rawconn-no-end", Bug: "repeatedly returns nothing after the peer has closed", File: "conn_linux.go",
			Old: "return 0, io.EOF", New: "return 0, nil", Tests: "TestErrorsAreThoseOfNet",
		},
		{
			Name: "rawconn-errno-alone", Bug: "returns errors without their connection", File: "conn_linux.go",
			Old: `err = c.failed("write", failed)`, New: `err = failed`, Tests: "TestErrorsAreThoseOfNet",
		},
		{
			Name: "rawconn-closes-late", Bug: "returns a deadline's error as the end of the connection", File: "conn_linux.go",
			Old: "return 0, err //nolint:wrapcheck // net's", New: "return 0, io.EOF //nolint:wrapcheck // net's", Tests: "TestErrorsAreThoseOfNet|TestCloseEndsWaiters",
		},
		{
			Name: "rawconn-not-with-tls", Bug: "uses net's connections with TLS", File: "../../../cmd/cachenode/material.go",
			Old: "p.of.Listener(rawconn.Listener(*at))", New: "rawconn.Listener(p.of.Listener(*at))", Tests: "TestConnectionsWithTLSAreRaw", Package: "cmd/cachenode",
		},
		{
			Name: "rawconn-leaves-bytes", Bug: "lets a connection with unread data go idle", File: "rawconn.go",
			Old: "idle := h.Hasty && h.drained", New: "idle := h.Hasty", Tests: "TestRestAgain",
		},
		{
			Name: "rawconn-rests-for-good", Bug: "leaves a closed connection idle", File: "rest_linux.go",
			Old: "err := c.TCPConn.Close()\n\tc.wake()", New: "err := c.TCPConn.Close()", Tests: "TestRest",
		},
		{
			Name: "rawconn-rests-once", Bug: "does not let a connection go idle again", File: "rest_linux.go",
			Old: "does := syscall.EPOLL_CTL_MOD", New: "does := syscall.EPOLL_CTL_ADD", Tests: "TestRestAgain",
		},
	}}
}
