package differential

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
)

// Sides are the servers under comparison.
type Sides struct {
	// Plain is an etcd without a tier, Direct the etcd behind the tier. Both are empty, and no
	// other client writes to them.
	Plain, Direct *grpc.ClientConn
	// Through are the nodes of the tier.
	Through []*grpc.ClientConn
	// JSON are the same servers for etcd's JSON API, host:port; nil: it is not tested.
	JSON []string
	// Behind waits until no watch at the etcd behind the tier lags.
	Behind func(context.Context) error
	// Cuts are the start keys of shards, in order.
	Cuts []string
	// Root is the password of the user root, if authentication is on. The run creates the other
	// users.
	Root string
	// RightsOnce: Through checks rights only when a watch is created, as etcd does.
	RightsOnce bool
	// KeepsEnded: watches that Through cancels as compacted keep their ID until the client cancels
	// them, as at etcd.
	KeepsEnded bool
	// Loose: Through is etcd itself, which has weaker guarantees than the tier.
	Loose bool
}

// Config configures a run.
type Config struct {
	// Seed selects the requests, unless there is a Script.
	Seed   uint64
	Script []byte
	// Steps is the number of steps.
	Steps int
	// Most is the number of differences that end the run; 0: one.
	Most int
	// Patience bounds the wait for an expected response; 0: 30 s. Correct servers never reach it.
	Patience time.Duration
}

// Report is the result of a run.
type Report struct {
	Seed uint64
	// Differences has the unintended differences in words.
	Differences []string
	// Tolerated counts the intended ones, by [Known].
	Tolerated map[string]int
	// Asked counts calls by method, and watches.
	Asked map[string]int
	// Events is the number of correct events of watches through the tier.
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
	fatal   error
}

// pair is a watch stream to each side.
type pair struct {
	sides    [2]*recorder
	readings [2]*reading
	node     int
	who      int            // the caller of both streams
	half     bool           // the requests are closed
	ids      map[int64]bool // in use
	spoiled  map[int64]bool // cancelled with events in flight: not used again
	answers  int            // required controls
	matched  int            // compared controls
	counted  bool           // answers to progress requests are comparable
	late     int            // requests whose answers are not, and may still arrive from the tier
}

const (
	direct  = 0
	through = 1
)

// Run sends the same requests to both sides, chosen by dice, and returns the differences of the
// answers. It fails if it cannot continue.
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

// begin empties both etcds, reads their identity, and opens some streams.
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
			continue // a script has its own writes
		}
		r.writeAs(ask("KV.Put", &pb.PutRequest{Key: []byte(k), Value: r.value()}), 0)
	}
	return r.fatal
}

// level brings both etcds to one revision and compacts them there: from then on, all readable
// history is known.
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
	// It may have been put more than once, so its version differs.
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

// next runs one step.
func (r *run) next() {
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

// differ records a difference.
func (r *run) differ(format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	r.report.Differences = append(r.report.Differences, fmt.Sprintf("seed %d, step %d, revision %d, compacted %d: %s", r.cfg.Seed, r.step, r.revision, r.compacted, what))
}

func (r *run) tolerate(k Known) { r.report.Tolerated[k.Name]++ }

// NewSeed returns a new seed.
func NewSeed() uint64 { return rand.Uint64N(1 << 40) }
