package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// entry is one setting from the file or the environment.
type entry struct {
	flag string
	// value is the text of a single value or of a comma separated list; list is the items of a YAML sequence.
	// One of them is set.
	value string
	list  []string
	// place is file:line, or the name of a variable.
	place string
}

// parseFile parses YAML: one mapping from flag names to values. It returns the valid entries, and an error that
// names every other one with its line.
func parseFile(path string, data []byte, fs *pflag.FlagSet) ([]entry, error) {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, nil // an empty file, or only comments
	} else if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: more than one YAML document", path)
	}
	root := doc.Content[0]
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
		return nil, nil
	}
	if root.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("%s:%d: want lines of the form \"name: value\"", path, root.Line)
	}

	var (
		entries []entry
		errs    []error
		known   = settings(fs)
		lines   = map[string]int{}
	)
	for i := 0; i < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]
		place := fmt.Sprintf("%s:%d", path, key.Line)
		first, twice := lines[key.Value]
		switch {
		case !slices.Contains(known, key.Value):
			errs = append(errs, fmt.Errorf("%s: unknown key %q%s", place, key.Value, didYouMean(key.Value, known, "")))
			continue
		case twice:
			errs = append(errs, fmt.Errorf("%s: %s is set again; it was set in line %d", place, key.Value, first))
			continue
		}
		lines[key.Value] = key.Line
		e := entry{flag: key.Value, place: place}
		if err := e.read(value, fs.Lookup(key.Value)); err != nil {
			errs = append(errs, fmt.Errorf("%s: %s: %w", place, key.Value, err))
			continue
		}
		entries = append(entries, e)
	}
	return entries, errors.Join(errs...)
}

// read reads the value of one key.
func (e *entry) read(n *yaml.Node, f *pflag.Flag) error {
	_, isList := f.Value.(pflag.SliceValue)
	switch {
	case n.Kind == yaml.ScalarNode && n.Tag == "!!null":
		return errors.New("has no value: give one, or leave the key out")
	case n.Kind == yaml.ScalarNode:
		e.value = n.Value
		return nil
	case n.Kind == yaml.SequenceNode && isList:
	case n.Kind == yaml.SequenceNode:
		return errors.New("takes one value, not a list")
	default:
		return errors.New("takes a plain value")
	}
	e.list = make([]string, 0, len(n.Content))
	for _, item := range n.Content {
		if item.Kind != yaml.ScalarNode || item.Tag == "!!null" {
			return errors.New("is a list of plain values")
		}
		e.list = append(e.list, item.Value)
	}
	return nil
}
