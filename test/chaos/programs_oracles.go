package chaos

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/testing/check"
)

// copied is a copy of a range that a program's output maintains.
type copied struct {
	r       kv.Range
	at      *era            // the era of the output
	history client.Position // without a revision: how the program identifies the era
	rev     kv.Revision
	values  map[string]uint64 // hashes, by key
}

// move switches the copy to the history of a line. A new history must begin with the whole state.
func (c *copied) move(p client.Position, whole bool, now *era) error {
	if h := historyOf(p); h != c.history {
		if !whole {
			return fmt.Errorf("the history changed from %v to %v without the state", c.history, h)
		}
		c.history, c.at, c.rev = h, now, 0
	}
	if kv.Revision(p.Revision) > c.at.history.Head() {
		if c.at.ended.Err() == nil {
			return errAhead
		}
		return nil // etcd was lost before its own watch reported it
	}
	return nil
}

// known reports whether the truth has reached a revision.
func (c *copied) known(rev kv.Revision) bool { return rev <= c.at.history.Head() }

// missed returns an error if the range has changed after one revision and before another.
func (c *copied) missed(after, before kv.Revision) error {
	if revs := c.at.history.Touching(c.r, after, before-1); len(revs) > 0 {
		return fmt.Errorf("from revision %d to %d: no line for %v", after, before, revs)
	}
	return nil
}

// equal compares the copy with etcd.
func (c *copied) equal(rev kv.Revision) error {
	items := c.at.history.State(c.r, rev)
	for _, i := range items {
		if got, ok := c.values[i.Key]; !ok || got != i.Value {
			return fmt.Errorf("at revision %d it has %016x (%v) of %v", rev, got, ok, i)
		}
	}
	if len(items) != len(c.values) {
		return fmt.Errorf("at revision %d it has %d keys of %d", rev, len(c.values), len(items))
	}
	return nil
}

func (c *copied) complete(now *era, rev kv.Revision) error {
	if c.at != now {
		return fmt.Errorf("it is in another history, at revision %d of %v", c.rev, c.history)
	}
	if err := c.missed(c.rev, rev+1); err != nil {
		return err
	}
	return c.equal(max(c.rev, rev))
}

func (c *copied) set(key string, value *string) {
	if value == nil {
		delete(c.values, key)
		return
	}
	c.values[key] = check.HashValue([]byte(*value))
}

// differences judges the program differences: after each line its copy equals etcd at the line's
// revision.
type differences struct{ copied }

func (d *differences) began() { d.values = map[string]uint64{} }

func (d *differences) take(text []byte, now *era) error {
	var line struct {
		client.Position

		Initial, Resync bool
		Events          []struct {
			Key           string
			Before, After *string
		}
	}
	if err := json.Unmarshal(text, &line); err != nil {
		return err
	}
	if err := d.move(line.Position, line.Initial || line.Resync, now); err != nil {
		return err
	}
	rev := kv.Revision(line.Revision)
	if rev <= d.rev && !line.Resync {
		return fmt.Errorf("it went back from revision %d", d.rev)
	}
	for _, e := range line.Events {
		had, ok := d.values[e.Key]
		if ok != (e.Before != nil) || ok && had != check.HashValue([]byte(*e.Before)) {
			return fmt.Errorf("the value of %s before is not the one after of a line before", e.Key)
		}
		d.set(e.Key, e.After)
	}
	d.rev = rev
	if !d.known(rev) {
		return nil
	}
	return d.equal(rev)
}

// worker judges the program worker: each event at least once, in order, also across restarts, or a
// unit in its place.
type worker struct {
	copied

	again bool // no line since the program started
}

func (w *worker) began() {
	w.again = true
	if w.values == nil {
		w.values = map[string]uint64{}
	}
}

// workLine is a line of the worker.
type workLine struct {
	client.Position

	Kind  string
	From  int64
	Reset bool
	Steps []struct {
		Key   string
		Value *string
	}
}

