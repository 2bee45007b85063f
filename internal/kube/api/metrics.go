package api

import (
	"slices"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/shardwatch/shardwatch/internal/ops/telemetry"
)

// counts are the counters of a server.
type counts struct {
	watches                   atomic.Int64 // open watches that have sent their initial state
	cached, passed, failed    atomic.Int64 // requests
	events, bytes             atomic.Int64 // sent to watches
	differences, undifferable atomic.Int64 // watches below the window
	withdrawn                 atomic.Int64 // watches whose sender lost the right
}

// Register registers the metrics of a server. Metrics of resources have one series for each followed resource and
// encoding: at most Config.MaxFeeds, of resources that are preloaded or that apiservers have.
func (s *Server) Register(m metric.Meter) error {
	in := telemetry.NewInstruments(m)
	watches := in.Gauge("shardwatch.kube.watches", "{watch}", "Open watches of Kubernetes' API that are served from caches.")
	requests := in.Counter("shardwatch.kube.requests", "{request}", "Requests of Kubernetes' API: answered from caches, passed on to an apiserver, or failed here.")
	events := in.Counter("shardwatch.kube.events", "{event}", "Events and bookmarks sent to watches of Kubernetes' API.")
	sent := in.Counter("shardwatch.kube.sent", "By", "Bytes sent to watches of Kubernetes' API.")
	differences := in.Counter("shardwatch.kube.differences", "{watch}", "Watches below the window: continued with the difference, or passed on because it is not known.")
	withdrawn := in.Counter("shardwatch.kube.withdrawn_watches", "{watch}", "Watches that ended because their sender lost the right or it could not be decided for too long.")
	feeds := in.Gauge("shardwatch.kube.resources", "{resource}", "Resources that are followed, each encoding counted.")
	direct := in.Gauge("shardwatch.kube.direct_resources", "{resource}", "Resources that this node follows at an apiserver; it follows the others at other nodes.")
	objects := in.Gauge("shardwatch.kube.objects", "{object}", "Objects of the followed resources.")
	held := in.Gauge("shardwatch.kube.held", "By", "Bytes of objects and windows of the followed resources.")
	resets := in.Counter("shardwatch.kube.window_losses", "{reset}", "Times that a followed resource lost its window, or continued over a gap, of the resources that are followed now.")
	reviews := in.Counter("shardwatch.kube.reviews", "{review}", "Reviews that apiservers answered: of tokens, and of requests.")
	failures := in.Counter("shardwatch.kube.review_failures", "{review}", "Reviews that no apiserver answered.")
	stale := in.Counter("shardwatch.kube.stale_allows", "{request}", "Requests allowed by an earlier decision because no apiserver answered.")
	refused := in.Counter("shardwatch.kube.undecided", "{request}", "Requests that failed with 429 because no apiserver answered and no earlier decision counts.")
	decisions := in.Gauge("shardwatch.kube.decisions", "By", "Bytes of decisions and identities that are held.")
	label := func(name, value string) metric.ObserveOption {
		return metric.WithAttributes(attribute.String(name, value))
	}
	return in.Observe(func(o metric.Observer) {
		o.ObserveInt64(requests, s.counts.cached.Load(), label("answer", "cache"))
		o.ObserveInt64(requests, s.counts.passed.Load(), label("answer", "apiserver"))
		o.ObserveInt64(requests, s.counts.failed.Load(), label("answer", "failed"))
		o.ObserveInt64(events, s.counts.events.Load())
		o.ObserveInt64(sent, s.counts.bytes.Load())
		o.ObserveInt64(differences, s.counts.differences.Load(), label("result", "continued"))
		o.ObserveInt64(differences, s.counts.undifferable.Load(), label("result", "passed on"))
		o.ObserveInt64(withdrawn, s.counts.withdrawn.Load())
		all := s.feeds.every()
		o.ObserveInt64(feeds, int64(len(all)))
		following := int64(0)
		for _, f := range all {
			if is, _ := f.direct(); is {
				following++
			}
			if !f.loaded() && !slices.Contains(s.cfg.Preload, f.r) {
				continue // apiservers may not have it: a client would choose the label
			}
			of := metric.WithAttributes(attribute.String("resource", f.r.Plain()), attribute.String("encoding", f.r.Encoding.String()))
			st := f.cache.Status()
			o.ObserveInt64(watches, f.watches.Load(), of)
			o.ObserveInt64(objects, int64(st.Keys), of)
			o.ObserveInt64(held, st.StateBytes+st.RootsBytes+st.WindowBytes, of)
			o.ObserveInt64(resets, st.Resets+st.Leaps, of)
		}
		o.ObserveInt64(direct, following)
		g := s.cfg.Guard.Stats()
		o.ObserveInt64(reviews, g.TokenReviews, label("review", "token"))
		o.ObserveInt64(reviews, g.AccessReviews, label("review", "access"))
		o.ObserveInt64(failures, g.Failures)
		o.ObserveInt64(stale, g.Stale)
		o.ObserveInt64(refused, g.Refused)
		o.ObserveInt64(decisions, g.Bytes)
	})
}
