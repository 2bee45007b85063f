package api

import (
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
)

// NewUpstream returns a handler that passes requests on to an apiserver, with the
// caller's own credentials. While the apiserver does not answer it answers
// 429: a reflector that sees 502 or 503 lists again.
func NewUpstream(server *url.URL, transport http.RoundTripper) http.Handler {
	return &httputil.ReverseProxy{
		Transport:     transport,
		FlushInterval: -1, // watches and logs are streams
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(server)
			r.SetXForwarded()
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			fail(w, later(fmt.Errorf("apiserver does not answer: %w", err)))
		},
	}
}
