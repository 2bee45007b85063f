package differential

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3election/v3electionpb"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// Sides are whom to ask.
type Sides struct {
	// Plain is an etcd with nothing before it, Direct the one behind the tier.
	// Both are empty, and nobody else writes to them.
	Plain, Direct *grpc.ClientConn
	// Through are the nodes of the tier.
	Through []*grpc.ClientConn
	// JSON are the same for etcd's JSON API, host:port; nil: it is not asked.
	JSON []string
	// Behind waits until no watch at the etcd behind the tier lags.
	Behind func(context.Context) error
	// Cuts are the keys where shards begin, in order.
	Cuts []string
	// Root is the password of the user root, where authentication is on. The
	// other users are the run's.
	Root string
	// RightsOnce: Through looks at rights when a watch is created, and never
	// again, as etcd does.
	RightsOnce bool
	// KeepsEnded: what Through cancels as compacted keeps its ID until the client
	// cancels it, too, as at etcd.
	KeepsEnded bool
	// Loose: Through is etcd itself, which takes some liberties that the tier
	// does not take.
	Loose bool
}

// Config says what to run.
type Config struct {
	// Seed decides what is asked, unless there is a Script.
	Seed   uint64
	Script []byte
	// Steps is how many things are done.
	Steps int
	// Most is how many differences end the run; 0: one.
	Most int
	// Patience is how long what must come may take; 0: 30 s. It is never used up
	// when all is well.
	Patience time.Duration
}

// Report is what came of a run.
type Report struct {
	Seed uint64
	// Differences are those that are not meant, in words.
	Differences []string
	// Tolerated counts those that are, by [Known].
	Tolerated map[string]int
	// Asked counts calls by method, and watches.
	Asked map[string]int
	// Events were told by watches through the tier, and were right.
	Events int
}

// run is one run.
type run struct {
	Sides
	draw
	cfg     Config
	ctx     context.Context
	truth   *truth
	ident   *pb.ResponseHeader // of the etcd behind the tier
	streams []*pair
	people  []person
	report  Report
	step    int
	doing   string
	fatal   error
}

// pair is a watch stream to each side.
type pair struct {
	sides    [2]*recorder
	readings [2]*reading
	node     int
	who      int            // whose streams they are
	half     bool           // we have said that there are no more requests
	ids      map[int64]bool // in use
	spoiled  map[int64]bool // cancelled while events came: not used again
	answers  int            // controls that must come
	matched  int            // controls that were compared
	counted  bool           // answers to progress requests are comparable
}

const (
	direct  = 0
	through = 1
)

// Run asks both sides the same, as the dice say, and returns how the answers
// differ. It fails when it cannot go on.
func Run(ctx context.Context, sides Sides, cfg Config) (Report, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	d := seeded(cfg.Seed)
	if cfg.Script != nil {
		d = &scripted{throws: cfg.Script}
	}
	r := &run{Sides: sides, draw: draw{dice: d}, cfg: cfg, ctx: ctx}
	r.cfg.Most = max(cfg.Most, 1)
	if cfg.Patience == 0 {
		r.cfg.Patience = patience
	}
	r.report = Report{Seed: cfg.Seed, Tolerated: map[string]int{}, Asked: map[string]int{}}
	err := r.run()
	for _, p := range r.streams {
		p.close()
	}
	return r.report, err
}

func (r *run) run() error {
	if err := r.begin(); err != nil {
		return err
	}
	script, _ := r.dice.(*scripted)
	for r.step = 0; r.step < r.cfg.Steps && r.goOn(); r.step++ {
		if script != nil && len(script.throws) == 0 {
			break
		}
		r.next()
	}
	if r.goOn() {
		r.settle()
	}
	return errors.Join(r.fatal, r.ctx.Err())
}

func (r *run) goOn() bool {
	return r.fatal == nil && r.ctx.Err() == nil && len(r.report.Differences) < r.cfg.Most
}

