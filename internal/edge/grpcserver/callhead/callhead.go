// Package callhead parses the header list of a gRPC call on HTTP/2, and encodes the header
// blocks of its answer.
package callhead

import (
	"encoding/base64"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// Request is the header list of a call:
// https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md#requests
type Request struct {
	HTTP     string // the HTTP method
	Path     string
	Subtype  string // of the content type
	Encoding string // compression of the messages
	Timeout  time.Duration
	Timed    bool  // Timeout is set
	Length   int64 // Content-Length in bytes; -1: absent
	MD       metadata.MD
	// Malformed is set for requests that HTTP/2 does not allow (RFC 9113, 8.1.1).
	Malformed bool

	scheme string
	kind   string // the content type; empty: gRPC's
	bad    *status.Status
}

// IsCall reports whether the content type is gRPC's.
func (r *Request) IsCall() bool { return r.kind == "" }

// Parse reads a header list. The framer has checked names, values and pseudo-headers.
func Parse(f *http2.MetaHeadersFrame) *Request {
	r := &Request{Length: -1, kind: "?", MD: make(metadata.MD, len(f.Fields))}
	for _, h := range f.Fields {
		r.field(h.Name, h.Value)
	}
	// RFC 9113, 8.3.1.
	r.Malformed = r.Malformed || r.HTTP == "" || r.scheme == "" || r.Path == ""
	return r
}

func (r *Request) field(name, value string) {
	switch name {
	case ":method":
		r.HTTP = value
	case ":scheme":
		r.scheme = value
	case ":path":
		r.Path = value
	case "content-type":
		if r.kind = value; isGRPC(value) {
			r.kind, r.Subtype = "", subtypeOf(value)
			r.MD.Append(name, value)
		}
	case "content-length":
		n, err := strconv.ParseUint(value, 10, 63)
		r.Length, r.Malformed = int64(n), r.Malformed || err != nil
	case "grpc-encoding":
		r.Encoding = value
	case "grpc-timeout":
		var err error
		if r.Timeout, err = parseTimeout(value); err != nil {
			r.bad = status.Newf(codes.Internal, "malformed grpc-timeout: %v", err)
		}
		r.Timed = true
	case "connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade": // RFC 9113, 8.2.2
		r.Malformed = true
	case "te":
		r.Malformed = r.Malformed || value != "trailers"
	default:
		r.meta(name, value)
	}
}

// meta adds a header to the metadata for handlers.
func (r *Request) meta(name, value string) {
	if Reserved(name) && name != ":authority" && name != "user-agent" {
		return
	}
	if strings.HasSuffix(name, "-bin") {
		b, err := decodeBinary(value)
		if err != nil {
			r.bad = status.Newf(codes.Internal, "malformed binary metadata %q in header %q: %v", value, name, err)
			return
		}
		value = string(b)
	}
	r.MD[name] = append(r.MD[name], value) // HTTP/2 names are lower case
}

// Refusal returns the answer to a request that is not a valid call, and its HTTP status; nil: it is
// a call. It also finds the authority of the call: https://github.com/grpc/proposal, A41.
func (r *Request) Refusal() (answer *status.Status, httpStatus int) {
	authority, host := r.MD[":authority"], r.MD["host"]
	switch {
	case len(authority) > 1 || len(host) > 1:
		return status.Newf(codes.Internal, "num values of :authority: %v, num values of host: %v, both must only have 1 value as per HTTP/2 spec",
			len(authority), len(host)), http.StatusBadRequest
	case r.kind != "":
		kind := strings.TrimPrefix(r.kind, "?")
		return status.Newf(codes.InvalidArgument, "invalid gRPC request content-type %q", kind), http.StatusUnsupportedMediaType
	case r.bad != nil:
		return r.bad, http.StatusBadRequest
	case len(authority) == 0 && len(host) == 0:
		return status.New(codes.Internal, "no host or :authority header present"), http.StatusBadRequest
	case r.HTTP != http.MethodPost:
		return status.Newf(codes.Internal, "Received a HEADERS frame with :method %q which should be POST", r.HTTP), http.StatusMethodNotAllowed
	case r.Timed && r.Timeout <= 0:
		return status.New(codes.DeadlineExceeded, "context deadline exceeded"), http.StatusOK
	}
	if len(authority) == 0 {
		r.MD[":authority"] = host
	}
	delete(r.MD, "host")
	return nil, 0
}

const grpcType = "application/grpc"

// isGRPC reports whether a content type is gRPC's, with or without a subtype.
func isGRPC(kind string) bool {
	rest, ok := strings.CutPrefix(kind, grpcType)
	return ok && (rest == "" || rest[0] == '+' || rest[0] == ';')
}

func subtypeOf(kind string) string {
	if len(kind) <= len(grpcType) {
		return ""
	}
	return kind[len(grpcType)+1:]
}

// ContentType returns the content type of an answer.
func ContentType(subtype string) string {
	if subtype == "" {
		return grpcType
	}
	return grpcType + "+" + subtype
}

// Reserved reports whether a header is the protocol's own.
func Reserved(name string) bool {
	if name == "" || name[0] == ':' {
		return true
	}
	switch name {
	case "content-type", "user-agent", "grpc-message-type", "grpc-encoding", "grpc-message", "grpc-status", "grpc-timeout", "te":
		return true
	}
	return false
}

// decodeBinary decodes a binary header, with or without padding.
func decodeBinary(v string) ([]byte, error) {
	if len(v)%4 == 0 {
		return base64.StdEncoding.DecodeString(v)
	}
	return base64.RawStdEncoding.DecodeString(v)
}

// parseTimeout parses a timeout: at most eight digits and a unit.
func parseTimeout(v string) (time.Duration, error) {
	if len(v) < 2 || len(v) > 9 {
		return 0, fmt.Errorf("timeout %q has a length of %d, want 2 to 9", v, len(v))
	}
	digits := v[:len(v)-1]
	var unit time.Duration
	switch v[len(v)-1] {
	case 'H':
		unit = time.Hour
	case 'M':
		unit = time.Minute
	case 'S':
		unit = time.Second
	case 'm':
		unit = time.Millisecond
	case 'u':
		unit = time.Microsecond
	case 'n':
		unit = time.Nanosecond
	default:
		return 0, fmt.Errorf("timeout %q has no known unit", v)
	}
	n, err := strconv.ParseUint(digits, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("timeout %q: %w", v, err)
	}
	if n > uint64(math.MaxInt64/unit) {
		return math.MaxInt64, nil
	}
	return time.Duration(n) * unit, nil
}

// Escape percent-encodes a status message. Bytes that are not UTF-8 are replaced.
func Escape(s string) string {
	plain := true
	for i := range len(s) {
		plain = plain && s[i] >= ' ' && s[i] <= '~' && s[i] != '%'
	}
	if plain {
		return s
	}
	const hex = "0123456789ABCDEF"
	var out strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		for _, b := range []byte(string(r)) {
			if b >= ' ' && b <= '~' && b != '%' {
				out.WriteByte(b)
				continue
			}
			out.Write([]byte{'%', hex[b>>4], hex[b&15]})
		}
		s = s[size:]
	}
	return out.String()
}
