package config

import (
	"bytes"
	"fmt"
	"io"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// Print writes the settings in fs as YAML that --config reads back, each with
// its source if it is not the default. Settings name the files of secrets and never
// hold secrets, so nothing has to be left out.
func Print(w io.Writer, fs *pflag.FlagSet, l Layered) error {
	root := &yaml.Node{Kind: yaml.MappingNode}
	for _, name := range settings(fs) {
		value := valueNode(fs.Lookup(name).Value)
		if source, ok := l.Source[name]; ok {
			value.LineComment = source
		}
		root.Content = append(root.Content, scalarNode(name), value)
	}
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	if err := enc.Encode(root); err != nil {
		return fmt.Errorf("print configuration: %w", err)
	}
	_, err := w.Write(out.Bytes())
	return err
}

func valueNode(v pflag.Value) *yaml.Node {
	list, ok := v.(pflag.SliceValue)
	if !ok {
		return scalarNode(v.String())
	}
	n := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
	for _, item := range list.GetSlice() {
		n.Content = append(n.Content, scalarNode(item))
	}
	return n
}

// scalarNode writes s unquoted if it is read back as s: 16 rather than "16", since every value is read as text,
// whatever its YAML type. Only null must differ from the empty string.
func scalarNode(s string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Value: s}
	if n.ShortTag() == "!!null" {
		n.Style = yaml.DoubleQuotedStyle
	}
	return n
}
