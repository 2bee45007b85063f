package peerapi

import (
	"slices"
	"testing"
)

// A part is sent as soon as it has its size. The last part is sent, too.
func TestPartsHaveTheirSize(t *testing.T) {
	for _, c := range []struct {
		items []int
		want  [][]int
	}{
		{nil, nil},
		{[]int{3}, [][]int{{3}}},
		{[]int{9}, [][]int{{9}}},
		{[]int{4, 4, 4, 4, 4}, [][]int{{4, 4}, {4, 4}, {4}}},
		{[]int{7, 1, 8, 3}, [][]int{{7, 1}, {8}, {3}}},
	} {
		var got [][]int
		var part []int
		err := inParts(slices.Values(c.items), 8, func() error {
			got = append(got, slices.Clone(part))
			return nil
		}, func(item int, begin bool) int {
			if begin {
				part = nil
			}
			part = append(part, item)
			return item
		})
		if err != nil || !slices.EqualFunc(got, c.want, slices.Equal) {
			t.Errorf("%v: %v, %v; want %v", c.items, got, err, c.want)
		}
	}
}
