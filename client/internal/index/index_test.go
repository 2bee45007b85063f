package index

import (
	"slices"
	"testing"
)

// A key is found by its current terms only.
func TestTermsOfAKeyAreReplaced(t *testing.T) {
	x := New()
	x.Set("b", []string{"red", "round"})
	x.Set("a", []string{"red"})
	x.Set("b", []string{"round", "blue"})
	for term, want := range map[string][]string{"red": {"a"}, "round": {"b"}, "blue": {"b"}, "green": nil} {
		if got := x.Find(term); !slices.Equal(got, want) {
			t.Errorf("%s finds %v, want %v", term, got, want)
		}
	}
	x.Set("a", nil)
	if got := x.Find("red"); len(got) > 0 || len(x.keys) != 2 || len(x.terms) != 1 {
		t.Errorf("%v is found; left: %v, %v", got, x.keys, x.terms)
	}
}
