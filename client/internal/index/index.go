// Package index finds the keys of a mirror by terms. The owner of an [Index] guards it.
package index

import (
	"maps"
	"slices"
)

// Index finds keys by terms.
type Index struct {
	terms map[string][]string            // by key
	keys  map[string]map[string]struct{} // by term
}

// New returns an index of no keys.
func New() *Index {
	return &Index{terms: map[string][]string{}, keys: map[string]map[string]struct{}{}}
}

// Set replaces the terms of a key.
func (x *Index) Set(key string, terms []string) {
	for _, term := range x.terms[key] {
		if delete(x.keys[term], key); len(x.keys[term]) == 0 {
			delete(x.keys, term)
		}
	}
	delete(x.terms, key)
	if len(terms) == 0 {
		return
	}
	x.terms[key] = slices.Clone(terms)
	for _, term := range terms {
		if x.keys[term] == nil {
			x.keys[term] = map[string]struct{}{}
		}
		x.keys[term][key] = struct{}{}
	}
}

// Find returns the keys with a term, in order.
func (x *Index) Find(term string) []string {
	return slices.Sorted(maps.Keys(x.keys[term]))
}
