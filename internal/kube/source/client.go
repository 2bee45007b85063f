package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/shardwatch/shardwatch/internal/kube/object"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// Config is what a Client needs.
type Config struct {
	// Servers are the URLs of apiservers of one cluster.
	Servers []string
	// HTTP sends the requests. Its transport has the certificates, and should
	// ping connections that are quiet: a watch of a quiet resource does not
	// notice otherwise that its apiserver is gone.
	HTTP *http.Client
	// Token returns the bearer token for a request; nil: none is sent.
	Token func() (string, error)
	// MaxEventBytes bounds an event of a watch, MaxListBytes a page of a list.
	MaxEventBytes, MaxListBytes int
	Logger                      *slog.Logger
}

// Defaults returns the Config of a production node, without Servers and HTTP.
func Defaults() Config {
	return Config{MaxEventBytes: 32 << 20, MaxListBytes: 512 << 20}
}

// Validate returns every mistake, joined.
func (c *Config) Validate() error {
	var errs []error
	if len(c.Servers) == 0 {
		errs = append(errs, errors.New("kube: Servers must name an apiserver"))
	}
	for _, server := range c.Servers {
		if u, err := url.Parse(server); err != nil || u.Host == "" || u.Scheme != "https" {
			errs = append(errs, fmt.Errorf("kube: server %q must be a URL such as https://10.0.0.1:6443", server))
		}
	}
	if c.HTTP == nil {
		errs = append(errs, errors.New("kube: HTTP must be set"))
	}
	if c.MaxEventBytes <= 0 || c.MaxListBytes <= 0 {
		errs = append(errs, errors.New("kube: MaxEventBytes and MaxListBytes must be above 0"))
	}
	return errors.Join(errs...)
}

// Client asks the apiservers of one cluster.
type Client struct {
	cfg Config
	// preferred is the index of the server that is asked first.
	preferred atomic.Uint32
}

// New returns a client. It connects when it is used.
func New(cfg Config) (*Client, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Client{cfg: cfg}, nil
}

// servers returns the servers, the one to ask first at the front.
func (c *Client) servers() []string {
	n := len(c.cfg.Servers)
	first := int(c.preferred.Load()) % n
	return append(append(make([]string, 0, n), c.cfg.Servers[first:]...), c.cfg.Servers[:first]...)
}

// avoid has another server asked first, if this one was.
func (c *Client) avoid(server string) {
	at := c.preferred.Load()
	if c.cfg.Servers[int(at)%len(c.cfg.Servers)] == server {
		c.preferred.CompareAndSwap(at, at+1)
	}
}

// get sends a request to a server. A failure that the server reports is an
// *object.Status.
func (c *Client) get(ctx context.Context, server string, r Resource, query url.Values) (*http.Response, error) {
	u := strings.TrimSuffix(server, "/") + r.Path() + "?" + query.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u, http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", r.Encoding.MediaType())
	if query.Get("watch") != "" {
		req.Header.Set("Accept", r.Encoding.WatchType())
	}
	if c.cfg.Token != nil {
		token, err := c.cfg.Token()
		if err != nil {
			return nil, fmt.Errorf("token for %s: %w", server, err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := c.cfg.HTTP.Do(req)
	if err != nil {
		return nil, err
	}
	got, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	if resp.StatusCode == http.StatusOK && got == r.Encoding.MediaType() {
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, failure(server, resp, got)
}

// maxFailure bounds what is read of a failure.
const maxFailure = 64 << 10

// failure returns the error of an answer that is not what was asked for.
func failure(server string, resp *http.Response, mediaType string) error {
	if resp.StatusCode == http.StatusOK {
		return fmt.Errorf("%s sent %q; the resource may not be served in this encoding", server, mediaType)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxFailure))
	if err != nil {
		return fmt.Errorf("%s: status %d: %w", server, resp.StatusCode, err)
	}
	enc := object.JSON
	if mediaType == object.Protobuf.MediaType() {
		enc = object.Protobuf
	}
	if status, err := object.ParseStatus(enc, body); err == nil && status.Code == resp.StatusCode {
		return fmt.Errorf("%s: %w", server, status)
	}
	return fmt.Errorf("%s: %w", server, &object.Status{Code: resp.StatusCode, Reason: http.StatusText(resp.StatusCode), Message: fmt.Sprintf("%.200s", body)})
}

// CodeOf returns the HTTP status that an apiserver has failed with, or 0.
func CodeOf(err error) int {
	var status *object.Status
	if errors.As(err, &status) {
		return status.Code
	}
	return 0
}

// list reads a page of a list.
func (c *Client) list(ctx context.Context, server string, r Resource, query url.Values) (meta object.ListMeta, items [][]byte, err error) {
	resp, err := c.get(ctx, server, r, query)
	if err != nil {
		return meta, nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, int64(c.cfg.MaxListBytes)+1))
	if err != nil {
		return meta, nil, fmt.Errorf("%s: list %s: %w", server, r, err)
	}
	if len(body) > c.cfg.MaxListBytes {
		return meta, nil, fmt.Errorf("%s: a page of %s has more than %d bytes", server, r, c.cfg.MaxListBytes)
	}
	return object.ParseList(r.Encoding, body)
}

// Current returns a version of a resource that is not older than the call: an
// apiserver reads it from etcd.
func (c *Client) Current(ctx context.Context, r Resource) (kv.Revision, error) {
	var errs []error
	for _, server := range c.servers() {
		meta, _, err := c.list(ctx, server, r, url.Values{"limit": {"1"}})
		if err == nil {
			var version kv.Revision
			if version, err = versionOf(meta.ResourceVersion); err == nil {
				return version, nil
			}
		}
		errs = append(errs, err)
		c.avoid(server)
	}
	return 0, fmt.Errorf("current version of %s: %w", r, errors.Join(errs...))
}

func versionOf(text string) (kv.Revision, error) {
	v, err := strconv.ParseInt(text, 10, 64)
	if err != nil || v <= 0 {
		return 0, fmt.Errorf("%w: resourceVersion %.20q is not a positive number", object.ErrMalformed, text)
	}
	return kv.Revision(v), nil
}
