package differential

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/shardwatch/shardwatch/internal/testing/check"
)

// mask lists the fields of a header that may differ.
type mask []protoreflect.Name

// sameEtcd is the mask for two paths to one etcd: only the answering member may differ.
func sameEtcd() mask { return mask{"member_id"} }

// twoEtcds is the mask for two etcds with the same requests.
func twoEtcds() mask { return mask{"member_id", "cluster_id", "raft_term"} }

// difference describes the difference between two answers to a question; "": none.
func difference(want, got answer, m mask) string {
	if w, g := endOf(want), endOf(got); w != g {
		return fmt.Sprintf("ends\nwant %s\ngot  %s", w, g)
	}
	if len(want.messages) != len(got.messages) {
		return fmt.Sprintf("%d messages, want %d", len(got.messages), len(want.messages))
	}
	for i := range want.messages {
		w, g := normal(want.messages[i], m), normal(got.messages[i], m)
		if !proto.Equal(w, g) {
			return unequal(w, g)
		}
	}
	return ""
}

// unequal describes the difference between two unequal messages.
func unequal(want, got proto.Message) string {
	diff := cmp.Diff(brief(want), brief(got), protocmp.Transform())
	if diff == "" {
		diff = "(only as proto.Equal sees it)"
	}
	return fmt.Sprintf("-want +got\n%s", shorten(diff))
}

// endOf returns the end of a call: the code, the text and other fields.
func endOf(a answer) string {
	if a.end == nil {
		return "OK"
	}
	// protobuf's errors contain one of two kinds of space, chosen per program.
	if a.end.Code() == codes.DeadlineExceeded {
		return a.end.Code().String() // of the client or of the server, whichever times out first
	}
	text := fmt.Sprintf("%v: %q", a.end.Code(), strings.ReplaceAll(a.end.Message(), "\u00a0", " "))
	for _, d := range a.end.Proto().GetDetails() {
		text += " " + d.String()
	}
	return text
}

// normal returns a message without the fields that may differ, at any depth.
func normal(m proto.Message, hide mask) proto.Message {
	m = proto.Clone(m)
	hideIn(m.ProtoReflect(), hide)
	switch r := m.(type) {
	case *pb.LeaseLeasesResponse: // ordered by expiry: a race of two clocks
		slices.SortFunc(r.Leases, func(a, b *pb.LeaseStatus) int { return int(a.GetID() - b.GetID()) })
	case *pb.LeaseTimeToLiveResponse:
		slices.SortFunc(r.Keys, slices.Compare) // etcd's order is the iteration order of a Go map
		if r.TTL > 0 && r.TTL <= r.GrantedTTL {
			r.TTL = r.GrantedTTL // time has passed
		}
	}
	return m
}

func hideIn(m protoreflect.Message, hide mask) {
	if m.Descriptor().FullName() == "etcdserverpb.ResponseHeader" {
		for _, name := range hide {
			m.Clear(m.Descriptor().Fields().ByName(name))
		}
		return
	}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.Message() == nil || f.IsMap():
		case f.IsList():
			for i := range v.List().Len() {
				hideIn(v.List().Get(i).Message(), hide)
			}
		default:
			hideIn(v.Message(), hide)
		}
		return true
	})
}

// joined returns the chunks of a RangeStream as one response: their number and size are not
// guaranteed. Only the last chunk has the fields of the whole response.
func joined(a answer) (answer, string) {
	if len(a.messages) == 0 {
		return a, ""
	}
	all := &pb.RangeResponse{}
	for i, m := range a.messages {
		chunk := m.(*pb.RangeStreamResponse).GetRangeResponse()
		last := i == len(a.messages)-1 && a.end == nil
		if bare := chunk.GetHeader() == nil && chunk.GetCount() == 0 && !chunk.GetMore(); !last && !bare {
			return a, fmt.Sprintf("chunk %d of %d has fields of the last: %s", i+1, len(a.messages), shorten(oneLine(chunk)))
		}
		proto.Merge(all, chunk)
	}
	if a.end != nil {
		return answer{end: a.end}, "" // the number of chunks before is not guaranteed either
	}
	return answer{messages: []proto.Message{all}}, ""
}

// brief returns a message with its long bytes cut and replaced by a hash: they are unreadable, and
// locating a difference in them takes a minute.
func brief(m proto.Message) proto.Message {
	m = proto.Clone(m)
	briefIn(m.ProtoReflect())
	return m
}

func briefIn(m protoreflect.Message) {
	const most = 200
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap():
		case f.IsList() && f.Message() != nil:
			for i := range v.List().Len() {
				briefIn(v.List().Get(i).Message())
			}
		case f.IsList():
		case f.Message() != nil:
			briefIn(v.Message())
		case f.Kind() == protoreflect.BytesKind && len(v.Bytes()) > most:
			b := v.Bytes()
			m.Set(f, protoreflect.ValueOfBytes(fmt.Appendf(b[:most:most], "… %d bytes, hash %x", len(b), check.HashValue(b))))
		}
		return true
	})
}

func oneLine(m proto.Message) string {
	m = brief(m)
	return strings.ReplaceAll(prototext.MarshalOptions{}.Format(m), "  ", " ")
}

// shorten keeps the readable part of a text.
func shorten(s string) string {
	return cut(s, 3000)
}

func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return fmt.Sprintf("%s … (%d bytes)", s[:most], len(s))
}

// headerOf returns the header of an answer's last message, or nil.
func headerOf(a answer) *pb.ResponseHeader {
	if len(a.messages) == 0 {
		return nil
	}
	m := a.messages[len(a.messages)-1]
	if chunk, ok := m.(*pb.RangeStreamResponse); ok {
		m = chunk.GetRangeResponse()
	}
	h, _ := m.(interface{ GetHeader() *pb.ResponseHeader })
	if h == nil {
		return nil
	}
	return h.GetHeader()
}
