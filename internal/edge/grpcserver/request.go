package grpcserver

import (
	"encoding/base64"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// request is the header list of a call:
// https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md#requests
type request struct {
	http     string // the HTTP method
	scheme   string
	path     string
	subtype  string // of the content
	encoding string // of compressed messages
	timeout  time.Duration
	timed    bool
	length   int64 // of the content; -1: not said
	md       metadata.MD

	kind      string // the content type, when it is not gRPC's
	malformed bool   // as HTTP/2 sees it: RFC 9113, 8.1.1
	bad       *status.Status
}

// parse reads a header list. The framer has checked names, values and pseudo-headers.
func parse(f *http2.MetaHeadersFrame) *request {
	r := &request{length: -1, kind: "?", md: make(metadata.MD, len(f.Fields))}
	for _, h := range f.Fields {
		r.field(h.Name, h.Value)
	}
	// RFC 9113, 8.3.1.
	r.malformed = r.malformed || r.http == "" || r.scheme == "" || r.path == ""
	return r
}

func (r *request) field(name, value string) {
	switch name {
	case ":method":
		r.http = value
	case ":scheme":
		r.scheme = value
	case ":path":
		r.path = value
	case "content-type":
		if r.kind = value; isGRPC(value) {
			r.kind, r.subtype = "", subtypeOf(value)
			r.md.Append(name, value)
		}
	case "content-length":
		n, err := strconv.ParseUint(value, 10, 63)
		r.length, r.malformed = int64(n), r.malformed || err != nil
	case "grpc-encoding":
		r.encoding = value
	case "grpc-timeout":
		var err error
		if r.timeout, err = parseTimeout(value); err != nil {
			r.bad = status.Newf(codes.Internal, "malformed grpc-timeout: %v", err)
		}
		r.timed = true
	case "connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade": // RFC 9113, 8.2.2
		r.malformed = true
	case "te":
		r.malformed = r.malformed || value != "trailers"
	default:
		r.meta(name, value)
	}
}

// meta takes what handlers see as metadata.
func (r *request) meta(name, value string) {
	if reserved(name) && name != ":authority" && name != "user-agent" {
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
	r.md[name] = append(r.md[name], value) // HTTP/2's names are in lower case
}

// refusal returns the answer to a request that is no call, and its HTTP status; nil: it is
// a call. It finds the call's authority: https://github.com/grpc/proposal, A41.
func (r *request) refusal() (answer *status.Status, httpStatus int) {
	authority, host := r.md[":authority"], r.md["host"]
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
	case r.http != http.MethodPost:
		return status.Newf(codes.Internal, "Received a HEADERS frame with :method %q which should be POST", r.http), http.StatusMethodNotAllowed
	case r.timed && r.timeout <= 0:
		return status.New(codes.DeadlineExceeded, "context deadline exceeded"), http.StatusOK
	}
	if len(authority) == 0 {
		r.md[":authority"] = host
	}
	delete(r.md, "host")
	return nil, 0
}

const grpcType = "application/grpc"

// isGRPC reports whether a content type is gRPC's: with a subtype or without.
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

// contentType returns the content type of an answer.
func contentType(subtype string) string {
	if subtype == "" {
		return grpcType
	}
	return grpcType + "+" + subtype
}

// reserved reports whether a header is the protocol's own.
func reserved(name string) bool {
	if name == "" || name[0] == ':' {
		return true
	}
	switch name {
	case "content-type", "user-agent", "grpc-message-type", "grpc-encoding", "grpc-message", "grpc-status", "grpc-timeout", "te":
		return true
	}
	return false
}

// decodeBinary decodes a binary header, with padding or without.
func decodeBinary(v string) ([]byte, error) {
	if len(v)%4 == 0 {
		return base64.StdEncoding.DecodeString(v)
	}
	return base64.RawStdEncoding.DecodeString(v)
}

// parseTimeout decodes a timeout: at most eight digits and a unit.
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
		return 0, fmt.Errorf("timeout %q has no unit that is known", v)
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