func (w *worker) take(text []byte, now *era) error {
	var line workLine
	if err := json.Unmarshal(text, &line); err != nil {
		return err
	}
	if err := w.move(line.Position, line.Reset, now); err != nil {
		return err
	}
	rev := kv.Revision(line.Revision)
	if err := w.follows(line, rev); err != nil {
		return err
	}
	if line.Reset {
		clear(w.values)
	}
	for _, s := range line.Steps {
		w.set(s.Key, s.Value)
	}
	w.rev, w.again = rev, false
	if line.Reset && w.known(rev) {
		return w.equal(rev)
	}
	return nil
}

// follows checks that no revision is missing between the previous line and this one, and no event
// of a batch.
func (w *worker) follows(line workLine, rev kv.Revision) error {
	if rev <= w.rev && !w.again && !line.Reset {
		return fmt.Errorf("it went back from revision %d", w.rev)
	}
	switch line.Kind {
	case "batch":
		if err := w.missed(w.rev, rev); err != nil || !w.known(rev) {
			return err
		}
		var got []check.Event
		for _, s := range line.Steps {
			if s.Value == nil {
				got = append(got, check.Delete(s.Key, rev))
			} else {
				got = append(got, check.Put(check.Item{Key: s.Key, Mod: rev, Value: check.HashValue([]byte(*s.Value))}))
			}
		}
		want := w.at.history.Events(w.r, rev)
		if !slices.EqualFunc(got, want, func(a, b check.Event) bool {
			return a.Type == b.Type && a.KV.Key == b.KV.Key && a.KV.Mod == b.KV.Mod && a.KV.Value == b.KV.Value
		}) {
			return fmt.Errorf("of revision %d it has %v, etcd %v", rev, got, want)
		}
	case "delta":
		return w.missed(w.rev, kv.Revision(line.From)+1)
	}
	return nil
}

// settings judges the program settings: in the end it has each value that can be decoded, and
// reported an error for each of the others.
type settings struct {
	r       kv.Range
	values  map[string]uint64      // hashes of the last valid ones
	invalid map[string]kv.Revision // the last invalid one
}

// document is a value that can be decoded.
type document struct {
	Value string `json:"v"`
}

func (s *settings) began() { s.values, s.invalid = map[string]uint64{}, map[string]kv.Revision{} }

func (s *settings) take(text []byte, _ *era) error {
	var line struct {
		Key           string
		Before, After *document
		Invalid       bool
		Value         string
		Revision      int64
	}
	if err := json.Unmarshal(text, &line); err != nil {
		return err
	}
	if line.Invalid {
		if json.Unmarshal([]byte(line.Value), &document{}) == nil {
			return fmt.Errorf("the value of %s is a setting", line.Key)
		}
		s.invalid[line.Key] = kv.Revision(line.Revision)
		return nil
	}
	had, ok := s.values[line.Key]
	if ok != (line.Before != nil) || ok && had != line.Before.hash() {
		return fmt.Errorf("the value of %s before is not the one after of a line before", line.Key)
	}
	if line.After == nil {
		delete(s.values, line.Key)
		return nil
	}
	s.values[line.Key] = line.After.hash()
	return nil
}

// hash returns the hash of the bytes from which value made the setting.
func (d *document) hash() uint64 {
	text, err := json.Marshal(d)
	if err != nil {
		panic(err) // a string
	}
	return check.HashValue(text)
}

func (s *settings) complete(now *era, rev kv.Revision) error {
	rev = max(rev, now.history.Head()) // leases expire
	there := map[string]bool{}
	for _, i := range now.history.State(s.r, rev) {
		there[i.Key] = true
		if got := s.values[i.Key]; got != i.Value && s.invalid[i.Key] != i.Mod {
			return fmt.Errorf("it has %016x of %v", got, i)
		}
	}
	for key := range s.values {
		if !there[key] {
			return fmt.Errorf("it has %s, which does not exist", key)
		}
	}
	return nil
}