// begin empties both etcds, learns where they are, and opens some streams.
func (r *run) begin() error {
	r.valid = true
	if err := r.logInRoot(); err != nil {
		return err
	}
	everything := ask("KV.DeleteRange", &pb.DeleteRangeRequest{Key: []byte{0}, RangeEnd: []byte{0}})
	for _, cc := range []*grpc.ClientConn{r.Plain, r.Direct} {
		if a := r.call(everything, cc); a.end != nil {
			return fmt.Errorf("empty an etcd: %w", a.end.Err())
		}
		leases := r.call(ask("Lease.LeaseLeases", &pb.LeaseLeasesRequest{}), cc)
		if leases.end != nil {
			return fmt.Errorf("list the leases of an etcd: %w", leases.end.Err())
		}
		for _, l := range leases.first().(*pb.LeaseLeasesResponse).GetLeases() {
			if a := r.call(ask("Lease.LeaseRevoke", &pb.LeaseRevokeRequest{ID: l.GetID()}), cc); a.end != nil {
				return fmt.Errorf("revoke a lease: %w", a.end.Err())
			}
		}
	}
	if err := r.level(); err != nil {
		return err
	}
	var err error
	if r.truth, err = follow(r.as(0, r.Direct), r.Direct, r.revision); err != nil {
		return err
	}
	r.meetPeople()
	for range 3 {
		r.openStream()
	}
	for i, k := range firstKeys() {
		if r.cfg.Script != nil && i%5 > 0 {
			continue // a script writes what it wants
		}
		r.writeAs(ask("KV.Put", &pb.PutRequest{Key: []byte(k), Value: r.value()}), 0)
	}
	return r.fatal
}

// level brings both etcds to one revision and compacts them there: all that
// can be read of is known from then on.
func (r *run) level() error {
	put := ask("KV.Put", &pb.PutRequest{Key: []byte("/first")})
	plain, behind := r.call(put, r.Plain), r.call(put, r.Direct)
	for headerOf(plain).GetRevision() != headerOf(behind).GetRevision() {
		if plain.end != nil || behind.end != nil {
			return fmt.Errorf("write to the etcds: %w", errors.Join(plain.end.Err(), behind.end.Err()))
		}
		if headerOf(plain).GetRevision() < headerOf(behind).GetRevision() {
			plain = r.call(put, r.Plain)
		} else {
			behind = r.call(put, r.Direct)
		}
	}
	// It may have been put more than once: its version is not the same.
	remove := ask("KV.DeleteRange", &pb.DeleteRangeRequest{Key: []byte("/first")})
	r.call(remove, r.Plain)
	r.ident = headerOf(r.call(remove, r.Direct))
	r.revision = r.ident.GetRevision()
	for _, cc := range []*grpc.ClientConn{r.Plain, r.Direct} {
		if a := r.call(ask("KV.Compact", &pb.CompactionRequest{Revision: r.revision, Physical: true}), cc); a.end != nil {
			return fmt.Errorf("compact an etcd: %w", a.end.Err())
		}
	}
	r.compacted = r.revision
	return nil
}

// next does one thing.
func (r *run) next() {
	r.doing = ""
	r.valid = r.IntN(10) > 0
	choose(
		r.dice,
		choice{300, func() { r.write(ask("KV.Put", r.put())) }},
		choice{60, func() { r.write(ask("KV.DeleteRange", r.deleteRange())) }},
		choice{150, func() { r.write(ask("KV.Txn", r.txn(2))) }},
		choice{60, r.leaseStep},
		choice{20, r.compactStep},
		choice{350, func() { r.read(ask("KV.Range", r.rangeRequest())) }},
		choice{60, func() { r.read(ask("KV.RangeStream", r.rangeRequest())) }},
		choice{15, r.oddStep},
		choice{10, r.otherStep},
		choice{15, r.jsonStep},
		choice{3, r.lockStep},
		choice{10, r.rightsStep},
		choice{120, func() { r.watchRequests(false) }},
		choice{25, r.progressStep},
		choice{4, r.notifyStep},
		choice{30, r.settle},
		choice{5, r.streamStep},
		choice{10, r.storm},
		choice{3, r.bigStep},
	)
}

// differ notes a difference.
func (r *run) differ(format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	r.report.Differences = append(r.report.Differences, fmt.Sprintf("seed %d, step %d, revision %d, compacted %d: %s", r.cfg.Seed, r.step, r.revision, r.compacted, what))
}

func (r *run) tolerate(k Known) { r.report.Tolerated[k.Name]++ }

// write asks the plain etcd and the tier, and compares. Both must do the same,
// or there is nothing to compare any more.
func (r *run) write(q question) answer { return r.writeAs(q, r.someone()) }

// writeAs is write as one of people.
func (r *run) writeAs(q question, who int) answer {
	q.who = who
	r.report.Asked[q.method]++
	node := r.IntN(len(r.Through))
	want := r.call(q, r.Plain)
	got := r.call(q, r.Through[node])
	r.wrote(q, node, want, got)
	return want
}

