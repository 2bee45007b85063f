package client

import "github.com/shardwatch/shardwatch/client/internal/connect"

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

// open reads the files; nil: there are none.
func (f TLSFiles) open() (*connect.Files, error) {
	if f == (TLSFiles{}) {
		return nil, nil //nolint:nilnil // nil is no files
	}
	return connect.OpenFiles(f.CA, f.Cert, f.Key, f.ServerName) //nolint:wrapcheck // New wraps it
}

// TokenFile returns a function for [Config.Token] that reads the token from a
// file, and again every 10 s: the file may be replaced at any time, as
// Kubernetes does with the token of a service account.
func TokenFile(name string) func() (string, error) { return connect.TokenFile(name) }

// PasswordFile returns a function for [Config.PasswordFrom] that reads the
// password from a file each time, without the end of its last line: the file may
// be replaced at any time.
func PasswordFile(name string) func() (string, error) { return connect.PasswordFile(name) }

// connection says how the client connects.
func (c Config) connection(files *connect.Files) connect.Options {
	password := c.PasswordFrom
	if password == nil {
		password = func() (string, error) { return c.Password, nil }
	}
	return connect.Options{
		TLS: c.TLS, Files: files, Token: c.Token, Login: connect.NewLogin(c.Username, password),
		Renews: c.Token != nil || c.PasswordFrom != nil, Dialer: c.Dialer, DialOptions: c.DialOptions,
	}
}
