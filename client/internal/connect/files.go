package connect

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/shardwatch/shardwatch/internal/files/reload"
	"github.com/shardwatch/shardwatch/internal/files/tlsconf"
)

// Files has the certificates and CAs of files that are in use. Nil: none.
type Files struct {
	*tlsconf.Material
	serverName string
	err        atomic.Pointer[error] // of the last reload; nil: none yet
}

// OpenFiles reads the files. An error names client.Config.TLSFiles.
func OpenFiles(ca, cert, key, serverName string) (*Files, error) {
	m, err := tlsconf.Load(tlsconf.Files{Cert: cert, Key: key, CA: ca}, tlsconf.Names{Cert: "Cert", Key: "Key", CA: "CA"})
	if err != nil {
		return nil, fmt.Errorf("TLSFiles: %w", err)
	}
	return &Files{Material: m, serverName: serverName}, nil
}

// config returns the configuration of one connection.
func (f *Files) config() *tls.Config {
	c := f.Client(tls.VersionTLS12)
	c.ServerName = f.serverName
	return c
}

// Follow reloads the files when they change, until ctx ends.
func (f *Files) Follow(ctx context.Context, log *slog.Logger) {
	load := func() error {
		err := f.Reload()
		f.err.Store(&err)
		return err //nolint:wrapcheck // names the file
	}
	w := reload.New(reload.Every, log, reload.Part{What: "TLSFiles", Files: f.Paths, Load: load, Expires: f.Expires})
	_ = w.Run(ctx, nil) // always nil
}

// Failing returns the reason why the content of the files is not in use; nil: it is.
func (f *Files) Failing() error {
	if f == nil {
		return nil
	}
	if err := f.err.Load(); err != nil {
		return *err
	}
	return nil
}
