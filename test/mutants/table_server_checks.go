package mutants

// serverChecks are mutants of the checks between nodes, of freshness and of released resources.
func serverChecks() []Mutant {
	return []Mutant{
		{
			Name: "probe-reported", Bug: "reports every connection that is closed before its handshake", File: "handshake.go",
			Old: `err != nil && !errors.Is(err, credentials.ErrConnDispatched) && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed)`, New: `err != nil && !errors.Is(err, credentials.ErrConnDispatched) && (true || !errors.Is(err, io.EOF)) && !errors.Is(err, net.ErrClosed)`, Tests: "TestFailedHandshakesAreReported",
		},
		{
			Name: "closed-reported", Bug: "reports connections that the server has closed", File: "handshake.go",
			Old: `err != nil && !errors.Is(err, credentials.ErrConnDispatched) && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed)`, New: `err != nil && !errors.Is(err, credentials.ErrConnDispatched) && !errors.Is(err, io.EOF)`, Tests: "TestFailedHandshakesAreReported",
		},
		{
			Name: "dispatched-reported", Bug: "reports connections that another protocol handles", File: "handshake.go",
			Old: `err != nil && !errors.Is(err, credentials.ErrConnDispatched) && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed)`, New: `err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed)`, Tests: "TestFailedHandshakesAreReported",
		},
		{
			Name: "handshake-not-reported", Bug: "does not report a handshake that fails", File: "handshake.go",
			Old: `err != nil && !errors.Is(err, credentials.ErrConnDispatched) && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed)`, New: `false && err != nil && !errors.Is(err, credentials.ErrConnDispatched) && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed)`, Tests: "TestFailedHandshakesAreReported",
		},
		{
			Name: "clone-silent", Bug: "a copy of the credentials reports no failed handshake", File: "handshake.go",
			Old: `return &handshakes{h.TransportCredentials.Clone(), h.failed}`, New: `return h.TransportCredentials.Clone()`, Tests: "TestFailedHandshakesAreReported",
		},
	}
}
