package client

import "github.com/shardwatch/shardwatch/client/internal/connect"

// TLSFiles are the PEM files that secure a client's connections. The client checks them
// every five seconds: new connections use the new content, and open ones continue. So
// certificates and CAs may be replaced while a program runs, in place or as Kubernetes
// swaps the volume of a Secret.
//
// [New] fails if they are invalid. Later, invalid content changes nothing: the previous
// content stays in use, [Config.Logger] receives the reason, once for each content, and
// [Stats].TLSError has it until it is corrected.
type TLSFiles struct {
	// CA holds the certificates that verify those of the nodes; "": the system's.
	CA string
	// Cert holds the client certificate, followed by its intermediates, and Key its
	// private key; both or neither.
	Cert, Key string
	// ServerName is the name that the certificate of every node must have; "": the host
	// of the address, which is an endpoint's or the one that a node advertises.
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

// PasswordFile returns a function for [Config.PasswordFrom] that reads the password from
// a file each time, without the final line break: the file may be replaced at any time.
func PasswordFile(name string) func() (string, error) { return connect.PasswordFile(name) }

// connection returns the options of the client's connections.
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
