package etcdapi

import (
	"strconv"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/metadata"

	"github.com/shardwatch/shardwatch/internal/router"
)

// ageHeader is the header with the maximum age of the answer to a serializable read,
// in milliseconds. etcd's API has no field for it.
const ageHeader = "shardwatch-age"

// tellAge sets the header if the age is known. Linearizable reads and reads at a
// revision have no age header: the request fixes their age.
func tellAge(r *etcdserverpb.RangeRequest, reading *router.Reading, set func(metadata.MD) error) {
	if !r.GetSerializable() || r.GetRevision() > 0 {
		return
	}
	if age, known := reading.Age(); known {
		_ = set(metadata.Pairs(ageHeader, strconv.FormatInt(age.Milliseconds(), 10))) // fails when the call has ended
	}
}
