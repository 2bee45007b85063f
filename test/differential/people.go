package differential

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// person is a caller, if authentication is on. Tokens are for the plain etcd and for the other one,
// which also accepts its token through the tier.
type person struct {
	name          string
	plain, behind string
}

// users is the number of users besides root, the first caller. Two more callers have no token and a
// wrong one.
const users = 4

func (r *run) withAuth() bool { return r.Root != "" }

// someone returns the next caller: mostly root, which has all rights.
func (r *run) someone() int {
	if len(r.people) < 2 || r.IntN(2) == 0 {
		return 0
	}
	if oneIn(r, 12) {
		return users + 1 + r.IntN(2)
	}
	return 1 + r.IntN(users)
}

func (r *run) nameOf(who int) string {
	if !r.withAuth() {
		return ""
	}
	return " to " + strconv.Quote(r.people[who].name)
}

// userEmpty is the error for a call without a token.
const userEmpty = `InvalidArgument: "etcdserver: user name is empty"`

// nameless reports whether the caller lacks a required token.
func (r *run) nameless(who int) bool { return r.withAuth() && who == users+1 }

// as returns the context of a caller's call over a connection.
func (r *run) as(who int, cc *grpc.ClientConn) context.Context {
	if who >= len(r.people) {
		return r.ctx
	}
	token := r.people[who].behind
	if cc == r.Plain {
		token = r.people[who].plain
	}
	if token == "" {
		return r.ctx
	}
	return metadata.AppendToOutgoingContext(r.ctx, "token", token)
}

// call sends a question over a connection, as its caller.
func (r *run) call(q question, cc *grpc.ClientConn) answer { return q.put(r.as(q.who, cc), cc) }

// logIn returns a token for each of the two etcds. The token for the etcd behind the tier is
// requested through the tier: nodes do not know the owners of other tokens.
func (r *run) logIn(name, password string) (person, error) {
	p := person{name: name}
	for cc, token := range map[*grpc.ClientConn]*string{r.Plain: &p.plain, pick(r, r.Through...): &p.behind} {
		a := ask("Auth.Authenticate", &pb.AuthenticateRequest{Name: name, Password: password}).put(r.ctx, cc)
		if a.end != nil {
			return p, fmt.Errorf("log in as %s: %w", name, a.end.Err())
		}
		*token = a.first().(*pb.AuthenticateResponse).GetToken()
	}
	return p, nil
}

func (r *run) logInRoot() error {
	if !r.withAuth() {
		return nil
	}
	root, err := r.logIn("root", r.Root)
	r.people = []person{root}
	return err
}

// meetPeople creates users with roles of random ranges.
func (r *run) meetPeople() {
	if !r.withAuth() {
		return
	}
	everybody := r.people
	for i := 1; i <= users && r.fatal == nil; i++ {
		name := fmt.Sprint("person", i)
		r.writeAs(ask("Auth.UserDelete", &pb.AuthUserDeleteRequest{Name: name}), 0)
		r.writeAs(ask("Auth.RoleDelete", &pb.AuthRoleDeleteRequest{Role: name}), 0)
		r.writeAs(ask("Auth.UserAdd", &pb.AuthUserAddRequest{Name: name, Password: name}), 0)
		r.writeAs(ask("Auth.RoleAdd", &pb.AuthRoleAddRequest{Name: name}), 0)
		r.writeAs(ask("Auth.UserGrantRole", &pb.AuthUserGrantRoleRequest{User: name, Role: name}), 0)
		if i == 1 { // may read everything, so that rights can be revoked
			all := &authpb.Permission{PermType: authpb.Permission_READ, Key: []byte{0}, RangeEnd: []byte{0}}
			r.writeAs(ask("Auth.RoleGrantPermission", &pb.AuthRoleGrantPermissionRequest{Name: name, Perm: all}), 0)
		}
		for range 1 + r.IntN(3) {
			r.writeAs(ask("Auth.RoleGrantPermission", r.grant(name)), 0)
		}
		p, err := r.logIn(name, name)
		if err != nil {
			r.fatal = err
		}
		everybody = append(everybody, p)
	}
	r.people = append(everybody, person{name: "nobody"}, person{name: "a liar", plain: "lie.1", behind: "lie.1"})
	r.rightsSettle()
}

// rightsStep changes the rights of a user.
func (r *run) rightsStep() {
	if !r.withAuth() {
		return
	}
	r.settle()
	role, user := fmt.Sprint("person", 1+r.IntN(users)), fmt.Sprint("person", 1+r.IntN(users))
	for range 1 + r.IntN(3) {
		choose(
			r.dice,
			choice{4, func() { r.writeAs(ask("Auth.RoleGrantPermission", r.grant(role)), 0) }},
			choice{4, func() { r.revokeSome(role) }},
			choice{1, func() { r.writeAs(ask("Auth.UserGrantRole", &pb.AuthUserGrantRoleRequest{User: user, Role: role}), 0) }},
			choice{1, func() {
				if user != role { // each keeps its own role
					r.writeAs(ask("Auth.UserRevokeRole", &pb.AuthUserRevokeRoleRequest{Name: user, Role: role}), 0)
				}
			}},
		)
	}
	r.rightsSettle()
	for _, p := range r.streams {
		r.endForbidden(p)
	}
}

