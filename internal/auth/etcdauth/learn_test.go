package etcdauth

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	peerv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/peer/v1"
	"github.com/shardwatch/shardwatch/internal/auth/etcdroles"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// knowing returns a guard with users and roles of a revision: ann may read a key, and
// write another key.
func knowing(t *testing.T, revision uint64, key string) *Checker {
	t.Helper()
	g, err := New(quick(&fake{on: true, revision: revision, grants: func() (etcdroles.Grants, error) {
		return etcdroles.Grants{
			Users: map[string][]string{"ann": {"r"}},
			Roles: map[string][]etcdroles.Permission{"r": {{Key: key, Read: true}, {Key: key + "/written"}}},
		}, nil
	}}))
	if err != nil {
		t.Fatal(err)
	}
	g.look(t.Context())
	return g
}

// A node without rights borrows the newest users and roles that other nodes have, without write permissions; a
// node with rights borrows none.
func TestTheNewestRightsAreBorrowed(t *testing.T) {
	old, newest := knowing(t, 7, "old"), knowing(t, 9, "new")
	for _, order := range [][]*Checker{{old, newest}, {newest, old}} {
		e := &fake{away: errors.New("etcd does not answer")}
		cfg := quick(e)
		cfg.Peers = peersOf(t, order...)
		g, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		g.look(t.Context())
		if s := g.Status(); !s.Known || !s.On || s.Revision != 9 || s.Users != 1 {
			t.Errorf("%+v", s)
		}
		for key, may := range map[string]bool{"new": true, "old": false, "new/written": false} {
			if err := g.MayRead("ann", kv.Single(key)); (err == nil) != may {
				t.Errorf("%s: %v", key, err)
			}
		}
		if g.Trouble() != "" {
			t.Errorf("trouble: %s", g.Trouble())
		}
		g.cfg.Peers = peersOf(t, knowing(t, 20, "newer"))
		g.look(t.Context())
		if s := g.Status(); s.Revision != 9 {
			t.Errorf("known rights are replaced by revision %d of another node", s.Revision)
		}
	}
}

