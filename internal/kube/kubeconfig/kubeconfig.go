package kubeconfig

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/shardwatch/shardwatch/internal/edge/rawconn"
)

// Account has the addresses and credentials for the apiservers of one cluster.
type Account struct {
	// Server is the URL of an apiserver.
	Server string
	// TLS verifies apiservers, and has the client certificate that was read last.
	TLS *tls.Config
	// Token returns the current bearer token of its file; nil: there is none.
	Token func() (string, error)

	user *user
	cert atomic.Pointer[tls.Certificate] // nil: none
}

// Files returns the files of the client certificate, which Reload reads. There are none if the certificate is
// in the kubeconfig, or there is no certificate.
func (a *Account) Files() (names []string) {
	if a.user.Cert != "" && len(a.user.CertData) == 0 {
		names = append(names, a.user.Cert)
	}
	if a.user.Key != "" && len(a.user.KeyData) == 0 {
		names = append(names, a.user.Key)
	}
	return names
}

// Reload reads the client certificate again, for later handshakes. If it fails, the previous one stays in use.
func (a *Account) Reload() error {
	cert, err := a.user.certificate()
	if err == nil {
		a.cert.Store(cert)
	}
	return err
}

// file has the used fields of a kubeconfig.
type file struct {
	CurrentContext string `yaml:"current-context"`
	Contexts       []struct {
		Name    string `yaml:"name"`
		Context struct {
			Cluster string `yaml:"cluster"`
			User    string `yaml:"user"`
		} `yaml:"context"`
	} `yaml:"contexts"`
	Clusters []struct {
		Name    string  `yaml:"name"`
		Cluster cluster `yaml:"cluster"`
	} `yaml:"clusters"`
	Users []struct {
		Name string `yaml:"name"`
		User user   `yaml:"user"`
	} `yaml:"users"`
}

type cluster struct {
	Server        string     `yaml:"server"`
	TLSServerName string     `yaml:"tls-server-name"`
	CA            string     `yaml:"certificate-authority"`
	CAData        base64Text `yaml:"certificate-authority-data"`
	Insecure      bool       `yaml:"insecure-skip-tls-verify"`
	ProxyURL      string     `yaml:"proxy-url"`
}

type user struct {
	Token     string     `yaml:"token"`
	TokenFile string     `yaml:"tokenFile"`
	Cert      string     `yaml:"client-certificate"`
	CertData  base64Text `yaml:"client-certificate-data"`
	Key       string     `yaml:"client-key"`
	KeyData   base64Text `yaml:"client-key-data"`

	Username     string    `yaml:"username"`
	As           string    `yaml:"as"`
	Exec         yaml.Node `yaml:"exec"`
	AuthProvider yaml.Node `yaml:"auth-provider"`
}

// base64Text is bytes in base64.
type base64Text []byte

// UnmarshalText implements encoding.TextUnmarshaler.
func (b *base64Text) UnmarshalText(text []byte) (err error) {
	*b, err = base64.StdEncoding.DecodeString(string(text))
	return err
}

// Load reads the current context of a kubeconfig. Paths in it are relative to
// its folder.
func Load(name string) (*Account, error) {
	text, err := os.ReadFile(name) //nolint:gosec // the operator names it
	if err != nil {
		return nil, err
	}
	var f file
	if err := yaml.Unmarshal(text, &f); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	c, u, err := f.current()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	c.beside(filepath.Dir(name))
	u.beside(filepath.Dir(name))
	a, err := newAccount(&c, &u)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return a, nil
}

// current returns the cluster and the user of the current context.
func (f *file) current() (c cluster, u user, err error) {
	for _, x := range f.Contexts {
		if x.Name != f.CurrentContext {
			continue
		}
		found := 0
		for _, named := range f.Clusters {
			if named.Name == x.Context.Cluster {
				c = named.Cluster
				found++
			}
		}
		for _, named := range f.Users {
			if named.Name == x.Context.User {
				u = named.User
				found++
			}
		}
		if found != 2 {
			return c, u, fmt.Errorf("context %q: the cluster %q and the user %q must each exist exactly once", x.Name, x.Context.Cluster, x.Context.User)
		}
		return c, u, errors.Join(c.validate(), u.validate())
	}
	return c, u, fmt.Errorf("there is no context %q, which current-context names", f.CurrentContext)
}

func (c *cluster) validate() error {
	switch {
	case c.Insecure:
		return errors.New("insecure-skip-tls-verify is not supported: name the CA in certificate-authority")
	case c.ProxyURL != "":
		return errors.New("proxy-url is not supported")
	case c.Server == "":
		return errors.New("the cluster has no server")
	}
	return nil
}

func (u *user) validate() error {
	switch {
	case !u.Exec.IsZero(), !u.AuthProvider.IsZero(), u.Username != "", u.As != "":
		return errors.New("exec, auth-provider, username and as are not supported: use a certificate, a token or a tokenFile")
	case (u.Cert != "" || len(u.CertData) > 0) != (u.Key != "" || len(u.KeyData) > 0):
		return errors.New("client-certificate and client-key go together")
	}
	return nil
}

func (c *cluster) beside(dir string) { relative(dir, &c.CA) }

func (u *user) beside(dir string) {
	relative(dir, &u.TokenFile)
	relative(dir, &u.Cert)
	relative(dir, &u.Key)
}

