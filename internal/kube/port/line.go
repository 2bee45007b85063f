package port

import "net/http"

// Line is the transport of a watch over HTTP/1. Its writes block. It implements pump.Transport.
type Line struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

// NewLine returns the transport of a response. control must be the controller of w.
func NewLine(w http.ResponseWriter, control *http.ResponseController) Line { return Line{w, control} }

// SendFramed calls wait, then writes and flushes all parts. It returns the connection's error.
func (l Line) SendFramed(wait func(), parts ...[]byte) error {
	wait()
	for _, part := range parts {
		if _, err := l.w.Write(part); err != nil {
			return err
		}
	}
	return l.control.Flush()
}

// Flush does nothing: SendFramed flushes.
func (Line) Flush() {}

// Attach returns the result of create: a connection has one watch.
func (Line) Attach(create func() any) any { return create() }
