package pump

// clients are the connections with streams to serve that no pump is at. Clients take turns, and
// each one's connections are served first come, first served: a client with ten thousand
// connections delays those of others by one visit. A turn is one visit of up to visitBytes: after a
// visit that was as large as several, the client lets others have that many turns first (deficit
// round robin). So a client with fifty messages for each of its connections delays those of others
// by one visit, too. The zero clients has none. All of it is guarded by the Pumps' mu.
type clients struct {
	byName      map[string]*client
	first, last *client // those with connections in the list
}

// client is one that has streams, or connections in the list.
type client struct {
	name        string
	streams     int
	first, last *Conn
	next        *client
	owes        int // turns that others have before its next one
}

// open counts a stream of a client in.
func (cs *clients) open(name string) *client {
	if cs.byName == nil {
		cs.byName = make(map[string]*client)
	}
	cl := cs.byName[name]
	if cl == nil {
		cl = &client{name: name}
		cs.byName[name] = cl
	}
	cl.streams++
	return cl
}

// close counts it out.
func (cs *clients) close(cl *client) {
	if cl.streams--; cl.streams == 0 {
		delete(cs.byName, cl.name)
	}
}

// any reports whether there is a connection.
func (cs *clients) any() bool { return cs.first != nil }

// push adds a connection, which is not in the list.
func (cs *clients) push(c *Conn) {
	cl := c.client
	if cl.first != nil {
		cl.last.next, cl.last = c, c
		return
	}
	cl.first, cl.last = c, c
	cs.append(cl)
}

// pop takes the next connection; nil: there is none.
func (cs *clients) pop() *Conn {
	cl := cs.first
	for cl != nil && cl.owes > 0 && cl.next != nil {
		cl.owes--
		cs.first, cl.next = cl.next, nil
		cs.append(cl)
		cl = cs.first
	}
	if cl == nil {
		return nil
	}
	cl.owes = 0 // it may be the only one
	cs.first, cl.next = cl.next, nil
	c := cl.first
	if cl.first, c.next = c.next, nil; cl.first != nil {
		cs.append(cl)
	}
	return c
}

func (cs *clients) append(cl *client) {
	if cs.first == nil {
		cs.first = cl
	} else {
		cs.last.next = cl
	}
	cs.last = cl
}
