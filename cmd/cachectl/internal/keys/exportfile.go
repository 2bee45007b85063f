package keys

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/cmd/cachectl/internal/cli"
	"github.com/shardwatch/shardwatch/cmd/cachectl/internal/document"
)

// An export is lines of JSON: an exportHead, a KeyValueJSON for each key in the order of
// keys, and an exportEnd. Without an exportEnd it is truncated.

// exportVersion is the version of the format.
const exportVersion = 1

// exportLine bounds a line of an export, in bytes: etcd accepts 1.5 MiB, and JSON takes up to
// six times as much.
const exportLine = 16 << 20

type exportHead struct {
	Export int `json:"export"`
	cli.PositionJSON
	Start       *string `json:"start,omitempty"`
	StartBase64 []byte  `json:"start_base64,omitempty"`
	End         *string `json:"end,omitempty"`
	EndBase64   []byte  `json:"end_base64,omitempty"`
}

type exportEnd struct {
	Exported int64 `json:"exported"`
}

func headOf(r client.Range, at client.Position) exportHead {
	h := exportHead{Export: exportVersion, PositionJSON: cli.PositionOf(at)}
	h.Start, h.StartBase64 = cli.Text([]byte(r.Start))
	h.End, h.EndBase64 = cli.Text([]byte(r.End))
	return h
}

// exportReader reads an export and checks it.
type exportReader struct {
	in   *bufio.Scanner
	line int
	rng  client.Range
	last string // the last key
	keys int64
}

// readExport reads the head.
func readExport(r io.Reader) (*exportReader, error) {
	e := &exportReader{in: bufio.NewScanner(r)}
	e.in.Buffer(nil, exportLine)
	var head exportHead
	if err := e.decode(&head); err != nil {
		return nil, err
	}
	if head.Export != exportVersion {
		return nil, fmt.Errorf("line 1 is not the header of an export of version %d: it needs \"export\":%d, as cachectl export writes it", exportVersion, exportVersion)
	}
	e.rng = client.Between(string(bytesOrText(head.Start, head.StartBase64)), string(bytesOrText(head.End, head.EndBase64)))
	return e, nil
}

// next returns the next key, with its value and lease only; false: there is none.
func (e *exportReader) next() (kv client.KeyValue, ok bool, err error) {
	var l struct {
		Exported *int64 `json:"exported"`
		cli.KeyValueJSON
	}
	if err := e.decode(&l); err != nil {
		return kv, false, err
	}
	if l.Exported != nil {
		if *l.Exported != e.keys {
			return kv, false, fmt.Errorf("line %d: %d keys were exported, but the file has %d", e.line, *l.Exported, e.keys)
		}
		return kv, false, nil
	}
	kv = client.KeyValue{Key: bytesOrText(l.Key, l.KeyBase64), Value: bytesOrText(l.Value, l.ValueBase64), Lease: l.Lease}
	key := string(kv.Key)
	switch {
	case len(kv.Key) == 0 || l.Value == nil && l.ValueBase64 == nil:
		return kv, false, fmt.Errorf("line %d: no key, or no value", e.line)
	case key <= e.last:
		return kv, false, fmt.Errorf("line %d: %s is out of order", e.line, document.Text(kv.Key))
	case !e.rng.Contains(key):
		return kv, false, fmt.Errorf("line %d: %s is not in the range of the export, %v", e.line, document.Text(kv.Key), e.rng)
	}
	e.last = key
	e.keys++
	return kv, true, nil
}

// decode reads the next line.
func (e *exportReader) decode(v any) error {
	e.line++
	if !e.in.Scan() {
		if err := e.in.Err(); err != nil {
			return fmt.Errorf("line %d: %w", e.line, err)
		}
		return fmt.Errorf("line %d is missing: the export is truncated", e.line)
	}
	if err := json.NewDecoder(bytes.NewReader(e.in.Bytes())).Decode(v); err != nil {
		return fmt.Errorf("line %d: %w", e.line, err)
	}
	return nil
}

// checkExport reads an export completely and rejects data after it.
func checkExport(r io.Reader) error {
	e, err := readExport(r)
	for ok := true; ok && err == nil; {
		_, ok, err = e.next()
	}
	if err == nil && e.in.Scan() {
		err = fmt.Errorf("line %d: data after the end", e.line+1)
	}
	return err
}

func bytesOrText(s *string, b []byte) []byte {
	if s != nil {
		return []byte(*s)
	}
	return b
}
