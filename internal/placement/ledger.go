package placement

// ledgerSize is how many requests are remembered. A repetition comes within
// seconds, and changes of the map are rare.
const ledgerSize = 512

// entry is a request that was applied.
type entry struct {
	RequestID string `json:"id"`
	Version   uint64 `json:"version"` // of the map it made
}

// ledger remembers the last requests that were applied, so that a repeated one
// is answered and not done again. Refusals are not remembered: they change
// nothing, and the version a command was made for refuses it again.
type ledger struct {
	entries []entry // oldest first
	byID    map[string]uint64
}

func newLedger(entries []entry) *ledger {
	l := &ledger{byID: make(map[string]uint64)}
	for _, e := range entries {
		l.add(e)
	}
	return l
}

func (l *ledger) add(e entry) {
	if e.RequestID == "" {
		return
	}
	if len(l.entries) == ledgerSize {
		delete(l.byID, l.entries[0].RequestID)
		l.entries = append([]entry(nil), l.entries[1:]...)
	}
	l.entries = append(l.entries, e)
	l.byID[e.RequestID] = e.Version
}

func (l *ledger) find(requestID string) (version uint64, ok bool) {
	version, ok = l.byID[requestID]
	return version, ok
}
