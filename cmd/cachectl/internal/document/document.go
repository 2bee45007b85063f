// Package document prints the result of a command as a document, in the formats of --output.
package document

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/theory/jsonpath"
	"go.yaml.in/yaml/v3"
)

// Formats are the values of --output.
const Formats = "table, json, yaml, jsonl, name or jsonpath=PATH"

// Printer prints documents.
type Printer struct {
	// Out is the writer of the documents.
	Out io.Writer
	// Format is one of Formats, as Validate checks.
	Format string

	path *jsonpath.Path // of the format jsonpath; nil: another format
}

// Validate fails if the format is not one of Formats.
func (p *Printer) Validate() error {
	if path, ok := strings.CutPrefix(p.Format, "jsonpath="); ok {
		var err error
		if p.path, err = jsonpath.Parse(path); err != nil {
			return fmt.Errorf("--output jsonpath: %w; for example -o jsonpath='$.members[*].name'", err)
		}
	} else if !slices.Contains([]string{"table", "json", "yaml", "jsonl", "name"}, p.Format) {
		return fmt.Errorf("--output %q: use %s", p.Format, Formats)
	}
	return nil
}

// Structured reports whether the format is for documents, not for a table.
func (p *Printer) Structured() bool { return p.Format != "table" }

// Document prints the only document of a command.
func (p *Printer) Document(v any) error { return p.print(v, false) }

// OneDocument prints one of several documents, each in one line of JSON.
func (p *Printer) OneDocument(v any) error { return p.print(v, true) }

// print prints a document. several means that it is one of several documents.
func (p *Printer) print(v any, several bool) error {
	text, err := encode(v)
	if err != nil {
		return fmt.Errorf("write: %w", err)
	}
	var out bytes.Buffer
	switch {
	case p.path != nil:
		err = p.printSelected(&out, text)
	case p.Format == "name":
		err = printNames(&out, text, several)
	case p.Format == "yaml":
		if several {
			out.WriteString("---\n")
		}
		err = printYAML(&out, text)
	case p.Format == "json" && !several:
		err = json.Indent(&out, text, "", "  ")
		out.WriteString("\n")
	case several:
		fmt.Fprintf(&out, "%s\n", text)
	default:
		for _, item := range items(text) {
			fmt.Fprintf(&out, "%s\n", item)
		}
	}
	if err == nil {
		_, err = io.Copy(p.Out, &out)
	}
	if err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

func encode(v any) ([]byte, error) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), err //nolint:wrapcheck // wrapped by print
}

// items returns the elements of the list in a document, or the document itself if it has no
// list.
func items(text []byte) []json.RawMessage {
	var fields map[string]json.RawMessage
	if json.Unmarshal(text, &fields) == nil {
		for _, name := range []string{"kvs", "members", "nodes", "shards", "watchers", "voters", "resources", "contexts"} {
			list := []json.RawMessage{}
			if err := json.Unmarshal(fields[name], &list); err == nil && list != nil && (len(list) == 0 || list[0][0] == '{') {
				return list
			}
		}
	}
	return []json.RawMessage{text}
}

// printNames prints the keys or names of the elements of a document that have one, or, for
// one of several documents, its own.
func printNames(w io.Writer, text []byte, several bool) error {
	all := []json.RawMessage{text}
	if !several {
		all = items(text)
	}
	for _, item := range all {
		var v struct {
			KV        json.RawMessage `json:"kv"`
			Key       string          `json:"key"`
			KeyBase64 []byte          `json:"key_base64"`
			Name      string          `json:"name"`
			ID        json.RawMessage `json:"id"`
			Member    json.RawMessage `json:"member"`
		}
		if err := json.Unmarshal(item, &v); err != nil {
			return err //nolint:wrapcheck // wrapped by print
		}
		switch {
		case v.KV != nil:
			if err := printNames(w, v.KV, true); err != nil {
				return err
			}
		case v.Key != "":
			fmt.Fprintln(w, Text([]byte(v.Key)))
		case v.KeyBase64 != nil:
			fmt.Fprintln(w, Text(v.KeyBase64))
		case v.Name != "":
			fmt.Fprintln(w, v.Name)
		case v.ID != nil:
			fmt.Fprintln(w, string(v.ID))
		case v.Member != nil:
			if err := printNames(w, v.Member, true); err != nil {
				return err
			}
		}
	}
	return nil
}

// printSelected prints the values that the path selects, one per line: text unquoted.
func (p *Printer) printSelected(w io.Writer, text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber() // a float cannot represent all lease IDs
	var v any
	if err := d.Decode(&v); err != nil {
		return err //nolint:wrapcheck // wrapped by print
	}
	for selected := range p.path.Select(v).All() {
		if _, ok := selected.(string); !ok {
			b, err := encode(selected)
			if err != nil {
				return err
			}
			selected = string(b)
		}
		fmt.Fprintln(w, selected)
	}
	return nil
}

// printYAML prints JSON as YAML, with its fields in the same order.
func printYAML(w io.Writer, text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	node, err := yamlNode(d)
	if err != nil {
		return err
	}
	e := yaml.NewEncoder(w)
	e.SetIndent(2)
	return errors.Join(e.Encode(node), e.Close())
}

// yamlNode reads the next value.
func yamlNode(d *json.Decoder) (*yaml.Node, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err //nolint:wrapcheck // wrapped by print
	}
	switch t := token.(type) {
	case json.Delim:
		n := &yaml.Node{Kind: yaml.MappingNode}
		if t == '[' {
			n.Kind = yaml.SequenceNode
		}
		for d.More() { // in an object: names and values
			child, err := yamlNode(d)
			if err != nil {
				return nil, err
			}
			n.Content = append(n.Content, child)
		}
		_, err := d.Token()
		return n, err //nolint:wrapcheck // wrapped by print
	case string:
		n := &yaml.Node{}
		n.SetString(t)
		return n, nil
	case nil:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: "null"}, nil
	default: // a number or a boolean
		return &yaml.Node{Kind: yaml.ScalarNode, Value: fmt.Sprint(t)}, nil
	}
}

// Text formats a key or value for people: unchanged if it is one line of visible
// characters, otherwise quoted as in Go.
func Text(b []byte) string {
	if !utf8.Valid(b) {
		return strconv.Quote(string(b))
	}
	for _, r := range string(b) {
		if !unicode.IsPrint(r) {
			return strconv.Quote(string(b))
		}
	}
	if len(b) == 0 || b[0] == '"' || b[0] == ' ' || b[len(b)-1] == ' ' {
		return strconv.Quote(string(b))
	}
	return string(b)
}
