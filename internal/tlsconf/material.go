package tlsconf

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
)

// Material is what was read from Files.
type Material struct {
	files Files
	names Names

	// cert is nil inside when there is none.
	cert atomic.Pointer[tls.Certificate]
	// ca is nil when Files name no CA. Configurations made once keep it: a new
	// CA takes effect for configurations made after a restart.
	ca *x509.CertPool
}

// Load reads files. It fails as Files.Validate does, and when a file holds
// something else than it should.
func Load(files Files, names Names) (*Material, error) {
	if err := files.Validate(names); err != nil {
		return nil, err
	}
	m := &Material{files: files, names: names}
	var errs []error
	if files.CA != "" {
		pool, err := readPool(files.CA)
		if err != nil {
			errs = append(errs, fmt.Errorf("--%s: %w", names.CA, err))
		}
		m.ca = pool
	}
	if err := m.Reload(); err != nil {
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return m, nil
}

// Reload reads certificate and key again. Handshakes that begin afterwards use
// them. When they are not good, the old ones stay in use and the error says
// why.
func (m *Material) Reload() error {
	if m.files.Cert == "" {
		return nil
	}
	cert, err := tls.LoadX509KeyPair(m.files.Cert, m.files.Key)
	if err != nil {
		return fmt.Errorf("--%s %s with --%s %s: %w", m.names.Cert, m.files.Cert, m.names.Key, m.files.Key, err)
	}
	m.cert.Store(&cert)
	return nil
}

// Server returns the configuration of a listener that speaks TLS version min
// (such as tls.VersionTLS12) or newer. With a CA, clients must show a
// certificate that comes from it; without, they need none. It fails without a
// certificate.
func (m *Material) Server(min uint16) (*tls.Config, error) {
	if m.cert.Load() == nil {
		return nil, fmt.Errorf("a TLS listener needs a certificate: give --%s and --%s", m.names.Cert, m.names.Key)
	}
	c := &tls.Config{
		MinVersion: min,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return m.cert.Load(), nil
		},
	}
	if m.ca != nil {
		c.ClientCAs = m.ca
		c.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return c, nil
}

// Client returns the configuration of a client that speaks TLS version min or
// newer. The server's certificate must come from the CA, or, without one, from
// the system's; it must be valid for the name that is dialled. Where there is
// a certificate, it is shown to servers that ask for one.
func (m *Material) Client(min uint16) *tls.Config {
	return &tls.Config{
		MinVersion: min,
		RootCAs:    m.ca,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if c := m.cert.Load(); c != nil {
				return c, nil
			}
			return &tls.Certificate{}, nil // crypto/tls: "no certificate", not an error
		},
	}
}

func readPool(file string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(file) //nolint:gosec // The operator names the file.
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, cause(err))
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no PEM certificate", file)
	}
	return pool, nil
}