func (r *run) wrote(q question, node int, want, got answer) {
	diff := difference(want, got, twoEtcds())
	if nothing := want.end != nil || headerOf(want).GetRevision() <= r.revision; diff != "" && nothing && r.nameless(q.who) && endOf(got) == userEmpty {
		r.tolerate(namelessFirst())
		return
	}
	if diff != "" {
		r.differ("write %s\nat node %d: %s", q, node, diff)
		if headerOf(want).GetRevision() != headerOf(got).GetRevision() {
			r.fatal = errors.New("the two etcds are not the same any more")
		}
	}
	r.checkIdentity(q, node, got)
	if h := headerOf(want); h != nil {
		r.revision = max(r.revision, h.GetRevision())
	}
	if len(q.sent) == 0 || want.end != nil {
		return
	}
	switch m := q.sent[0].(type) {
	case *pb.CompactionRequest:
		r.compacted = max(r.compacted, m.GetRevision())
	case *pb.LeaseGrantRequest:
		r.leases = append(r.leases, m.GetID())
	case *pb.LeaseRevokeRequest:
		r.leases = slices.DeleteFunc(r.leases, func(id int64) bool { return id == m.GetID() })
	}
}

// checkIdentity: the header of what came through the tier is that of the etcd
// behind it, but for the member.
func (r *run) checkIdentity(q question, node int, a answer) {
	h := headerOf(a)
	if h == nil {
		return
	}
	if h.GetClusterId() != r.ident.GetClusterId() || h.GetRaftTerm() != r.ident.GetRaftTerm() || h.GetMemberId() == 0 {
		r.differ("%s\nat node %d: header {%s} of an etcd with {%s}", q, node, oneLine(h), oneLine(r.ident))
	}
}

// read asks the etcd behind the tier directly and through a node, and
// compares. Nobody writes meanwhile.
func (r *run) read(q question) {
	q.who = r.someone()
	r.report.Asked[q.method]++
	node := r.IntN(len(r.Through))
	want, got := r.call(q, r.Direct), r.call(q, r.Through[node])
	if q.method == "etcdserverpb.KV.RangeStream" {
		got = r.join(q, node, got)
		want, _ = joined(want)
	}
	diff := difference(want, got, sameEtcd())
	if diff != "" && r.older(q, got) {
		r.tolerate(olderReads())
		return
	}
	if diff != "" {
		r.differ("read %s\nat node %d: %s", q, node, diff)
	}
}

// join joins the chunks of a stream.
func (r *run) join(q question, node int, a answer) answer {
	whole, wrong := joined(a)
	if wrong != "" {
		r.differ("read %s\nat node %d: %s", q, node, wrong)
	}
	return whole
}

// older reports whether an answer to a serializable read is right for the
// revision that it says it is of.
func (r *run) older(q question, got answer) bool {
	req, ok := q.sent[0].(*pb.RangeRequest)
	h := headerOf(got)
	if !ok || !req.GetSerializable() || req.GetRevision() > 0 || h == nil || h.GetRevision() >= r.revision {
		return false
	}
	// Nobody can tell what was there before the compact revision.
	return h.GetRevision() < r.compacted || r.asOf(q, got) == ""
}

// asOf compares an answer with what etcd says of the revision in its header.
func (r *run) asOf(q question, got answer) string {
	then := proto.Clone(q.sent[0]).(*pb.RangeRequest)
	if then.GetRevision() <= 0 {
		then.Revision = headerOf(got).GetRevision()
	}
	want := r.call(question{method: q.method, sent: []proto.Message{then}, who: q.who}, r.Direct)
	if q.method == "etcdserverpb.KV.RangeStream" {
		want, _ = joined(want)
	}
	return difference(want, got, append(sameEtcd(), "revision"))
}

