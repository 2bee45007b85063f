package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/admin"
	"github.com/shardwatch/shardwatch/cmd/cachectl/internal/document"
	"github.com/shardwatch/shardwatch/internal/files/tlsconf"
)

const defaultEndpoint = "127.0.0.1:7400"

// Process is the part of its process that a command may use.
type Process struct {
	Getenv         func(string) string
	ConfigDir      func() (string, error) // the user's configuration directory; nil: none
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// Session is the state that all commands share: the flags for endpoints, credentials and output.
type Session struct {
	document.Printer

	Process   Process
	endpoints []string
	Timeout   time.Duration

	tls               bool
	CACert, Cert, Key string

	user, passwordFile string
	tokenFile          string

	zone string

	context  string
	resolved bool // Resolve has run

	Logger *slog.Logger // of the client; nil: no log
}

// NewSession returns a session whose flags are added to those of a command.
func NewSession(p Process, flags *pflag.FlagSet) *Session {
	s := &Session{Process: p, Printer: document.Printer{Out: p.Stdout}}
	flags.StringSliceVar(&s.endpoints, "endpoints", []string{defaultEndpoint}, "host:port of one or more nodes")
	flags.StringVarP(&s.Format, "output", "o", "table", document.Formats)
	flags.DurationVar(&s.Timeout, "timeout", 5*time.Second, "how long to try; a started watch continues")
	flags.BoolVar(&s.tls, "tls", false, "use TLS, with the system's CAs unless --cacert is given")
	flags.StringVar(&s.CACert, "cacert", "", "PEM file with the CAs of the nodes, reloaded when it changes; implies --tls")
	flags.StringVar(&s.Cert, "cert", "", "PEM file with the client's certificate, reloaded with --key when it changes; implies --tls")
	flags.StringVar(&s.Key, "key", "", "PEM file with the certificate's private key")
	flags.StringVar(&s.user, "user", "", "etcd user, if etcd's authentication is on")
	flags.StringVar(&s.passwordFile, "password-file", "", "file with the password of --user, read at each login")
	flags.StringVar(&s.tokenFile, "token-file", "", "file with a bearer token (a JWT), if the nodes' policy accepts tokens; reloaded when it is renewed")
	flags.StringVar(&s.zone, "zone", "", "failure domain whose nodes serve reads and watches if they can, as cachenode --zone names it")
	flags.StringVar(&s.context, "context", "", "context of cachectl config to use instead of the current one")
	for _, name := range append(connectionFlags(), "context") {
		flags.Lookup(name).Usage += " (" + variable(name) + ")"
	}
	return s
}

// Secure reports whether connections use TLS.
func (s *Session) Secure() bool { return s.tls || s.CACert != "" || s.Cert != "" || s.Key != "" }

// Advise prints advice for a person; "": there is none.
func (s *Session) Advise(advice string) {
	if advice != "" {
		fmt.Fprintf(s.Process.Stderr, "cachectl: %s\n", advice)
	}
}

// With runs f with a client of the cluster. The context of f ends with the
// command's context, not with the timeout.
func (s *Session) With(cmd *cobra.Command, f func(context.Context, *client.Client) error) error {
	var cfg client.Config
	err := s.Resolve(cmd)
	if err == nil {
		cfg, err = s.config()
	}
	if err != nil {
		return Usage(cmd, err)
	}
	c, err := client.New(cfg)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	err = f(cmd.Context(), c)
	_ = c.Close() // never fails
	if errors.Is(err, client.ErrUnavailable) {
		return &nobodyError{s.endpoints, s.Secure(), err}
	}
	return err
}

// Within is like With, but f's context also ends with the timeout.
func (s *Session) Within(cmd *cobra.Command, f func(context.Context, *client.Client) error) error {
	return s.With(cmd, func(ctx context.Context, c *client.Client) error {
		ctx, cancel := context.WithTimeout(ctx, s.Timeout)
		defer cancel()
		return f(ctx, c)
	})
}

// Reach returns the ID of the cluster. It fails unless a node answers within the timeout:
// a watch would search for a node indefinitely.
func (s *Session) Reach(ctx context.Context, c *client.Client) (string, error) {
	within, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	m, err := admin.New(c).ShardMap(within)
	return m.ClusterID, err //nolint:wrapcheck // says what it did
}

func (s *Session) config() (client.Config, error) {
	cfg := client.Config{RetryFor: min(s.Timeout, 3*time.Second), Username: s.user, Zone: s.zone, Logger: s.Logger}
	if (s.user == "") != (s.passwordFile == "") {
		return cfg, errors.New("--user and --password-file go together")
	}
	if s.passwordFile != "" {
		cfg.PasswordFrom = client.PasswordFile(s.passwordFile)
		if _, err := cfg.PasswordFrom(); err != nil {
			return cfg, fmt.Errorf("--password-file: %w", err)
		}
	}
	if s.tokenFile != "" {
		cfg.Token = client.TokenFile(s.tokenFile)
		if _, err := cfg.Token(); err != nil {
			return cfg, fmt.Errorf("--token-file: %w", err)
		}
	}
	for _, e := range s.endpoints {
		if e = strings.TrimSpace(e); e != "" {
			cfg.Endpoints = append(cfg.Endpoints, e)
		}
	}
	_, err := s.files()
	if err := errors.Join(cfg.Validate(), err); err != nil {
		return client.Config{}, err
	}
	cfg.TLSFiles = client.TLSFiles{CA: s.CACert, Cert: s.Cert, Key: s.Key}
	if s.tls && cfg.TLSFiles == (client.TLSFiles{}) {
		cfg.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	return cfg, nil
}

// files reads the files of TLS, and validates the flags of all connections.
func (s *Session) files() (*tlsconf.Material, error) {
	m, err := tlsconf.Load(tlsconf.Files{CA: s.CACert, Cert: s.Cert, Key: s.Key}, tlsconf.Names{CA: "--cacert", Cert: "--cert", Key: "--key"})
	if s.Timeout <= 0 {
		err = errors.Join(err, fmt.Errorf("--timeout (%v) must be positive", s.Timeout))
	}
	return m, err
}

// TLSConfig returns the configuration of connections that do not belong to a client; nil: no
// TLS. It also validates --timeout. Its errors name flags.
func (s *Session) TLSConfig() (*tls.Config, error) {
	files, err := s.files()
	if err != nil || !s.Secure() {
		return nil, err
	}
	return files.Client(tls.VersionTLS12), nil
}

// Span returns the range that KEY, --prefix and --range-end name.
func Span(key string, prefix bool, rangeEnd string) (client.Range, error) {
	switch {
	case prefix && rangeEnd != "":
		return client.Range{}, errors.New("--prefix and --range-end exclude each other")
	case prefix:
		return client.Prefix(key), nil
	case rangeEnd != "" && rangeEnd <= key:
		return client.Range{}, fmt.Errorf("--range-end %q is not after %q", rangeEnd, key)
	case rangeEnd != "":
		return client.Between(key, rangeEnd), nil
	case key == "":
		return client.Range{}, errors.New(`KEY is empty: name one, or take all with --prefix ""`)
	}
	return client.Key(key), nil
}
