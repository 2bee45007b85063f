package client

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/shardwatch/shardwatch/internal/files/reload"
	"github.com/shardwatch/shardwatch/internal/files/tlsconf"
)

// TLSFiles are PEM files that a client's connections are secured with. They are
// looked at every five seconds: a connection that begins afterwards uses what
// they hold then, and open ones continue. So certificates and CAs may be
// replaced under a program that runs, in place or as Kubernetes swaps the volume
// of a Secret.
//
// [New] fails when they are not good. Later, what cannot be used changes nothing:
// what was read before stays in use, [Config.Logger] hears why, once for each
// content, and [Stats].TLSError tells it until it is mended.
type TLSFiles struct {
	// CA holds the certificates that those of the nodes must come from; "": the
	// system's.
	CA string
	// Cert holds the certificate that nodes are shown, followed by its
	// intermediates, and Key its private key; both or neither.
	Cert, Key string
	// ServerName is what the certificate of every node must be good for; "": the
	// host that is dialled, an endpoint's or the one that a node advertises.
	ServerName string
}

// files is what Config.TLSFiles hold, as it is in use. A nil files is none.
type files struct {
	*tlsconf.Material
	serverName string
	err        atomic.Pointer[error] // of the last reading; nil: none yet
}

func openFiles(f TLSFiles) (*files, error) {
	if f == (TLSFiles{}) {
		return nil, nil //nolint:nilnil // nil is no files
	}
	m, err := tlsconf.Load(tlsconf.Files{Cert: f.Cert, Key: f.Key, CA: f.CA}, tlsconf.Names{Cert: "Cert", Key: "Key", CA: "CA"})
	if err != nil {
		return nil, fmt.Errorf("TLSFiles: %w", err)
	}
	return &files{Material: m, serverName: f.ServerName}, nil
}

// config is for one connection.
func (f *files) config() *tls.Config {
	c := f.Client(tls.VersionTLS12)
	c.ServerName = f.serverName
	return c
}

// follow reads the files again when they change, until ctx ends.
func (f *files) follow(ctx context.Context, log *slog.Logger) {
	load := func() error {
		err := f.Reload()
		f.err.Store(&err)
		return err //nolint:wrapcheck // names the file
	}
	w := reload.New(reload.Every, log, reload.Part{What: "TLSFiles", Files: f.Paths, Load: load, Expires: f.Expires})
	_ = w.Run(ctx, nil) // always nil
}

// failing returns why what is in the files is not in use; nil: it is.
func (f *files) failing() error {
	if f == nil {
		return nil
	}
	if err := f.err.Load(); err != nil {
		return *err
	}
	return nil
}
