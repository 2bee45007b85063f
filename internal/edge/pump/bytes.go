package pump

// OpenAt is Open for a stream on a transport without gRPC. Its client reads the bytes of SendBytes,
// not messages.
func (p *Pumps) OpenAt(client string, to Transport) *Stream { return p.open(client, &Stream{}, to) }

// SendBytes is Send for bytes: they leave at the end of the turn at the latest.
func (s *Stream) SendBytes(b []byte) error {
	o := &s.out
	own := o.own
	own.sent += len(b)
	switch {
	case o.err != nil:
	case len(b) > copied:
		own.parts = append(own.parts[:0], own.buf, b)
		o.handOver()
	default:
		if len(own.buf)+len(b) > handOver {
			o.flush()
		}
		if own.buf == nil {
			own.buf = make([]byte, 0, handOver)
		}
		own.buf = append(own.buf, b...)
	}
	return o.err
}
