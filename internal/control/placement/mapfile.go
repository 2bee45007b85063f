package placement

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cespare/xxhash/v2"

	"github.com/shardwatch/shardwatch/internal/durable"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// The map file: magic, the xxhash of what follows (8 bytes, big-endian), the
// encoded map. The map's own first byte is its feature level.
const mapMagic = "shardwatch map 1\n"

func encodeMapFile(m *shard.Map) ([]byte, error) {
	body, err := shard.EncodeMap(m)
	if err != nil {
		return nil, err
	}
	b := binary.BigEndian.AppendUint64([]byte(mapMagic), xxhash.Sum64(body))
	return append(b, body...), nil
}

// decodeMapFile fails with ErrMapFile and a reason.
func decodeMapFile(b []byte) (*shard.Map, error) {
	rest, ok := bytes.CutPrefix(b, []byte(mapMagic))
	switch {
	case !ok:
		return nil, fmt.Errorf("%w: it has no map header", ErrMapFile)
	case len(rest) < 8:
		return nil, fmt.Errorf("%w: it is cut off", ErrMapFile)
	case binary.BigEndian.Uint64(rest) != xxhash.Sum64(rest[8:]):
		return nil, fmt.Errorf("%w: its checksum does not match; it is torn or was changed", ErrMapFile)
	}
	m, err := shard.DecodeMap(rest[8:])
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMapFile, err)
	}
	return m, nil
}

// mapFile is the map's place on disk.
type mapFile interface {
	// load returns nil without an error when there is none.
	load() (*shard.Map, error)
	save(*shard.Map) error
	// refuse puts a file that cannot be used aside and says where it is now.
	refuse() (string, error)
}

type diskMapFile struct{ path string }

func newDiskMapFile(dataDir string) diskMapFile {
	return diskMapFile{path: filepath.Join(dataDir, "shardmap")}
}

func (f diskMapFile) load() (*shard.Map, error) {
	b, err := os.ReadFile(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read map file: %w", err)
	}
	m, err := decodeMapFile(b)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", f.path, err)
	}
	return m, nil
}

// save replaces the file so that it is, after a crash at any point, the old
// one or the new one.
func (f diskMapFile) save(m *shard.Map) error {
	b, err := encodeMapFile(m)
	if err != nil {
		return fmt.Errorf("write map file: %w", err)
	}
	if err := durable.MakeDir(filepath.Dir(f.path)); err != nil {
		return fmt.Errorf("write map file: %w", err)
	}
	if err := durable.WriteFile(f.path, b); err != nil {
		return fmt.Errorf("write map file: %w", err)
	}
	return nil
}

func (f diskMapFile) refuse() (string, error) {
	to := f.path + ".refused"
	if err := durable.Rename(f.path, to); err != nil {
		return to, fmt.Errorf("move the map file aside: %w", err)
	}
	return to, nil
}
