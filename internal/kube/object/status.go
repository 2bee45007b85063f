package object

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
)

// Field numbers of metav1.Status, StatusDetails and StatusCause.
const (
	statusStatus  = 2
	statusMessage = 3
	statusReason  = 4
	statusDetails = 5
	statusCode    = 6

	detailsCauses = 4
	detailsRetry  = 5

	causeReason  = 1
	causeMessage = 2
)

// Status is a failure as Kubernetes' API reports it.
type Status struct {
	Code    int
	Reason  string
	Message string
	// Cause is an additional machine-readable reason; empty: none.
	Cause string
	// RetryAfter is in seconds; 0: unset.
	RetryAfter int
	// Continue is the token for the rest of a list that has expired; empty: none.
	Continue string
}

// Later returns the status of a request that cannot be answered now: its client retries after a
// second.
func Later(err error) *Status {
	return &Status{Code: http.StatusTooManyRequests, Reason: "TooManyRequests", Message: err.Error(), RetryAfter: 1}
}

func (s *Status) Error() string {
	return fmt.Sprintf("%d %s: %s", s.Code, s.Reason, s.Message)
}

// Encode returns the status as an object.
func (s *Status) Encode(enc Encoding) []byte {
	if enc == Protobuf {
		return s.protobuf()
	}
	type cause struct {
		Reason  string `json:"reason"`
		Message string `json:"message"`
	}
	type details struct {
		Causes     []cause `json:"causes,omitempty"`
		RetryAfter int     `json:"retryAfterSeconds,omitempty"`
	}
	out := struct {
		Kind       string `json:"kind"`
		APIVersion string `json:"apiVersion"`
		Metadata   struct {
			Continue string `json:"continue,omitempty"`
		} `json:"metadata"`
		Status  string   `json:"status"`
		Message string   `json:"message"`
		Reason  string   `json:"reason"`
		Details *details `json:"details,omitempty"`
		Code    int      `json:"code"`
	}{Kind: "Status", APIVersion: "v1", Status: "Failure", Message: s.Message, Reason: s.Reason, Code: s.Code}
	out.Metadata.Continue = s.Continue
	if s.Cause != "" || s.RetryAfter > 0 {
		out.Details = &details{RetryAfter: s.RetryAfter}
		if s.Cause != "" {
			out.Details.Causes = []cause{{Reason: s.Cause, Message: s.Message}}
		}
	}
	b, err := json.Marshal(out)
	if err != nil { // impossible: strings and numbers
		return []byte("{}")
	}
	return b
}

func (s *Status) protobuf() []byte {
	var meta []byte
	if s.Continue != "" {
		meta = appendField(nil, listContinue, s.Continue)
	}
	b := appendField(nil, objectMeta, meta)
	b = appendField(b, statusStatus, "Failure")
	b = appendField(b, statusMessage, s.Message)
	b = appendField(b, statusReason, s.Reason)
	if s.Cause != "" || s.RetryAfter > 0 {
		var d []byte
		if s.Cause != "" {
			d = appendField(d, detailsCauses, appendField(appendField(nil, causeReason, s.Cause), causeMessage, s.Message))
		}
		d = protowire.AppendTag(d, detailsRetry, protowire.VarintType)
		d = protowire.AppendVarint(d, uint64(max(0, s.RetryAfter)))
		b = appendField(b, statusDetails, d)
	}
	b = protowire.AppendTag(b, statusCode, protowire.VarintType)
	b = protowire.AppendVarint(b, uint64(max(0, s.Code)))
	return appendEnvelope(nil, "v1", "Status", b)
}

// ParseStatus reads a status that an apiserver sent: the object of an ERROR
// event, or the body of a failure.
func ParseStatus(enc Encoding, raw []byte) (*Status, error) {
	o, err := Parse(enc, raw)
	if err != nil {
		return nil, err
	}
	s := &Status{}
	if enc == JSON {
		code := memberOf(raw, "code")
		if s.Code, err = strconv.Atoi(string(code)); err != nil {
			return nil, fmt.Errorf("%w: the code of a status: %w", ErrMalformed, err)
		}
		message, _ := text(memberOf(raw, "message"))
		reason, _ := text(memberOf(raw, "reason"))
		s.Message, s.Reason = string(message), string(reason)
		return s, nil
	}
	for f, err := range fields(o.body) {
		if err != nil {
			return nil, err
		}
		switch f.Number {
		case statusMessage:
			s.Message = string(f.Bytes)
		case statusReason:
			s.Reason = string(f.Bytes)
		case statusCode:
			s.Code = int(f.Uint) //nolint:gosec // an int32 of the API
		}
	}
	return s, nil
}
