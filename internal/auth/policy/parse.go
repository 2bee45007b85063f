package policy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// MaxBytes bounds a policy file.
const MaxBytes = 4 << 20

// Parse parses a policy, which is YAML or its subset JSON. file is used in errors, and as the base of relative
// file names. The error has all mistakes with their lines and fields.
func Parse(file string, data []byte) (*Policy, error) {
	if len(data) > MaxBytes {
		return nil, fmt.Errorf("%s: has %d bytes: at most %d", file, len(data), MaxBytes)
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) || err == nil && doc.Content[0].Tag == "!!null" {
		return nil, fmt.Errorf("%s: is empty: it would deny everything", file)
	} else if err != nil {
		return nil, fmt.Errorf("%s: %s", file, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: more than one YAML document", file)
	}
	r := &reader{file: file, p: &Policy{roles: make(map[string][]rule)}}
	r.policy(doc.Content[0])
	if err := errors.Join(r.errs...); err != nil {
		return nil, err
	}
	return r.p, nil
}

// reader turns YAML nodes into a policy, and collects mistakes.
type reader struct {
	file string
	p    *Policy
	errs []error
}

// failf records a mistake; field is its place, such as roles.pods[0].verbs.
func (r *reader) failf(n *yaml.Node, field, format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	if field != "" {
		what = field + ": " + what
	}
	r.errs = append(r.errs, fmt.Errorf("%s:%d: %s", r.file, n.Line, what))
}

// field is a field of a mapping, with its parser.
type field struct {
	name string
	read func(n *yaml.Node, field string)
}

// fields reads a mapping of known fields.
func (r *reader) fields(n *yaml.Node, at string, known ...field) {
	names := make([]string, len(known))
	for i, f := range known {
		names[i] = f.name
	}
	r.mapping(n, at, "lines of the form \"name: value\" with "+strings.Join(names, ", "), func(key, value *yaml.Node, field string) {
		if i := slices.Index(names, key.Value); i >= 0 {
			known[i].read(value, field)
		} else {
			r.failf(key, at, "unknown field %q: use %s", key.Value, strings.Join(names, ", "))
		}
	})
}

// mapping calls each for every field of a mapping; it records a mistake if n is no mapping.
func (r *reader) mapping(n *yaml.Node, at, want string, each func(key, value *yaml.Node, field string)) {
	if n.Kind != yaml.MappingNode {
		r.failf(n, at, "want %s", want)
		return
	}
	lines := make(map[string]int)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if first, twice := lines[key.Value]; twice {
			r.failf(key, at, "%s is set again; it was set in line %d", key.Value, first)
			continue
		}
		lines[key.Value] = key.Line
		field := key.Value
		if at != "" {
			field = at + "." + field
		}
		each(key, value, field)
	}
}

// list calls each for every item of a non-empty list.
func (r *reader) list(n *yaml.Node, at string, each func(n *yaml.Node, field string)) {
	if n.Kind != yaml.SequenceNode || len(n.Content) == 0 {
		r.failf(n, at, "want a list with at least one item")
		return
	}
	for i, item := range n.Content {
		each(item, fmt.Sprintf("%s[%d]", at, i))
	}
}

// text returns the text of a non-empty scalar; false: n is none.
func (r *reader) text(n *yaml.Node, at string) (string, bool) {
	if n.Kind != yaml.ScalarNode || n.Tag == "!!null" || n.Value == "" {
		r.failf(n, at, "want a text that is not empty")
		return "", false
	}
	return n.Value, true
}

func (r *reader) texts(n *yaml.Node, at string, each func(n *yaml.Node, field, text string)) {
	r.list(n, at, func(n *yaml.Node, field string) {
		if text, ok := r.text(n, field); ok {
			each(n, field, text)
		}
	})
}

func (r *reader) policy(n *yaml.Node) {
	var roles, identities *yaml.Node
	r.fields(n, "",
		field{"tokens", r.tokens},
		field{"limits", func(n *yaml.Node, at string) { r.p.limits = r.limits(n, at) }},
		field{"roles", func(n *yaml.Node, _ string) { roles = n }},
		field{"identities", func(n *yaml.Node, _ string) { identities = n }},
	)
	if n.Kind != yaml.MappingNode {
		return
	}
	if roles == nil || identities == nil {
		r.failf(n, "", "roles and identities are required: without them everything is denied")
	}
	if roles != nil {
		r.mapping(roles, "roles", "names of roles, each with a list of rules", func(key, value *yaml.Node, at string) {
			r.p.roles[key.Value] = nil // known, even if its rules have mistakes
			r.list(value, at, func(n *yaml.Node, at string) {
				r.p.roles[key.Value] = append(r.p.roles[key.Value], r.rule(n, at))
			})
		})
	}
	if identities != nil { // after roles and tokens, to which they refer
		r.list(identities, "identities", r.entry)
	}
}

func (r *reader) tokens(n *yaml.Node, at string) {
	t := &Tokens{}
	var set []string
	into := func(to *string) func(*yaml.Node, string) {
		return func(n *yaml.Node, at string) {
			set = append(set, at)
			*to, _ = r.text(n, at)
		}
	}
	r.fields(n, at, field{"issuer", into(&t.Issuer)}, field{"audience", into(&t.Audience)}, field{"keys", into(&t.KeysFile)})
	for _, need := range []string{"issuer", "audience", "keys"} {
		if n.Kind == yaml.MappingNode && !slices.Contains(set, at+"."+need) {
			r.failf(n, at, "%s is needed", need)
		}
	}
	if t.KeysFile != "" && !filepath.IsAbs(t.KeysFile) {
		t.KeysFile = filepath.Join(filepath.Dir(r.file), t.KeysFile)
	}
	r.p.Tokens = t
}

