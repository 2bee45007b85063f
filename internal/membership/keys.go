package membership

import (
	"errors"
	"fmt"
	"slices"

	"github.com/hashicorp/memberlist"
)

// SetKeys replaces the keys that gossip is encrypted with: the first encrypts,
// all decrypt. To rotate a key, give every node the new key as an additional
// key, then as the first, and then alone. Nodes that are one step apart
// understand each other. SetKeys fails, and changes nothing, when a key is
// wrong, when there is none, or when gossip was not encrypted from the start.
func (m *Membership) SetKeys(keys [][]byte) error {
	switch {
	case m.keys == nil:
		return errors.New("gossip started unencrypted and cannot be encrypted while it runs")
	case len(keys) == 0:
		return errors.New("no gossip key: encryption cannot be switched off while gossip runs")
	}
	if err := validKeys(keys); err != nil {
		return err
	}
	m.keysMu.Lock()
	defer m.keysMu.Unlock()
	return setKeys(m.keys, keys)
}

// setKeys makes ring hold keys, in their order. Keyring.RemoveKey moves the keys
// after the removed one in place, under readers that hold no lock. So setKeys
// first moves obsolete keys to the end, and removes them there.
func setKeys(ring *memberlist.Keyring, keys [][]byte) error {
	for _, k := range keys {
		if err := ring.AddKey(k); err != nil {
			return err
		}
	}
	for _, k := range slices.Backward(keys) {
		if err := ring.UseKey(k); err != nil { // to the front
			return err
		}
	}
	for all := ring.GetKeys(); len(all) > len(keys); all = ring.GetKeys() {
		if err := ring.RemoveKey(all[len(all)-1]); err != nil {
			return err
		}
	}
	return nil
}

func validKeys(keys [][]byte) error {
	var errs []error
	for i, k := range keys {
		if err := memberlist.ValidateKey(k); err != nil {
			errs = append(errs, fmt.Errorf("gossip key %d has %d bytes: must be 16, 24 or 32", i+1, len(k)))
		}
		if slices.ContainsFunc(keys[:i], func(other []byte) bool { return string(other) == string(k) }) {
			errs = append(errs, fmt.Errorf("gossip key %d is listed twice", i+1))
		}
	}
	return errors.Join(errs...)
}