// leaseStep does something about leases.
func (r *run) leaseStep() {
	id := pick[int64](r, 0, -1, 12345)
	if len(r.leases) > 0 && r.IntN(5) > 0 {
		id = pick(r, r.leases...)
	}
	choose(
		r.dice,
		choice{3, func() {
			r.write(ask("Lease.LeaseGrant", &pb.LeaseGrantRequest{ID: 1 + int64(r.IntN(30)), TTL: 3600 + int64(r.IntN(1000))}))
		}},
		choice{1, func() { // TTLs that etcd refuses or raises: it must not end while we look
			grant := &pb.LeaseGrantRequest{ID: pick[int64](r, 77, -5), TTL: pick[int64](r, 0, -1, 1, 9_000_000_001, 9_000_000_000)}
			if a := r.write(ask("Lease.LeaseGrant", grant)); a.end == nil {
				r.writeAs(ask("Lease.LeaseRevoke", &pb.LeaseRevokeRequest{ID: grant.ID}), 0)
			}
		}},
		choice{1, func() { r.write(ask("Lease.LeaseRevoke", &pb.LeaseRevokeRequest{ID: id})) }},
		choice{3, func() { r.write(ask("Lease.LeaseTimeToLive", &pb.LeaseTimeToLiveRequest{ID: id, Keys: oneIn(r, 2)})) }},
		choice{1, func() { r.write(ask("Lease.LeaseLeases", &pb.LeaseLeasesRequest{})) }},
		choice{2, func() {
			var sent []proto.Message
			for range r.IntN(4) {
				sent = append(sent, &pb.LeaseKeepAliveRequest{ID: id})
				if len(r.leases) > 0 {
					id = pick(r, r.leases...)
				}
			}
			r.write(ask("Lease.LeaseKeepAlive", sent...))
		}},
	)
}

// compactStep compacts. A watch that is behind then would be a race at etcd.
func (r *run) compactStep() {
	r.settle()
	if err := r.Behind(r.ctx); err != nil {
		r.fatal = err
		return
	}
	r.writeAs(ask("KV.Compact", r.compaction()), 0)
	r.truth.forget(r.compacted)
}

// oddStep sends what no client of etcd would send.
func (r *run) oddStep() {
	choose(
		r.dice,
		choice{2, func() { // too large for a request, or for gRPC
			value := []byte(strings.Repeat("x", pick(r, 3<<19-100, 3<<19, 3<<19+1000, 2<<20-30, 2<<20, 3<<20)))
			r.write(ask("KV.Put", &pb.PutRequest{Key: r.key(), Value: value}))
		}},
		choice{1, func() {
			r.read(ask("KV.Range", &pb.RangeRequest{Key: []byte(strings.Repeat("x", pick(r, 2<<20-100, 2<<20, 3<<20)))}))
		}},
		choice{4, func() {
			method := pick(r, "KV.Range", "KV.RangeStream", "KV.Put", "KV.Txn", "KV.Compact", "Lease.LeaseGrant", "Watch.Nothing", "Nobody.Nothing", "Cluster.MemberList")
			if method == "KV.RangeStream" {
				return // not one message
			}
			r.garbage(method)
		}},
		choice{2, func() { r.write(ask("KV.Txn", &pb.TxnRequest{Success: []*pb.RequestOp{{}}})) }},
		choice{1, func() { r.write(ask("KV.Txn", &pb.TxnRequest{Compare: []*pb.Compare{{}}})) }},
		choice{1, func() { r.write(ask("KV.Txn", deep(pick(r, 3, 20, 126, 127, 128, 129)))) }},
		choice{1, func() { // fields of a later version
			m := &pb.RangeRequest{Key: r.key()}
			m.ProtoReflect().SetUnknown([]byte{0xf8, 0x07, 0x01})
			r.read(ask("KV.Range", m))
		}},
	)
}

// deep returns a transaction in a transaction and so on.
func deep(n int) *pb.TxnRequest {
	r := &pb.TxnRequest{}
	for range n {
		r = &pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestTxn{RequestTxn: r}}}}
	}
	return r
}

// garbage sends bytes that are no message: only the end is compared.
func (r *run) garbage(method string) {
	q := question{method: "etcdserverpb." + method, raw: []byte{7}} // there is no such wire type
	for range r.IntN(12) {
		q.raw = append(q.raw, byte(r.IntN(256)))
	}
	r.report.Asked["garbage"]++
	node := r.IntN(len(r.Through))
	want, got := r.call(q, r.Direct), r.call(q, r.Through[node])
	if want.end == nil {
		r.fatal = fmt.Errorf("etcd understands %s", q)
	}
	if diff := difference(want, got, nil); diff != "" {
		r.differ("%s\nat node %d: %s", q, node, diff)
	}
}

