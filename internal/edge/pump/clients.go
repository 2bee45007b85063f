package pump

// clients are the connections with work that no pump visits. Clients take turns, and the
// connections of a client are served first come, first served: a client with ten thousand
// connections delays other clients by one visit. A turn is one visit of up to visitBytes. After a
// larger visit, the client waits for that many turns of others (deficit
// round robin). So a client with fifty messages for each of its connections also delays others
// by only one visit. The zero clients is empty. All fields are guarded by the Pumps' mu.
type clients struct {
	byName      map[string]*client
	first, last *client // clients with connections in the list
}

// client is a client with streams, or with connections in the list.
type client struct {
	name        string
	streams     int
	first, last *Conn
	next        *client
	owes        int // turns of others before its next turn
}

// open adds a stream of a client.
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

// close removes a stream of a client.
func (cs *clients) close(cl *client) {
	if cl.streams--; cl.streams == 0 {
		delete(cs.byName, cl.name)
	}
}

// any reports whether a connection is in the list.
func (cs *clients) any() bool { return cs.first != nil }

// push adds a connection that is not in the list.
func (cs *clients) push(c *Conn) {
	cl := c.client
	if cl.first != nil {
		cl.last.next, cl.last = c, c
		return
	}
	cl.first, cl.last = c, c
	cs.append(cl)
}

// pop removes and returns the next connection, or nil.
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
	cl.owes = 0 // the only client need not wait
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