// revokeSome revokes some of a role's permissions, or all permissions of the watching users.
func (r *run) revokeSome(role string) {
	all := oneIn(r, 2)
	if p := r.somePair(); all && 1 <= p.who && p.who <= users {
		role = fmt.Sprint("person", p.who)
	}
	a := r.call(ask("Auth.RoleGet", &pb.AuthRoleGetRequest{Role: role}), r.Direct)
	if a.end != nil {
		return
	}
	for _, perm := range a.first().(*pb.AuthRoleGetResponse).GetPerm() {
		if all || oneIn(r, 3) {
			r.writeAs(ask("Auth.RoleRevokePermission", &pb.AuthRoleRevokePermissionRequest{Role: role, Key: perm.GetKey(), RangeEnd: perm.GetRangeEnd()}), 0)
		}
	}
}

// rightsSettle waits until every node has all users' rights, which takes some seconds.
func (r *run) rightsSettle() {
	var probes []*pb.RangeRequest
	probe := func(key, end []byte) {
		if len(key) == 0 {
			key = []byte{0}
		}
		probes = append(probes, &pb.RangeRequest{Key: key, RangeEnd: end, CountOnly: true, Serializable: true})
	}
	for i := 1; i <= users; i++ {
		a := r.call(ask("Auth.RoleGet", &pb.AuthRoleGetRequest{Role: fmt.Sprint("person", i)}), r.Direct)
		if a.end != nil {
			r.fatal = a.end.Err()
			return
		}
		for _, perm := range a.first().(*pb.AuthRoleGetResponse).GetPerm() {
			probe(perm.GetKey(), perm.GetRangeEnd())
			probe(perm.GetKey(), nil)
		}
	}
	for _, p := range prefixes() {
		probe([]byte(p), prefixEnd([]byte(p)))
		probe([]byte(p+"1"), nil)
	}
	probe([]byte{0}, []byte{0})
	for _, p := range r.streams {
		for _, t := range p.readings[direct].open {
			probe(t.request.GetKey(), t.request.GetRangeEnd())
		}
	}
	for who := 1; who <= users; who++ {
		for _, req := range probes {
			q := ask("KV.Range", req)
			q.who = who
			want := endOf(r.call(q, r.Direct))
			for node, cc := range r.Through {
				r.poll(fmt.Sprintf("%s at node %d ends with %s", q, node, want), func() error {
					if got := endOf(r.call(q, cc)); got != want {
						return fmt.Errorf("it ends with %s", got)
					}
					return nil
				})
			}
		}
	}
}

// endForbidden expects that the tier has ended the watches of callers that have lost the right to
// read their range.
func (r *run) endForbidden(p *pair) {
	d, t := p.readings[direct], p.readings[through]
	for _, id := range keysOf(p.ids) {
		if t.open[id] == nil {
			continue // it was ended; on a stream that takes no requests it remains at etcd
		}
		if w := d.open[id]; w != nil && !w.ended && !r.RightsOnce && !r.mayWatch(p.who, w) {
			r.until("the end of a watch of keys that may no longer be read", func() error {
				r.readPair(p)
				if slices.Contains(t.revoked, id) {
					return nil
				}
				return fmt.Errorf("watch {%s} continues", oneLine(w.request))
			}, p)
		}
	}
	r.forgetRevoked(p)
}

// forgetRevoked cancels at etcd the watches that the tier has ended because their owner may no
// longer read, and checks with etcd that this was right.
func (r *run) forgetRevoked(p *pair) {
	d, t := p.readings[direct], p.readings[through]
	for _, id := range t.revoked {
		if w := d.open[id]; w == nil || r.mayWatch(p.who, w) {
			r.differ("node %d ended watch %d%s, though it may be read", p.node, id, r.nameOf(p.who))
			continue
		}
		r.tolerate(rightsAreChecked())
		if !p.half {
			r.cancelDirect(p, id)
		}
	}
	t.revoked = nil
}

// mayWatch reports whether etcd permits the caller to read the watched range.
func (r *run) mayWatch(who int, t *told) bool {
	if who == 0 || !r.withAuth() {
		return true
	}
	req := &pb.RangeRequest{Key: t.request.GetKey(), RangeEnd: t.request.GetRangeEnd(), CountOnly: true, Serializable: true}
	if len(req.GetKey()) == 0 {
		req.Key = []byte{0}
	}
	q := ask("KV.Range", req)
	q.who = who
	return r.call(q, r.Direct).end == nil
}

func newUser() *authpb.UserAddOptions { return &authpb.UserAddOptions{NoPassword: true} }