// otherStep asks what is only passed through.
func (r *run) otherStep() {
	name := pick(r, "u1", "u2", "u3", "")
	key, end := r.keys()
	choose(
		r.dice,
		choice{1, func() { r.read(ask("Maintenance.Alarm", &pb.AlarmRequest{})) }},
		choice{1, func() { r.read(ask("Auth.AuthStatus", &pb.AuthStatusRequest{})) }},
		choice{1, func() { r.read(ask("Auth.UserList", &pb.AuthUserListRequest{})) }},
		choice{1, func() { r.read(ask("Auth.RoleList", &pb.AuthRoleListRequest{})) }},
		choice{1, func() { r.read(ask("Auth.UserGet", &pb.AuthUserGetRequest{Name: name})) }},
		choice{1, func() { r.read(ask("Auth.RoleGet", &pb.AuthRoleGetRequest{Role: name})) }},
		choice{1, func() { r.read(ask("Auth.Authenticate", &pb.AuthenticateRequest{Name: name, Password: "p"})) }},
		choice{2, func() {
			r.write(ask("Auth.UserAdd", &pb.AuthUserAddRequest{Name: name, Options: newUser()}))
		}},
		choice{1, func() { r.write(ask("Auth.UserDelete", &pb.AuthUserDeleteRequest{Name: name})) }},
		choice{2, func() { r.write(ask("Auth.RoleAdd", &pb.AuthRoleAddRequest{Name: name})) }},
		choice{1, func() { r.write(ask("Auth.RoleDelete", &pb.AuthRoleDeleteRequest{Role: name})) }},
		choice{1, func() { r.write(ask("Auth.UserGrantRole", &pb.AuthUserGrantRoleRequest{User: name, Role: "u1"})) }},
		choice{1, func() { r.write(ask("Auth.UserRevokeRole", &pb.AuthUserRevokeRoleRequest{Name: name, Role: "u1"})) }},
		choice{1, func() { r.write(ask("Auth.RoleGrantPermission", r.grant(name))) }},
		choice{1, func() {
			r.write(ask("Auth.RoleRevokePermission", &pb.AuthRoleRevokePermissionRequest{Role: name, Key: key, RangeEnd: end}))
		}},
		choice{1, func() {
			if r.Root == "" {
				r.write(ask("Auth.AuthDisable", &pb.AuthDisableRequest{}))
			}
		}},
	)
}

// lockStep uses etcd's lock and election services: nobody else is there, so
// that nobody has to wait.
func (r *run) lockStep() {
	const lease = 99
	name := []byte(pick(r, "/a/lock", "/c/lock", "x", ""))
	root := func(method string, m proto.Message) proto.Message {
		a := r.writeAs(question{method: method, sent: []proto.Message{m}}, 0)
		return a.first()
	}
	root("etcdserverpb.Lease.LeaseGrant", &pb.LeaseGrantRequest{ID: lease, TTL: 3600})
	switch r.IntN(3) {
	case 0:
		lock, _ := root("v3lockpb.Lock.Lock", &v3lockpb.LockRequest{Name: name, Lease: lease}).(*v3lockpb.LockResponse)
		root("v3lockpb.Lock.Unlock", &v3lockpb.UnlockRequest{Key: lock.GetKey()})
	case 1:
		won, _ := root("v3electionpb.Election.Campaign", &v3electionpb.CampaignRequest{Name: name, Lease: lease, Value: r.value()}).(*v3electionpb.CampaignResponse)
		root("v3electionpb.Election.Leader", &v3electionpb.LeaderRequest{Name: name})
		root("v3electionpb.Election.Proclaim", &v3electionpb.ProclaimRequest{Leader: won.GetLeader(), Value: r.value()})
		root("v3electionpb.Election.Resign", &v3electionpb.ResignRequest{Leader: won.GetLeader()})
	case 2:
		root("v3lockpb.Lock.Lock", &v3lockpb.LockRequest{Name: name, Lease: 98}) // there is no such lease
		root("v3electionpb.Election.Leader", &v3electionpb.LeaderRequest{Name: name})
		root("v3electionpb.Election.Resign", &v3electionpb.ResignRequest{Leader: &v3electionpb.LeaderKey{Name: name, Key: r.key(), Rev: 5, Lease: lease}})
	}
	root("etcdserverpb.Lease.LeaseRevoke", &pb.LeaseRevokeRequest{ID: lease})
}

