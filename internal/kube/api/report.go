package api

import (
	"cmp"
	"maps"
	"slices"

	"github.com/shardwatch/shardwatch/internal/kube/report"
	"github.com/shardwatch/shardwatch/internal/kube/source"
	"github.com/shardwatch/shardwatch/internal/kube/tier"
	"github.com/shardwatch/shardwatch/internal/version"
)

// Report returns the state of this node, its apiservers and its resources, from this node's own
// data. It queries no other process.
func (s *Server) Report() report.Report {
	out := report.Report{
		Node: s.cfg.Node, Version: version.String(), Zone: s.cfg.Zone, Started: s.started, NotReady: s.NotReady(),
		Apiservers: []report.Apiserver{},
		Requests:   report.Requests{Cached: s.counts.cached.Load(), Passed: s.counts.passed.Load(), Failed: s.counts.failed.Load()},
		Resources:  s.feeds.report(),
	}
	for _, server := range s.cfg.Source.Servers() {
		a := report.Apiserver{URL: server}
		if why := s.cfg.Source.Avoided(server); why != nil {
			a.Avoided, a.Error = true, line(why)
		}
		out.Apiservers = append(out.Apiservers, a)
	}
	if s.cfg.Tier != nil {
		for _, m := range s.cfg.Tier.Members() {
			out.Members = append(out.Members, report.Member{Name: string(m.Name), HTTP: m.HTTPAddress, Zone: m.Zone, Version: m.Version})
		}
	}
	return out
}

// report returns the followed resources and the withdrawn preloaded resources, sorted by name.
func (s *feeds) report() []report.Resource {
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.all))
	for _, f := range all {
		s.loadedLocked(f.r)
	}
	over := maps.Clone(s.over)
	s.mu.Unlock()
	out := make([]report.Resource, 0, len(all)+len(over))
	for _, f := range all {
		if !over[f.r] {
			out = append(out, f.report())
		}
	}
	for r := range over {
		out = append(out, report.Resource{Name: r.Plain(), Encoding: r.Encoding.String(), State: report.Withdrawn})
	}
	slices.SortFunc(out, func(a, b report.Resource) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Encoding, b.Encoding))
	})
	return out
}

// report returns the state of a feed.
func (f *feed) report() report.Resource {
	st := f.cache.Status()
	out := report.Resource{
		Name: f.r.Plain(), Encoding: f.r.Encoding.String(), State: report.Ready, From: f.from(),
		Objects: int64(st.Keys), Bytes: st.StateBytes + st.RootsBytes + st.WindowBytes,
		Floor: int64(st.Floor), Progress: int64(st.Progress), Watches: f.watches.Load(), Losses: st.Resets + st.Leaps,
	}
	if out.From != "" && f.loaded() {
		return out
	}
	failure := f.src.Failure()
	switch {
	case !f.loaded():
		out.State = report.Loading
	case source.Ended(failure):
		return out
	default:
		out.State, out.Error = report.Failing, "no apiserver or node is followed at present"
	}
	if failure != nil {
		out.Error = line(failure)
	}
	return out
}

// from returns the followed apiserver or node; "": none is followed.
func (f *feed) from() string {
	if f.tier == nil || f.tier.Name() == tier.Apiserver {
		return f.src.Server()
	}
	return f.tier.Name()
}