func (r *reader) rule(n *yaml.Node, at string) rule {
	out := rule{line: n.Line}
	var keyed []string // fields for keys that are set
	keys := func(read func(n *yaml.Node, field string)) func(*yaml.Node, string) {
		return func(n *yaml.Node, field string) {
			keyed = append(keyed, field)
			read(n, field)
		}
	}
	verbsAt, denyAt, some := false, false, false
	verbsTo := func(there *bool) func(*yaml.Node, string) {
		return func(n *yaml.Node, field string) {
			*there = true
			r.texts(n, field, func(n *yaml.Node, field, text string) {
				v, err := ParseVerb(text)
				if err != nil {
					r.failf(n, field, "%v", err)
					return
				}
				out.verbs[v], some = true, true
			})
		}
	}
	r.fields(n, at,
		field{"verbs", verbsTo(&verbsAt)},
		field{"deny", verbsTo(&denyAt)},
		field{"all", keys(func(n *yaml.Node, field string) {
			if n.Tag != "!!bool" || n.Value != "true" {
				r.failf(n, field, "want true, or leave it out")
			}
			out.keys = append(out.keys, kv.Range{})
		})},
		field{"prefixes", keys(func(n *yaml.Node, field string) {
			r.texts(n, field, func(_ *yaml.Node, _, text string) { out.keys = append(out.keys, kv.Prefix(text)) })
		})},
		field{"keys", keys(func(n *yaml.Node, field string) {
			r.texts(n, field, func(_ *yaml.Node, _, text string) { out.keys = append(out.keys, kv.Single(text)) })
		})},
		field{"ranges", keys(func(n *yaml.Node, field string) {
			r.list(n, field, func(n *yaml.Node, field string) { out.keys = append(out.keys, r.span(n, field)) })
		})},
	)
	if n.Kind != yaml.MappingNode {
		return out
	}
	var ofKeys, ofOperators bool
	for v, on := range out.verbs {
		ofKeys = ofKeys || on && Verb(v).OfKeys()
		ofOperators = ofOperators || on && !Verb(v).OfKeys()
	}
	out.deny = denyAt
	switch {
	case verbsAt && denyAt:
		r.failf(n, at, "a rule allows verbs or denies them: give deny a rule of its own")
	case !verbsAt && !denyAt:
		r.failf(n, at, "verbs is needed, or deny: some of %s", strings.Join(verbNames(), ", "))
	case !some: // reported already
	case ofKeys && ofOperators:
		r.failf(n, at, "%s and %s are not about keys: give them a rule of their own", OperatorRead, OperatorWrite)
	case ofOperators && len(keyed) > 0:
		r.failf(n, at, "%s and %s are not about keys: leave %s out", OperatorRead, OperatorWrite, strings.Join(keyed, ", "))
	case ofKeys && len(keyed) == 0:
		r.failf(n, at, "keys are needed: prefixes, keys, ranges, or all: true")
	}
	return out
}

// span reads a range: from a key, and up to but without another key or to the end.
func (r *reader) span(n *yaml.Node, at string) (out kv.Range) {
	from := false
	r.fields(n, at,
		field{"from", func(n *yaml.Node, at string) { out.Start, from = r.text(n, at) }},
		field{"to", func(n *yaml.Node, at string) { out.End, _ = r.text(n, at) }},
	)
	switch {
	case n.Kind != yaml.MappingNode:
	case !from:
		r.failf(n, at, "from is needed; to is the first key after the range, and without it the range has no end")
	case out.End != "" && out.End <= out.Start:
		r.failf(n, at, "to (%q) is not after from (%q)", out.End, out.Start)
	}
	return out
}

func (r *reader) entry(n *yaml.Node, at string) {
	e := entry{line: n.Line}
	r.fields(n, at,
		field{"match", func(n *yaml.Node, at string) {
			r.texts(n, at, func(n *yaml.Node, at, text string) {
				p, err := parsePattern(text)
				switch {
				case err != nil:
					r.failf(n, at, "%v", err)
				case p.kind() == kindSubject && r.p.Tokens == nil:
					r.failf(n, at, "%s names come from bearer tokens, and there is no tokens: section that says which are accepted", kindSubject)
				}
				e.match = append(e.match, p)
			})
		}},
		field{"roles", func(n *yaml.Node, at string) {
			r.texts(n, at, func(n *yaml.Node, at, text string) {
				if _, ok := r.p.roles[text]; !ok {
					r.failf(n, at, "unknown role %q: use %s", text, strings.Join(r.p.Roles(), ", "))
				}
				e.roles = append(e.roles, text)
			})
		}},
		field{"limits", func(n *yaml.Node, at string) { e.limits = r.limits(n, at) }},
	)
	if n.Kind == yaml.MappingNode {
		for _, need := range []string{"match", "roles"} {
			if !slices.ContainsFunc(n.Content, func(k *yaml.Node) bool { return k.Value == need }) {
				r.failf(n, at, "%s is needed", need)
			}
		}
	}
	r.p.entries = append(r.p.entries, e)
}