// storm writes while it reads and watches. What is read is compared with what
// etcd says of the revision that the answer has.
func (r *run) storm() {
	r.valid = true
	var writes []question
	var nodes []int
	for range 10 + r.IntN(40) {
		choose(
			r.dice,
			choice{6, func() { writes = append(writes, ask("KV.Put", r.put())) }},
			choice{1, func() { writes = append(writes, ask("KV.DeleteRange", r.deleteRange())) }},
			choice{3, func() { writes = append(writes, ask("KV.Txn", r.txn(1))) }},
		)
		writes[len(writes)-1].who = r.someone()
		nodes = append(nodes, r.IntN(len(r.Through)))
	}
	type outcome struct{ want, got answer }
	outcomes := make(chan outcome, len(writes))
	go func() {
		defer close(outcomes)
		for i, q := range writes {
			outcomes <- outcome{r.call(q, r.Plain), r.call(q, r.Through[nodes[i]])}
		}
	}()
	for _, p := range r.streams {
		p.counted = false
	}
	written := 0
	// hear takes the outcomes that are there: what has been acknowledged.
	hear := func(wait bool) {
		for written < len(writes) {
			var o outcome
			if wait {
				o = <-outcomes
			} else {
				select {
				case o = <-outcomes:
				default:
					return
				}
			}
			r.report.Asked[writes[written].method]++
			r.wrote(writes[written], nodes[written], o.want, o.got)
			written++
		}
	}
	for range 4 + r.IntN(12) {
		hear(false)
		choose(
			r.dice,
			choice{5, func() { r.readDuring(ask("KV.Range", r.rangeRequest())) }},
			choice{1, func() { r.readDuring(ask("KV.RangeStream", r.rangeRequest())) }},
			choice{2, func() { r.watchRequests(true) }},
			choice{1, func() { r.sendProgress(r.somePair()) }},
		)
	}
	hear(true)
	r.settle()
}

// readDuring reads through a node while others write.
func (r *run) readDuring(q question) {
	q.who = r.someone()
	req := q.sent[0].(*pb.RangeRequest)
	if req.Revision > r.revision || req.Revision == 0 && oneIn(r, 3) {
		req.Revision = r.revision
	}
	r.report.Asked[q.method]++
	node, acked := r.IntN(len(r.Through)), r.revision
	got := r.call(q, r.Through[node])
	if q.method == "etcdserverpb.KV.RangeStream" {
		got = r.join(q, node, got)
	}
	h := headerOf(got)
	if got.end == nil && h.GetRevision() < acked {
		if !req.GetSerializable() || req.GetRevision() > 0 {
			r.differ("read %s\nat node %d: at revision %d, and %d was acknowledged before it was asked", q, node, h.GetRevision(), acked)
			return
		}
		r.tolerate(olderReads())
		if h.GetRevision() < r.compacted {
			return
		}
	}
	if diff := r.asOf(q, got); diff != "" {
		r.differ("read %s\nat node %d, at revision %d, while others write: %s", q, node, h.GetRevision(), diff)
	}
	now := headerOf(r.call(ask("KV.Range", &pb.RangeRequest{Key: []byte("k"), CountOnly: true}), r.Direct))
	if h.GetRevision() > now.GetRevision() {
		r.differ("read %s\nat node %d: at revision %d, and etcd is at %d", q, node, h.GetRevision(), now.GetRevision())
	}
}

// bigStep writes what needs fragments, and watches it from before.
func (r *run) bigStep() {
	p, from := r.somePair(), r.revision
	before := r.watchOf(p, &pb.WatchCreateRequest{Key: []byte("/b/"), RangeEnd: []byte("/c"), PrevKv: true, Fragment: true})
	if before {
		r.await(p)
	}
	for i := range 5 {
		r.writeAs(ask("KV.Put", &pb.PutRequest{Key: fmt.Appendf(nil, "/b/big/%d", i), Value: []byte(strings.Repeat("b", 1<<20))}), 0)
	}
	r.writeAs(ask("KV.DeleteRange", &pb.DeleteRangeRequest{Key: []byte("/b/big/"), RangeEnd: []byte("/b/big0")}), 0)
	for _, fragment := range []bool{true, false} {
		r.watchOf(p, &pb.WatchCreateRequest{Key: []byte("/b/"), RangeEnd: []byte("/c"), PrevKv: true, Fragment: fragment, StartRevision: from + 1})
	}
	r.await(p)
	r.settle()
}

// NewSeed returns a seed that nobody had before.
func NewSeed() uint64 { return rand.Uint64N(1 << 40) }
