package native

import (
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/edge/farewell"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// Farewells returns the watches whose range overlaps one of ranges. Ending one makes its
// client resume on another node, with why as the reason.
func (a *API) Farewells(ranges []kv.Range, why error) (out []farewell.Farewell) {
	for _, st := range a.allStreams() {
		for _, w := range st.list() {
			if !slices.ContainsFunc(ranges, w.rng.Overlaps) {
				continue
			}
			out = append(out, farewell.Farewell{Client: st.from, Call: st.ctx, Watches: 1, End: func() { w.sendElsewhere(why) }, Open: func() bool { return st.has(w) }})
		}
	}
	return out
}

// sendElsewhere ends the watch so that its client resumes on another node.
func (w *watch) sendElsewhere(why error) {
	w.end(&shardwatchv1.Ended{
		Reason: shardwatchv1.EndReason_END_REASON_DRAINING, Message: why.Error(),
		Endpoints: w.s.api.cfg.Router.Elsewhere(w.rng), RetryAfter: durationpb.New(time.Millisecond),
	})
}