func relative(dir string, name *string) {
	if *name != "" && !filepath.IsAbs(*name) {
		*name = filepath.Join(dir, *name)
	}
}

// serviceAccount is the directory of a pod's service account.
const serviceAccount = "/var/run/secrets/kubernetes.io/serviceaccount"

// InCluster returns the account of the pod that the process runs in.
func InCluster(getenv func(string) string) (*Account, error) {
	return inCluster(getenv, serviceAccount)
}

func inCluster(getenv func(string) string, dir string) (*Account, error) {
	host, port := getenv("KUBERNETES_SERVICE_HOST"), getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return nil, errors.New("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set: the process does not run in a pod")
	}
	c := cluster{Server: "https://" + net.JoinHostPort(host, port), CA: filepath.Join(dir, "ca.crt")}
	return newAccount(&c, &user{TokenFile: filepath.Join(dir, "token")})
}

func newAccount(c *cluster, u *user) (*Account, error) {
	a := &Account{Server: c.Server, user: u, TLS: &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.TLSServerName}}
	ca, err := contents(c.CA, c.CAData)
	if err != nil {
		return nil, err
	}
	if len(ca) > 0 {
		if a.TLS.RootCAs = x509.NewCertPool(); !a.TLS.RootCAs.AppendCertsFromPEM(ca) {
			return nil, errors.New("certificate-authority contains no PEM certificate")
		}
	}
	if u.Cert != "" || len(u.CertData) > 0 {
		if err := a.Reload(); err != nil {
			return nil, err
		}
		a.TLS.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return a.cert.Load(), nil }
	}
	// As in client-go, a file takes precedence: its content is renewed.
	if u.TokenFile != "" || u.Token != "" {
		a.Token = u.token
		_, err = a.Token()
	}
	return a, err
}

func (u *user) certificate() (*tls.Certificate, error) {
	cert, err := contents(u.Cert, u.CertData)
	if err != nil {
		return nil, err
	}
	key, err := contents(u.Key, u.KeyData)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("client-certificate with client-key: %w", err)
	}
	return &pair, nil
}

func (u *user) token() (string, error) {
	if u.TokenFile == "" {
		return u.Token, nil
	}
	text, err := os.ReadFile(u.TokenFile)
	if err != nil {
		return "", err
	}
	token := string(bytes.TrimSpace(text))
	if token == "" {
		return "", fmt.Errorf("%s is empty", u.TokenFile)
	}
	return token, nil
}

// contents returns data if there is any, otherwise the contents of the file, as
// in client-go.
func contents(name string, data []byte) ([]byte, error) {
	if len(data) > 0 || name == "" {
		return data, nil
	}
	return os.ReadFile(name) //nolint:gosec // the operator's file names it
}

// Times of a connection to an apiserver. Only pings detect that the apiserver of
// a quiet watch is gone.
const (
	dialTimeout = 5 * time.Second
	pingAfter   = 5 * time.Second
	pingTimeout = 5 * time.Second
	idleTimeout = 90 * time.Second
)

// Transport returns a transport with a TLS configuration, for many concurrent
// streams.
func Transport(secure *tls.Config) *http.Transport {
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         dial,
		TLSClientConfig:     secure,
		TLSHandshakeTimeout: dialTimeout,
		IdleConnTimeout:     idleTimeout,
		ForceAttemptHTTP2:   true,
		HTTP2:               &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
	}
}

// Renewed is a transport that replaces its connections when the client certificate has changed: an apiserver
// verifies the certificate of the connection in each request. RoundTrip may be called concurrently, also with Renew.
type Renewed struct {
	secure *tls.Config
	change func(*http.Transport) // nil: none
	leaf   []byte                // the certificate, nil: none; owned by Renew
	now    atomic.Pointer[http.Transport]
}

// NewRenewed returns a transport of [Transport], to which change is applied unless it is nil.
func NewRenewed(secure *tls.Config, change func(*http.Transport)) *Renewed {
	t := &Renewed{secure: secure, change: change, leaf: leafOf(secure)}
	t.now.Store(t.fresh())
	return t
}

// RoundTrip implements http.RoundTripper.
func (t *Renewed) RoundTrip(r *http.Request) (*http.Response, error) {
	return t.now.Load().RoundTrip(r)
}

// Renew makes later requests use new connections if the client certificate has changed. Requests in progress, such
// as watches, keep their connections. Renew must not be called concurrently with itself.
func (t *Renewed) Renew() {
	leaf := leafOf(t.secure)
	if bytes.Equal(leaf, t.leaf) {
		return
	}
	t.leaf = leaf
	t.now.Swap(t.fresh()).CloseIdleConnections()
}

func (t *Renewed) fresh() *http.Transport {
	transport := Transport(t.secure.Clone())
	if t.change != nil {
		t.change(transport)
	}
	return transport
}

// leafOf returns the client certificate that a handshake would send now; nil: none.
func leafOf(secure *tls.Config) []byte {
	if secure.GetClientCertificate == nil {
		return nil
	}
	cert, err := secure.GetClientCertificate(&tls.CertificateRequestInfo{})
	if err != nil || len(cert.Certificate) == 0 {
		return nil
	}
	return cert.Certificate[0]
}

// dial connects to an apiserver. A watch receives a few bytes at a time: package rawconn explains why its reads
// cost less than the reads of package net.
func dial(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{Timeout: dialTimeout, KeepAlive: pingAfter}
	c, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return rawconn.Wrap(c), nil
}
