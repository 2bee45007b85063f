package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// addHealth adds the paths that etcd serves outside of its API (etcdhttp).
func (g *Gateway) addHealth() {
	g.status = newShared(g.life, statusTimeout, g.EtcdStatus)
	g.reads = make(map[bool]*shared[struct{}])
	for _, serializable := range []bool{false, true} {
		g.reads[serializable] = newShared(g.life, checkTimeout, func(ctx context.Context) (none struct{}, err error) {
			return none, g.Probe(ctx, serializable)
		})
	}
	g.own.HandleFunc("GET /version", g.version)
	g.own.HandleFunc("/health", onlyGet(g.health))
	local := check{"serializable_read", func(ctx context.Context) error { return g.read(ctx, true) }}
	g.addChecks("/livez", local)
	g.addChecks("/readyz", check{"data_corruption", g.corrupt}, check{"non_learner", g.learner}, local,
		check{"linearizable_read", func(ctx context.Context) error { return g.read(ctx, false) }}) // last: may take all of checkTimeout
}

// check is one of the checks of /livez and /readyz.
type check struct {
	name string
	run  func(context.Context) error
}

func onlyGet(then http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			w.Header().Set("Allow", http.MethodGet)
			http.Error(w, "Method Not Allowed", http.StatusMethodNotAllowed)
			return
		}
		then(w, r)
	}
}

// addChecks serves each check on a path of its own, and all of them together except those named by the
// parameter exclude.
func (g *Gateway) addChecks(path string, all ...check) {
	g.own.HandleFunc(path, onlyGet(func(w http.ResponseWriter, r *http.Request) {
		excluded := r.URL.Query()["exclude"]
		runChecks(w, r, slices.DeleteFunc(slices.Clone(all), func(c check) bool { return slices.Contains(excluded, c.name) }))
	}))
	for _, c := range all {
		g.own.HandleFunc(path+"/"+c.name, onlyGet(func(w http.ResponseWriter, r *http.Request) { runChecks(w, r, []check{c}) }))
	}
}

// checkTimeout bounds the checks of a request, together.
const checkTimeout = 5 * time.Second

func runChecks(w http.ResponseWriter, r *http.Request, checks []check) {
	ctx, cancel := context.WithTimeout(r.Context(), checkTimeout)
	defer cancel()
	var told strings.Builder
	failed := false
	for _, c := range checks {
		if err := c.run(ctx); err != nil {
			failed = true
			fmt.Fprintf(&told, "[-]%s failed: %s\n", c.name, rpctypes.ErrorDesc(err))
		} else {
			fmt.Fprintf(&told, "[+]%s ok\n", c.name)
		}
	}
	if failed {
		http.Error(w, told.String(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if _, verbose := r.URL.Query()["verbose"]; verbose {
		_, _ = fmt.Fprint(w, told.String()) // the client is gone
	}
	_, _ = fmt.Fprint(w, "ok\n")
}

// read fails unless a read succeeded within sharedFor: of etcd, or of this node.
func (g *Gateway) read(ctx context.Context, serializable bool) error {
	_, err := g.reads[serializable].get(ctx)
	return err
}

// statusTimeout bounds the wait for etcd's status, which a member has in memory. After it, the last status
// counts.
const statusTimeout = 500 * time.Millisecond

// member returns the last status of an etcd member. It fails if there was none.
func (g *Gateway) member(ctx context.Context) (*etcdserverpb.StatusResponse, error) {
	s, err := g.status.get(ctx)
	if s != nil {
		return s, nil
	}
	return nil, err
}

// raised reports whether etcd's status has an alarm. (Listing the alarms needs a quorum of etcd.)
func raised(s *etcdserverpb.StatusResponse, kind etcdserverpb.AlarmType) bool {
	return slices.ContainsFunc(s.GetErrors(), func(e string) bool { return strings.Contains(e, "alarm:"+kind.String()) })
}

func (g *Gateway) corrupt(ctx context.Context) error {
	s, err := g.member(ctx)
	if err == nil && raised(s, etcdserverpb.AlarmType_CORRUPT) {
		err = errors.New("alarm activated: CORRUPT")
	}
	return err
}

func (g *Gateway) learner(ctx context.Context) error {
	s, err := g.member(ctx)
	if err == nil && s.GetIsLearner() {
		err = errors.New("not supported for learner")
	}
	return err
}

// version returns the version of etcd, to any caller, as etcd does.
func (g *Gateway) version(w http.ResponseWriter, r *http.Request) {
	s, err := g.member(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	cluster := "not_decided"
	if parts := strings.Split(s.GetVersion(), "."); len(parts) > 2 {
		cluster = parts[0] + "." + parts[1] + ".0"
	}
	answer(w, struct {
		Server  string `json:"etcdserver"`
		Cluster string `json:"etcdcluster"`
		Storage string `json:"storage"`
	}{s.GetVersion(), cluster, s.GetStorageVersion()})
}

// health reports whether a read succeeds, of etcd or with serializable=true of this node, and etcd has no alarm
// except those named by the parameter exclude.
func (g *Gateway) health(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), checkTimeout)
	defer cancel()
	local := r.URL.Query().Get("serializable") == "true"
	why := ""
	s, _ := g.member(ctx) // the read shows whether etcd answers
	for _, kind := range []etcdserverpb.AlarmType{etcdserverpb.AlarmType_NOSPACE, etcdserverpb.AlarmType_CORRUPT} {
		if why == "" && raised(s, kind) && !slices.Contains(r.URL.Query()["exclude"], kind.String()) {
			why = "ALARM " + kind.String()
		}
	}
	if why == "" {
		if err := g.read(ctx, local); err != nil {
			why = "RANGE ERROR:" + rpctypes.ErrorDesc(err)
		}
	}
	if why != "" {
		b, _ := json.Marshal(map[string]string{"health": "false", "reason": why})
		http.Error(w, string(b), http.StatusServiceUnavailable)
		return
	}
	answer(w, map[string]string{"health": "true", "reason": ""})
}

func answer(w http.ResponseWriter, what any) {
	w.Header().Set("Content-Type", "application/json")
	b, _ := json.Marshal(what)
	_, _ = w.Write(b) // the client is gone
}
