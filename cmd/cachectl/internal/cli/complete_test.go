package cli

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/shardwatch/shardwatch/client"
)

// Keys are completed like paths, with few lists of few keys, however many keys exist.
func TestBranches(t *testing.T) {
	var keys []string
	for i := range 1000 {
		keys = append(keys, fmt.Sprintf("/a/%04d", i), fmt.Sprintf("/b/%04d", i))
	}
	keys = append(keys, "/c", "/c/1", "/\xff", "/\n")
	for i := range 100 {
		keys = append(keys, fmt.Sprintf("/many/%03d/x", i))
	}
	slices.Sort(keys)
	var many []string
	for i := range completeKeys {
		many = append(many, fmt.Sprintf("/many/%03d/", i))
	}
	for prefix, want := range map[string][]string{
		"":        {"/"},
		"/":       {"/a/", "/b/", "/c", "/c/", "/many/"},
		"/b/099":  {"/b/0990", "/b/0991", "/b/0992", "/b/0993", "/b/0994", "/b/0995", "/b/0996", "/b/0997", "/b/0998", "/b/0999"},
		"/c":      {"/c", "/c/"},
		"/many/":  many,
		"/none":   nil,
		"/many/1": nil,
	} {
		lists := 0
		got, err := branches(prefix, func(r client.Range) (page []string, err error) {
			lists++
			for _, k := range keys {
				if r.Contains(k) && len(page) < completeKeys {
					page = append(page, k)
				}
			}
			return page, nil
		})
		if err != nil || !slices.Equal(got, want) || lists > completeLists {
			t.Errorf("%q: %d lists, %v: %s", prefix, lists, err, strings.Join(got, " "))
		}
	}
}
