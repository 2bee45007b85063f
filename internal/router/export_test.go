package router

// Waits returns how many revisions are waited for by watches over several
// shards, and by how many of them, and how many frontiers there are.
func (r *Router) Waits() (revisions, watches, frontiers int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, list := range r.frontiers {
		if len(list) == 0 {
			frontiers++ // an empty list is held, too
		}
		for _, f := range list {
			frontiers++
			f.mu.Lock()
			revisions += len(f.waits)
			for _, w := range f.waits {
				watches += len(w.places)
			}
			f.mu.Unlock()
		}
	}
	return revisions, watches, frontiers
}

// Fetches returns how many shared fetches are held, and of how many shards big
// ones are under way.
func (r *Router) Fetches() (live, places int) {
	r.fetches.mu.Lock()
	defer r.fetches.mu.Unlock()
	return len(r.fetches.live), len(r.fetches.places)
}

// Earlier is what Position's Since is made of.
var Earlier = earlier
