package selector_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/shardwatch/shardwatch/internal/kube/object"
	"github.com/shardwatch/shardwatch/internal/kube/selector"
)

func TestSelectors(t *testing.T) {
	o, err := object.Parse(object.JSON, []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"d","labels":{"app":"a","n":"7"}},"spec":{"nodeName":"x"}}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		labels, fields string
		want           bool
	}{
		{"", "", true},
		{"app=a", "", true},
		{"app=b", "", false},
		{"app!=a", "", false},
		{"app!=b,other!=b", "", true},
		{"app in (a, b)", "", true},
		{"app in (c, b, a, b)", "", true},
		{"app notin (c, b, a, b)", "", false},
		{"app in (c, b, d, b)", "", false},
		{"app notin (a)", "", false},
		{"other notin (a)", "", true},
		{"other", "", false},
		{"!other", "", true},
		{"!app", "", false},
		{"n>6,n<8", "", true},
		{"n>7", "", false},
		{"n<7", "", false},
		{"app>1", "", false},
		{"app!=,example.com/A_b.c!=D-e_f.g", "", true},
		{"app=,x=" + strings.Repeat("v", 63), "", false},
		{"", "spec.nodeName=x", true},
		{"", "spec.nodeName!=x", false},
		{"app=a", "spec.nodeName=x,metadata.name=q", false},
	} {
		s, err := selector.Parse(c.labels, c.fields)
		if err != nil {
			t.Fatalf("%q %q: %v", c.labels, c.fields, err)
		}
		if got := s.Matches(&o); got != c.want || s.Everything() != (c.labels+c.fields == "") {
			t.Errorf("%q %q: %v, want %v", c.labels, c.fields, got, c.want)
		}
	}
}

func TestSelectorsAreForAnApiserver(t *testing.T) {
	longest := "a in (" + strings.Repeat("b,", (selector.MaxBytes-8)/2) + "b)"
	longest += strings.Repeat(" ", selector.MaxBytes-len(longest))
	if _, err := selector.Parse(longest, ""); err != nil {
		t.Fatalf("a selector of %d bytes: %v", len(longest), err)
	}
	for _, c := range [][2]string{
		{"app in a", ""},
		{"a=b=c", ""},
		{"", "name"},
		{longest + " ", ""},
		{"a=b:c", ""},
		{"a=b/c", ""},
		{"a!=-b", ""},
		{"a in (b, c.)", ""},
		{"a$", ""},
		{"/a", ""},
		{"a/", ""},
		{"a/b/c", ""},
		{"!a..b/c", ""},
		{"A/b", ""},
		{"a_b/c", ""},
		{"a=" + strings.Repeat("b", 64), ""},
		{strings.Repeat("a", 64), ""},
		{strings.Repeat("a", 254) + "/b", ""},
		{"a>-1", ""},
		{"a<+1", ""},
	} {
		if _, err := selector.Parse(c[0], c[1]); !errors.Is(err, selector.ErrInvalid) {
			t.Errorf("%.40q %q: %v", c[0], c[1], err)
		}
	}
	s, err := selector.Parse("", "metadata.name=a,spec.nodeName=x")
	if err != nil {
		t.Fatal(err)
	}
	if !s.Supports("v1", "Pod") || s.Supports("v1", "Node") {
		t.Error("want spec.nodeName supported for pods only")
	}
	if v, ok := s.Exact("spec.nodeName"); !ok || v != "x" {
		t.Errorf("the exact value of spec.nodeName is %q, %v", v, ok)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("app in (a,b),!c", `metadata.name=a\,b`)
	f.Fuzz(func(t *testing.T, labels, fields string) {
		if _, err := selector.Parse(labels, fields); err != nil && !errors.Is(err, selector.ErrInvalid) {
			t.Error(err)
		}
	})
}
