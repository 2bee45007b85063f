package source

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/shardwatch/shardwatch/internal/kube/object"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// Config configures a Client.
type Config struct {
	// Servers are the URLs of apiservers of one cluster.
	Servers []string
	// HTTP sends the requests. Its transport has the certificates, and should ping
	// idle connections: otherwise a watch of a quiet resource does not detect that
	// its apiserver is gone.
	HTTP *http.Client
	// Token returns the bearer token for a request; nil: none is sent.
	Token func() (string, error)
	// MaxEventBytes bounds the events of watches, MaxListBytes the pages of lists.
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

// Client sends requests to the apiservers of one cluster.
type Client struct {
	cfg Config
	// preferred is the index of the first server to use.
	preferred atomic.Uint32
	// failed has the last failure of each server; nil: the server has answered since.
	failed []atomic.Pointer[failed]
}

// failed is a server's failure.
type failed struct {
	at  time.Time
	why error
}

// New returns a client. The first request connects.
func New(cfg Config) (*Client, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	return &Client{cfg: cfg, failed: make([]atomic.Pointer[failed], len(cfg.Servers))}, nil
}

// Servers returns the URLs of the servers, the preferred one first.
func (c *Client) Servers() []string {
	n := len(c.cfg.Servers)
	first := int(c.preferred.Load()) % n
	return append(append(make([]string, 0, n), c.cfg.Servers[first:]...), c.cfg.Servers[:first]...)
}

// Avoid records the failure of a server, and prefers another one if this one was preferred.
func (c *Client) Avoid(server string, why error) {
	if i := slices.Index(c.cfg.Servers, server); i >= 0 {
		c.failed[i].Store(&failed{time.Now(), why})
	}
	c.next(server)
}

// avoid calls Avoid for a request that ended with err. It records no failure if the server refused the
// request, or the caller canceled it.
func (c *Client) avoid(server string, err error) {
	if code := CodeOf(err); code >= 400 && code < 500 || errors.Is(err, object.ErrMalformed) || errors.Is(err, context.Canceled) {
		c.next(server)
		return
	}
	c.Avoid(server, err)
}

func (c *Client) next(server string) {
	at := c.preferred.Load()
	if c.cfg.Servers[int(at)%len(c.cfg.Servers)] == server {
		c.preferred.CompareAndSwap(at, at+1)
	}
}

// avoidedFor is how long a server that has failed is reported as avoided.
const avoidedFor = time.Minute

// Avoided returns the failure of a server within the last minute; nil: there is none, or the server has answered
// since.
func (c *Client) Avoided(server string) error {
	if i := slices.Index(c.cfg.Servers, server); i >= 0 {
		if f := c.failed[i].Load(); f != nil && time.Since(f.at) < avoidedFor {
			return f.why
		}
	}
	return nil
}

// get sends a request to a server. It returns an *object.Status for a failure that
// the server reports.
func (c *Client) get(ctx context.Context, server string, r Resource, query url.Values) (*http.Response, error) {
	accept := r.Encoding.MediaType()
	if query.Get("watch") != "" {
		accept = r.Encoding.WatchType()
	}
	resp, err := c.do(ctx, http.MethodGet, server, r.Path()+"?"+query.Encode(), accept, http.NoBody)
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

// Post creates an object at an apiserver, and reads the answer into out. Both are
// JSON. After a failure it repeats the request at another apiserver, so it is for
// objects that are not stored, such as reviews. It returns the server that answered.
func (c *Client) Post(ctx context.Context, path string, in, out any) (server string, err error) {
	body, err := json.Marshal(in)
	if err != nil {
		return "", err
	}
	var answer error
	err = c.each(ctx, func(ctx context.Context, at string) error {
		err := c.post(ctx, at, path, body, out)
		if err == nil || Decisive(err) {
			server, answer = at, err
			return nil
		}
		return err
	})
	if err != nil {
		return "", err
	}
	return server, answer
}

// each calls ask for one server after the other, and fails if none answers. Each call has a part of the remaining
// time, so that a server that hangs leaves time for the next.
func (c *Client) each(ctx context.Context, ask func(ctx context.Context, server string) error) error {
	var errs []error
	servers := c.Servers()
	for i, server := range servers {
		if err := ctx.Err(); err != nil {
			errs = append(errs, err) // not a failure of this server
			break
		}
		err := askOne(ctx, len(servers)-i, server, ask)
		if err == nil {
			return nil
		}
		errs = append(errs, err)
		if !errors.Is(ctx.Err(), context.Canceled) {
			c.avoid(server, err)
		}
	}
	return errors.Join(errs...)
}

// askOne calls ask for one server, within half of the time of ctx, or all of it for the last server: a review
// may take a second at any server.
func askOne(ctx context.Context, parts int, server string, ask func(ctx context.Context, server string) error) error {
	if end, ok := ctx.Deadline(); ok {
		part, cancel := context.WithTimeout(ctx, time.Until(end)/time.Duration(min(parts, 2)))
		defer cancel()
		ctx = part
	}
	return ask(ctx, server)
}

func (c *Client) post(ctx context.Context, server, path string, body []byte, out any) error {
	resp, err := c.do(ctx, http.MethodPost, server, path, object.JSON.MediaType(), bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusCreated {
		got, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
		return failure(server, resp, got)
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(out); err != nil {
		return fmt.Errorf("%s: %s: %w", server, path, err)
	}
	return nil
}

// maxAnswer bounds the answer to a Post.
const maxAnswer = 1 << 20

// Cluster returns the UID of the cluster: the UID of its namespace kube-system.
func (c *Client) Cluster(ctx context.Context) (uid string, err error) {
	const path = "/api/v1/namespaces/kube-system"
	err = c.each(ctx, func(ctx context.Context, server string) (err error) {
		uid, err = c.uid(ctx, server, path)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("identify the cluster by %s: %w", path, err)
	}
	return uid, nil
}

func (c *Client) uid(ctx context.Context, server, path string) (string, error) {
	resp, err := c.do(ctx, http.MethodGet, server, path, object.JSON.MediaType(), http.NoBody)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		got, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
		return "", failure(server, resp, got)
	}
	var found struct {
		Metadata struct {
			UID string `json:"uid"`
		} `json:"metadata"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(&found); err != nil {
		return "", fmt.Errorf("%s: %s: %w", server, path, err)
	}
	if found.Metadata.UID == "" {
		return "", fmt.Errorf("%w: %s: %s has no UID", object.ErrMalformed, server, path)
	}
	return found.Metadata.UID, nil
}

// Ready fails while an apiserver is not ready. Another one is then preferred.
func (c *Client) Ready(ctx context.Context, server string) (err error) {
	defer func() {
		if err != nil && !errors.Is(ctx.Err(), context.Canceled) {
			c.Avoid(server, err)
		}
	}()
	resp, err := c.do(ctx, http.MethodGet, server, "/readyz", "*/*", http.NoBody)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return failure(server, resp, "")
	}
	return nil
}

// do sends a request with the token.
func (c *Client) do(ctx context.Context, method, server, path, accept string, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(server, "/")+path, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", accept)
	if body != http.NoBody {
		req.Header.Set("Content-Type", object.JSON.MediaType())
	}
	if c.cfg.Token != nil {
		token, err := c.cfg.Token()
		if err != nil {
			return nil, fmt.Errorf("token of this node: %w", err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := c.cfg.HTTP.Do(req)
	if err == nil {
		c.Answered(server, resp.StatusCode)
	}
	return resp, err
}

// Answered records that a server has answered with a status: it is no longer avoided, unless the
// status is a failure of the server itself.
func (c *Client) Answered(server string, code int) {
	if i := slices.Index(c.cfg.Servers, server); i >= 0 && code < http.StatusInternalServerError {
		c.failed[i].Store(nil)
	}
}

// maxFailure bounds the bytes read of an error response.
const maxFailure = 64 << 10

// failure returns the error of an unexpected response.
func failure(server string, resp *http.Response, mediaType string) error {
	if resp.StatusCode == http.StatusOK {
		return fmt.Errorf("%w: %s sent %q; the resource may not be served in this encoding", object.ErrMalformed, server, mediaType)
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

// CodeOf returns the HTTP status of an apiserver's failure, or 0.
func CodeOf(err error) int {
	var status *object.Status
	if errors.As(err, &status) {
		return status.Code
	}
	return 0
}

// Decisive reports whether a failure of a Post is final: the apiserver rejects the object, and a retry
// would not help.
func Decisive(err error) bool {
	switch code := CodeOf(err); code {
	case http.StatusUnauthorized, http.StatusForbidden: // this node's credentials, or its rights
		return false
	case http.StatusTooManyRequests, http.StatusRequestTimeout:
		return false
	default:
		return code >= 400 && code < 500
	}
}

// MayFollow reports whether a retry may succeed after a failure of Follow: not if apiservers refuse or
// do not have the resource, or send objects whose version is not a number, as some aggregated APIs do.
func MayFollow(err error) bool {
	switch code := CodeOf(err); code {
	case http.StatusTooManyRequests, http.StatusRequestTimeout, http.StatusGone, http.StatusUnauthorized:
		return true
	default:
		return (code < 400 || code >= 500) && !errors.Is(err, object.ErrMalformed)
	}
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

// Current returns a version of a resource that is at least as new as the call: an
// apiserver reads it from etcd.
func (c *Client) Current(ctx context.Context, r Resource) (version kv.Revision, err error) {
	err = c.each(ctx, func(ctx context.Context, server string) (err error) {
		version, err = c.currentAt(ctx, server, r)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("current version of %s: %w", r, err)
	}
	return version, nil
}

// currentAt is Current at one apiserver.
func (c *Client) currentAt(ctx context.Context, server string, r Resource) (kv.Revision, error) {
	meta, _, err := c.list(ctx, server, r, url.Values{"limit": {"1"}})
	if err != nil {
		return 0, err
	}
	return versionOf(meta.ResourceVersion)
}

// KindOf returns the type of a resource's objects, as an apiserver reports it.
func (c *Client) KindOf(ctx context.Context, r Resource) (kind Kind, err error) {
	err = c.each(ctx, func(ctx context.Context, server string) error {
		meta, _, err := c.list(ctx, server, r, url.Values{"limit": {"1"}})
		if err == nil {
			kind = kindOf(&meta)
		}
		return err
	})
	if err != nil {
		return Kind{}, fmt.Errorf("kind of %s: %w", r, err)
	}
	return kind, nil
}

func kindOf(list *object.ListMeta) Kind {
	return Kind{list.APIVersion, strings.TrimSuffix(list.Kind, "List")}
}

func versionOf(text string) (kv.Revision, error) {
	v, err := strconv.ParseInt(text, 10, 64)
	if err != nil || v <= 0 {
		return 0, fmt.Errorf("%w: resourceVersion %.20q is not a positive number", object.ErrMalformed, text)
	}
	return kv.Revision(v), nil
}