// Nodes answer in any order: the newest answer counts, and an answer with authentication on before one with it
// off.
func TestOrderOfRights(t *testing.T) {
	off := &peerv1.ReadRightsResponse{Known: true, Revision: 12}
	on := func(revision uint64) *peerv1.ReadRightsResponse {
		return &peerv1.ReadRightsResponse{Known: true, Authentication: true, Revision: revision}
	}
	for _, c := range []struct {
		name    string
		r, than *peerv1.ReadRightsResponse
		want    bool
	}{
		{"the first", off, nil, true},
		{"a later revision", on(9), on(8), true},
		{"an earlier revision", on(7), on(8), false},
		{"the same revision", on(8), on(8), false},
		{"on rather than off", on(7), off, true},
		{"not off rather than on", off, on(7), false},
	} {
		if got := newer(c.r, c.than); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// Incomplete shares are not stored, nor is a token that etcd does not confirm as the user's.
func TestIncompleteSharesAreNotLearned(t *testing.T) {
	e := &fake{confirm: accepted}
	other := guarded(t, &fake{confirm: accepted}, nil)
	g := guarded(t, e, func(c *Config) { c.Peers = peersOf(t, other) })
	g.Learn(t.Context(), "", "x")
	g.Learn(t.Context(), "ann", "")
	g.Learn(t.Context(), "ann", strings.Repeat("x", maxToken+1))
	if n := e.count("owner"); n != 0 {
		t.Errorf("etcd was asked %d times", n)
	}
	e.owner = refusedToken3
	g.Learn(t.Context(), "ann", "bobs")
	if here, there := g.Status().Tokens, other.Status().Tokens; here+there != 0 {
		t.Errorf("%d tokens are stored here and %d at the other node", here, there)
	}
	e.owner = other.cfg.Etcd.(*fake).owner
	g.Learn(t.Context(), "ann", strings.Repeat("x", maxToken))
	if here, there := g.Status().Tokens, other.Status().Tokens; here != 1 || there != 1 {
		t.Errorf("the longest token: %d stored here and %d at the other node", here, there)
	}
	id := idOf("y")
	other.Share(id[:], "")
	if n := other.Status().Tokens; n != 1 {
		t.Errorf("a token without a user is stored: %d tokens, want 1", n)
	}
	other.Share(id[:], "ann")
	if user := other.Identify(id[:]); user != "ann" {
		t.Errorf("the shared token has user %q", user)
	}
	// The user that a token claims is not shared as etcd's answer.
	token := signed(`{"username":"ann"}`)
	if _, err := g.Caller(calling(t, "token", token)); err != nil {
		t.Fatal(err)
	}
	claimed := idOf(token)
	if user := g.Identify(claimed[:]); user != "" {
		t.Errorf("the claimed user %s is shared with other nodes", user)
	}
}

// A refused token is accepted at once after its login.
func TestALearnedTokenIsAcceptedAfterARefusal(t *testing.T) {
	e := &fake{confirm: refusedToken}
	g := guarded(t, e, nil)
	token := signed(`{"username":"ann"}`)
	if _, err := g.Caller(calling(t, "token", token)); err == nil {
		t.Fatal("the token that etcd refuses is accepted")
	}
	e.confirm = accepted
	id := idOf(token)
	g.Share(id[:], "ann")
	if user, err := g.Caller(calling(t, "token", token)); user != "ann" || err != nil {
		t.Errorf("%q, %v", user, err)
	}
}

// A node keeps the user that another node has returned, even if etcd then does not answer.
func TestAnAnswerOfAnotherNodeIsRemembered(t *testing.T) {
	other := guarded(t, &fake{confirm: accepted}, nil)
	id := idOf("x")
	other.Share(id[:], "ann")
	e := &fake{confirm: silent}
	g := guarded(t, e, func(c *Config) { c.Peers = peersOf(t, other) })
	for range 3 {
		if user, err := g.Caller(calling(t, "token", "x")); user != "ann" || err != nil {
			t.Errorf("%q, %v", user, err)
		}
	}
	if s := g.Status(); s.Lookups != 1 || s.Tokens != 1 {
		t.Errorf("%d lookups, %d tokens", s.Lookups, s.Tokens)
	}
}

// Rights reports the known state: unknown, off, or the users.
func TestRightsForOtherNodes(t *testing.T) {
	g := knowing(t, 7, "k")
	r := g.Rights()
	if !r.GetKnown() || !r.GetAuthentication() || r.GetRevision() != 7 || len(r.GetUsers()) != 1 || !slices.Equal(r.GetUsers()[0].GetRoles(), []string{"r"}) || len(r.GetRoles()) != 1 || len(r.GetRoles()[0].GetPermissions()) != 1 {
		t.Errorf("%v", r)
	}
	g.deny(8, etcdroles.ErrUnreadable)
	if r := g.Rights(); r.GetKnown() || r.GetAuthentication() || len(r.GetUsers()) > 0 {
		t.Errorf("rights of a node that may not read users: %v", r)
	}
}

// A token hash must be complete: a shorter hash is not padded with zeros.
func TestAnIncompleteTokenHashMatchesNoToken(t *testing.T) {
	g := guarded(t, &fake{confirm: accepted}, nil)
	var zero tokenID
	g.Share([]byte{1}, "root")
	g.Share(make([]byte, len(zero)+1), "root")
	if n := g.Status().Tokens; n != 0 {
		t.Errorf("%d tokens", n)
	}
	g.Share(zero[:], "ann")
	for _, odd := range [][]byte{nil, zero[:1], make([]byte, len(zero)+1)} {
		if user := g.Identify(odd); user != "" {
			t.Errorf("%d bytes: %q", len(odd), user)
		}
	}
	if user := g.Identify(zero[:]); user != "ann" {
		t.Errorf("all bytes: %q", user)
	}
}

// answers is a connection to a node that returns the user of a token after a while.
type answers struct {
	grpc.ClientConnInterface
	after time.Duration
	user  string
	err   error
}

func (a answers) Invoke(ctx context.Context, _ string, _, reply any, _ ...grpc.CallOption) error {
	time.Sleep(a.after)
	if err := errors.Join(ctx.Err(), a.err); err != nil {
		return err
	}
	if r, ok := reply.(*peerv1.IdentifyTokenResponse); ok {
		r.User = a.user
	}
	return nil
}

// An answer with a user counts, even if other nodes answer first.
func TestTheAnswerWithAUserCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guarded(t, &fake{confirm: accepted}, func(c *Config) {
			c.Peers = func() []grpc.ClientConnInterface {
				return []grpc.ClientConnInterface{
					answers{}, answers{user: "bob", err: errors.New("broken")}, answers{after: time.Millisecond, user: "ann"}, answers{after: 2 * time.Millisecond, user: "cid"},
				}
			}
		})
		if user, err := g.Caller(calling(t, "token", "x")); user != "ann" || err != nil {
			t.Errorf("%q, %v", user, err)
		}
	})
}
