package callhead

import (
	"net/http"
	"net/url"

	"golang.org/x/net/http2"
)

// Web returns the request of a header list that is not a call, without body and connection; nil:
// its path is malformed.
func (r *Request) Web(f *http2.MetaHeadersFrame) *http.Request {
	at, err := url.ParseRequestURI(r.Path)
	if err != nil {
		return nil
	}
	header := make(http.Header, len(f.Fields))
	host := f.PseudoValue("authority")
	for _, h := range f.RegularFields() {
		switch {
		case h.Name == "te":
		case h.Name == "host" && host == "":
			host = h.Value
		case h.Name != "host":
			header.Add(h.Name, h.Value)
		}
	}
	out := &http.Request{
		Method: r.HTTP, URL: at, RequestURI: r.Path, Proto: "HTTP/2.0", ProtoMajor: 2, Header: header, Host: host,
		ContentLength: r.Length, Body: http.NoBody,
	}
	if f.StreamEnded() {
		out.ContentLength = 0
	}
	return out
}

// OfConnection reports whether a header is specific to a connection, which HTTP/2 forbids: RFC 9113, 8.2.2.
func OfConnection(name string) bool {
	switch name {
	case "connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade", "trailer":
		return true
	}
	return false
}
