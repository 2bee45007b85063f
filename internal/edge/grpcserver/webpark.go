package grpcserver

// Park lets the answer continue after its handler has returned, without a goroutine, until End is
// called. Only the handler may call it. Afterwards the handler must not use the request: the stream
// no longer holds it.
func (w *web) Park() {
	w.parked, w.request, w.header = true, nil, nil
}

// End ends a parked answer. Any goroutine may call it, once.
func (w *web) End() {
	w.stop()
	w.end()
	w.conn.ended()
	w.conn.srv.handlers.Done()
}
