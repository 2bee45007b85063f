package mutants

func kubeAPIGroup() Group {
	return Group{Package: "internal/kube/api", Mutants: []Mutant{
		{
			Name: "kube-metadata-lists", Bug: "lists of metadata alone are passed on", File: "request.go",
			Old: `partial += "List"`, New: `partial += ""`, Tests: "TestMetadataOfListsHasAFormOfItsOwn",
		},
		{
			Name: "kube-socket-list", Bug: "a list over a WebSocket is answered as a watch", File: "request.go",
			Old: `q.socket && !q.watch`, New: `false`, Tests: "TestRequestsForAnApiserver",
		},
		{
			Name: "kube-socket-protobuf", Bug: "a WebSocket has messages of protobuf with their lengths", File: "socket.go",
			Old: `if f.enc != object.JSON {`, New: `if f.enc > object.Protobuf {`, Tests: "TestRequestsForAnApiserver",
		},
		{
			Name: "kube-socket-protocol", Bug: "a WebSocket of a protocol that is not agreed on", File: "socket.go",
			Old: ` && r.Header.Get("Sec-WebSocket-Protocol") == ""`, New: ``, Tests: "TestRequestsForAnApiserver",
		},
		{
			Name: "kube-events-wait", Bug: "a request waits for a version of events", File: "read.go",
			Old: `a.f.r.IsEvents() && `, New: `false && `, Tests: "TestAVersionOfEventsIsNotWaitedFor",
		},
		{
			Name: "kube-stale-refusal", Bug: "a request drops a loaded resource for a refusal that came later", File: "server.go",
			Old: `!f.loaded() && !source.MayFollow(err)`, New: `!source.MayFollow(err)`, Tests: "TestAResourceThatIsNotServedAnyMoreIsPassedOn",
		},
		{
			Name: "kube-refusal-forgotten", Bug: "each request has a resource that is refused watched again", File: "feed.go",
			Old: ` || s.refusedLocked(r)`, New: ``, Tests: "TestARefusedResourceIsNotTriedByEachRequest",
		},
		{
			Name: "kube-refusals-unbounded", Bug: "clients make a node remember any number of refusals", File: "feed.go",
			Old: ` || len(s.refused) >= s.cfg.MaxFeeds`, New: ``, Tests: "TestRefusalsAreForgotten",
		},
		{
			Name: "kube-dropped-feed", Bug: "a request waits for a resource that another one has dropped", File: "server.go",
			Old: `case <-f.ended:`, New: `case <-make(chan struct{}):`, Tests: "TestRequestsOfADroppedFeedDoNotWait",
		},
		{
			Name: "kube-fan-index-before", Bug: "an event is not seen by the watches of the node that a pod leaves", File: "fan.go",
			Old: `append(slices.Clip(found), by.groups[before]...)`, New: `slices.Clip(found)`, Tests: "TestEachWatchGetsItsEventsOnce",
		},
		{
			Name: "kube-fan-index-all", Bug: "an event looks at the watches of all nodes", File: "fan.go",
			Old: `	path, value := g.selector.Demanded()
`, New: `	path, value := "", ""
`, Tests: "TestAnEventConcernsTheWatchesOfItsNode",
		},
		{
			Name: "kube-fan-namespace", Bug: "a watch that is found by a field gets events of other namespaces", File: "fan.go",
			Old: `g.key.namespace == "" || g.key.namespace == namespace`, New: `true`, Tests: "TestEachWatchGetsItsEventsOnce",
		},
		{
			Name: "kube-fan-plain-namespace", Bug: "a watch of a namespace gets no events", File: "fan.go",
			Old: `groups = append(groups, x.plain[namespace]...)`, New: `groups = append(groups, x.plain[""][:0]...)`, Tests: "TestEachWatchGetsItsEventsOnce",
		},
		{
			Name: "kube-fan-twice", Bug: "a watch gets events again that it has read before it joined", File: "fan.go",
			Old: `if revision <= m.joined {`, New: `if revision < m.joined {`, Tests: "TestAnEventComesWhileAWatchJoins",
		},
		{
			Name: "kube-fan-lost", Bug: "a watch that takes too little loses an event", File: "fan.go",
			Old: `m.left, m.last = true, revision-1`, New: `m.left, m.last = true, revision`, Tests: "TestEachWatchGetsItsEventsOnce",
		},
		{
			Name: "kube-fan-bound", Bug: "frames wait for a watch without a bound", File: "fan.go",
			Old: `m.bytes+len(frame) > most`, New: `m.bytes < 0`, Tests: "TestAWatchThatTakesTooLittleLeaves",
		},
		{
			Name: "kube-fan-joins-early", Bug: "a watch joins without the last events before", File: "fan.go",
			Old: `	last, err := rest()`, New: `	last, err := x.at, error(nil)`, Tests: "TestAnEventComesWhileAWatchJoins",
		},
		{
			Name: "kube-fan-end", Bug: "a watch waits for a fan that has ended", File: "fan.go",
			Old: `	if x.watcher != nil {
		x.releaseLocked()
	}
}`, New: `}`, Tests: "TestWatchesEndWithTheirFeed",
		},
		{
			Name: "kube-fan-watcher", Bug: "a fan without watches goes on reading", File: "fan.go",
			Old: `len(x.all) == 0 && x.watcher != nil`, New: `false`, Tests: "TestEachWatchGetsItsEventsOnce",
		},
		{
			Name: "kube-watch-not-given-back", Bug: "a resource counts as used after its watches have ended", File: "watch.go",
			Old: `	s.f.release()
`, New: ``, Tests: "TestServedWatchesEnd",
		},
		{
			Name: "kube-watch-early-bookmark", Bug: "a bookmark comes before events up to its version", File: "deliver.go",
			Old: `s.bookmark(max(at, s.sent), false)`, New: `s.bookmark(max(at, s.f.fan.progress()), false)`, Tests: "TestABookmarkPassesNoEventThatComesMeanwhile",
		},
		{
			Name: "kube-watch-passes-event", Bug: "the last bookmark of a watch passes an event that could not be sent", File: "watch.go",
			Old: `	if !alive {
		s.close()
	}`, New: ``, Tests: "TestNoBookmarkPassesAnEventThatWasNotSent",
		},
		{
			Name: "kube-large-unbounded", Bug: "large events of unread watches take no memory from the budget", File: "watch.go",
			Old: `budget.Lists, 2*int64(bytes))`, New: `budget.Lists, 0)`, Tests: "TestALargeEventTakesMemoryFromTheBudget",
		},
		{
			Name: "kube-passed-unbounded", Bug: "requests that are passed on take no memory from the budget", File: "server.go",
			Old: `clientOf(r), use, n)`, New: `clientOf(r), use, 0*n)`, Tests: "TestAPassedRequestTakesMemoryFromTheBudget",
		},
		{
			Name: "kube-difference-at-once", Bug: "all of a difference is encoded before it is written", File: "watch.go",
			Old: `len(s.out) > 0 && len(s.out)+bytes > ownBytes && !s.flush()`, New: `false`, Tests: "TestAWatchBelowTheWindowGetsTheDifference",
		},
		{
			Name: "kube-api-withdrawn-resource", Bug: "a resource that is not served any more is frozen", File: "feed.go",
			Old: `errors.Is(err, source.ErrWithdrawn)`, New: `false && errors.Is(err, source.ErrWithdrawn)`, Tests: "TestAResourceThatIsNotServedAnyMoreIsPassedOn",
		},
		{
			Name: "kube-api-withdrawn-preload", Bug: "a preloaded resource that is not served any more takes the node out of service", File: "feed.go",
			Old: `return s.over[r]`, New: `return false`, Tests: "TestAResourceThatIsNotServedAnyMoreIsPassedOn",
		},
		{
			Name: "kube-difference-off", Bug: "--kube-delta off sends differences", File: "difference.go",
			Old: `if s.s.cfg.NoDelta {`, New: `if false {`, Tests: "TestWithoutDifferencesAWatchBelowTheWindowGets410",
		},
		{
			Name: "kube-difference-order", Bug: "deletes of a difference come last", File: "difference.go",
			Old: `append(d.rest, after...)`, New: `append(after, d.rest...)`, Tests: "TestAWatchBelowTheWindowGetsTheDifference",
		},
		{
			Name: "kube-difference-versions", Bug: "changed objects come in any order", File: "difference.go",
			Old: `return int(a.ModRevision() - b.ModRevision())`, New: `return int(b.ModRevision() - a.ModRevision())`, Tests: "TestAWatchBelowTheWindowGetsTheDifference",
		},
		{
			Name: "kube-difference-delete-version", Bug: "a delete of a difference has the version of its end", File: "difference.go",
			Old: `o.WithVersion(int64(d.since))`, New: `o.WithVersion(int64(d.upTo))`, Tests: "TestAWatchBelowTheWindowGetsTheDifference",
		},
		{
			Name: "kube-difference-selector", Bug: "a difference is sent although it is not known which objects matched before", File: "difference.go",
			Old: `if !s.q.selector.Everything() {`, New: `if false {`, Tests: "TestAnUnknownDifferenceIsForAnApiserver",
		},
		{
			Name: "kube-difference-unbounded", Bug: "differences take no memory of their client", File: "difference.go",
			Old: `int64(len(changes.Changed)+len(changes.Deleted))*changeBytes`, New: `0`, Tests: "TestADifferenceTakesMemoryOfItsClient",
		},
		{
			Name: "kube-difference-not-given-back", Bug: "a client that goes in a difference keeps its memory", File: "watch.go",
			Old: `		s.behind.held.Release()`, New: ``, Tests: "TestADifferenceTakesMemoryOfItsClient",
		},
		{
			Name: "kube-difference-leak", Bug: "a difference that is not known keeps its memory", File: "difference.go",
			Old: `	if err != nil {
		held.Release()
		return nil, err
	}
	d.rest`, New: `	if err != nil {
		return nil, err
	}
	d.rest`, Tests: "TestAnUnknownDifferenceIsForAnApiserver",
		},
		{
			Name: "kube-api-subresource", Bug: "a subresource is answered as its object", File: "../source/resource.go",
			Old: `return r, namespace, name, len(parts) <= 2`, New: `return r, namespace, name, true`, Tests: "TestRequestsForAnApiserver",
		},
		{
			Name: "kube-api-unknown-parameter", Bug: "a parameter that is not known is ignored", File: "request.go",
			Old: `	return false
}

func (q *request) parseVersion`, New: `	return true
}

func (q *request) parseVersion`, Tests: "TestRequestsForAnApiserver",
		},
		{
			Name: "kube-api-table", Bug: "a client that prefers a table gets objects", File: "request.go",
			Old: `		if !ok {
			return forms
		}`, New: `		if !ok {
			continue
		}`, Tests: "TestTheFirstAcceptedFormsCount",
		},
		{
			Name: "kube-api-foreign-continue", Bug: "any token continues a list", File: "request.go",
			Old: `return !q.watch && text == "" && match == "" && q.parseContinue(token)`, New: `return true`, Tests: "TestRequestsForAnApiserver",
		},
		{
			Name: "kube-api-restored", Bug: "a node serves what it has of a cluster whose etcd went back", File: "read.go",
			Old: `case now < before:`, New: `case false:`, Tests: "TestARestoredClusterIsNoticed",
		},
		{
			Name: "kube-api-next-form", Bug: "a request that is passed on loads its resource in each encoding", File: "server.go",
			Old: `if !errors.Is(err, errNotFollowed) {`, New: `if errors.Is(err, context.Canceled) {`, Tests: "TestAPassedRequestLoadsNoOtherEncoding",
		},
		{
			Name: "kube-api-failure-of-node", Bug: "an apiserver's answer to the node's own request is sent to the client", File: "read.go",
			Old: `		return 0, object.Later(err)`, New: `		return 0, err`, Tests: "TestAFailureOfTheNodesOwnRequestIsNotTheClients",
		},
		{
			Name: "kube-api-selector-of-get", Bug: "a get is judged with a selector, which it does not apply", File: "request.go",
			Old: ` || q.name != "" && q.labels+q.fields != "" {`, New: ` {`, Tests: "TestRequestsForAnApiserver",
		},
		{
			Name: "kube-api-newest-object", Bug: "a get of the newest object waits for a resource that does not have it", File: "request.go",
			Old: ` && (q.name == "" || !q.unset)`, New: ``, Tests: "TestAGetWithoutAVersionIsPassedOn",
		},
		{
			Name: "kube-api-nodes-of-namespace", Bug: "the nodes of a namespace are an empty list", File: "server.go",
			Old: `case q.namespace != "" && f.clusterScoped(ctx):`, New: `case false:`, Tests: "TestNodesOfANamespaceArePassedOn",
		},
		{
			Name: "kube-api-slow-state", Bug: "a client that reads the initial events slowly holds their state", File: "watch.go",
			Old: `!s.encodeEvent(object.Added, o) || port.TooSlow(began, bytes, writeTime) {`, New: `!s.encodeEvent(object.Added, o) || false && port.TooSlow(began, bytes, writeTime) {`, Tests: "TestAStateIsNotHeldForASlowClient",
		},
		{
			Name: "kube-api-slow-difference", Bug: "a client that reads a difference slowly holds its objects", File: "difference.go",
			Old: `!s.encodeEvent(c.typ, &o) || port.TooSlow(began, bytes, writeTime) {`, New: `!s.encodeEvent(c.typ, &o) || false && port.TooSlow(began, bytes, writeTime) {`, Tests: "TestAStateIsNotHeldForASlowClient",
		},
		{
			Name: "kube-api-named-object", Bug: "a role for one object does not count for a list of it", File: "request.go",
			Old: `	if name, ok := q.selector.Exact("metadata.name"); ok && q.name == "" {`, New: `	if name, ok := q.selector.Exact("metadata.name"); !ok && q.name == "" {`, Tests: "TestAttributesAreAnApiservers",
		},
		{
			Name: "kube-api-unavailable", Bug: "a resource that is not loaded is answered with 503", File: "../object/status.go",
			Old: `Code: http.StatusTooManyRequests, Reason: "TooManyRequests"`, New: `Code: http.StatusServiceUnavailable, Reason: "ServiceUnavailable"`, Tests: "TestAResourceThatCannotBeLoadedIsTriedAgain",
		},
		{
			Name: "kube-api-no-retry-after", Bug: "429 comes without Retry-After", File: "server.go",
			Old: `w.Header().Set("Retry-After", fmt.Sprint(status.RetryAfter))`, New: `w.Header().Del("Retry-After")`, Tests: "TestAResourceThatCannotBeLoadedIsTriedAgain",
		},
		{
			Name: "kube-api-secrets", Bug: "Secrets are held in memory", File: "server.go",
			Old: `return s.cfg.Secrets || r.Group`, New: `return s.cfg.Secrets || r.Version == "v1" || r.Group`, Tests: "TestSecretsArePassedOn",
		},
		{
			Name: "kube-api-secrets-of-nodes", Bug: "another node has this one hold Secrets", File: "copy.go",
			Old: `if follow && s.mayHold(r) {`, New: `if follow {`, Tests: "TestSecretsArePassedOn",
		},
		{
			Name: "kube-api-secrets-kept", Bug: "Secrets that another node uses are held", File: "copy.go",
			Old: `	if s.mayHold(r) {`, New: `	if r.Name != "" {`, Tests: "TestSecretsArePassedOn",
		},
		{
			Name: "kube-api-feeds", Bug: "each request follows its resource itself", File: "feed.go",
			Old: `	s.all[r] = f
`, New: ``, Tests: "TestOneFeedForEachResourceAndEncoding",
		},
		{
			Name: "kube-api-not-there-yet", Bug: "a version that is not there yet has no cause", File: "server.go",
			Old: `, Cause: "ResourceVersionTooLarge"`, New: ``, Tests: "TestAVersionThatIsNotThereYet",
		},
		{
			Name: "kube-api-not-there-code", Bug: "a version that is not there yet is too old", File: "server.go",
			Old: `Code: http.StatusGatewayTimeout`, New: `Code: http.StatusGone`, Tests: "TestAVersionThatIsNotThereYet",
		},
		{
			Name: "kube-api-expired-token", Bug: "the 410 of a chunk has no token for the rest", File: "read.go",
			Old: `continueAt(-1, []byte(a.q.next))`, New: `""`, Tests: "TestAnExpiredListContinuesAtTheNewestVersion",
		},
		{
			Name: "kube-api-expired-first", Bug: "the rest of an expired list begins at its first object", File: "read.go",
			Old: `continueAt(-1, []byte(a.q.next))`, New: `continueAt(-1, nil)`, Tests: "TestAnExpiredListContinuesAtTheNewestVersion",
		},
		{
			Name: "kube-api-expired-version", Bug: "the rest of an expired list is asked for at version 0", File: "read.go",
			Old: `q.chunked, q.unset = p.Version > 0, p.Version < 0`, New: `q.chunked, q.unset = p.Version > 0, false`, Tests: "TestAnExpiredListContinuesAtTheNewestVersion",
		},
		{
			Name: "kube-watch-last-bookmark", Bug: "a watch ends without a bookmark", File: "watch.go",
			Old: `	s.progress()
	if !s.flush() {`, New: `	if !s.pending() || !s.flush() {`, Tests: "TestTheLastFrameOfAWatchIsABookmark",
		},
		{
			Name: "kube-watch-too-short", Bug: "a watch may end within its first second", File: "watch.go",
			Old: `wait.Sleep(ctx, upstream.ShortestWatch-time.Since(s.began))`, New: `wait.Sleep(ctx, 0*upstream.ShortestWatch)`, Tests: "TestNoWatchEndsWithinItsFirstSecond",
		},
		{
			Name: "kube-report-failing", Bug: "a resource that is not followed is reported as ready", File: "report.go",
			Old: `out.State, out.Error = report.Failing,`, New: `out.State, out.Error = report.Ready,`, Tests: "TestTheReportOfANode",
		},
		{
			Name: "kube-report-withdrawn", Bug: "a preloaded resource that was withdrawn is reported as loading", File: "report.go",
			Old: `State: report.Withdrawn})`, New: `State: report.Loading})`, Tests: "TestAResourceThatIsNotServedAnyMoreIsPassedOn",
		},
		{
			Name: "kube-page-unbounded", Bug: "any number of reports is made at a time", File: "../page/page.go", Package: "internal/kube/page",
			Old: `			defer func() { <-p.readers }()
`, New: `			<-p.readers
`, Tests: "TestReportsAreBounded",
		},
		{
			Name: "kube-page-always", Bug: "a node has a page although it is off", File: "../page/page.go", Package: "internal/kube/page",
			Old: `	if pages {`, New: `	if pages || true {`, Tests: "TestThePageForPeople",
		},
		{
			Name: "kube-page-calm", Bug: "the page does not say that a resource gets no changes", File: "../page/view.go", Package: "internal/kube/page",
			Old: `case x.State == report.Failing:`, New: `case x.State == report.Failing && x.Bytes < 0:`, Tests: "TestTheVerdict",
		},
		{
			Name: "kube-page-green", Bug: "the page of a node that is not ready is amber", File: "../page/view.go", Package: "internal/kube/page",
			Old: `if v.Level != "bad" {`, New: `if true {`, Tests: "TestTheVerdict",
		},
		{
			Name: "kube-report-ended", Bug: "a resource is reported as failing between two watches", File: "report.go",
			Old: `case source.Ended(failure):`, New: `case source.Ended(failure) && false:`, Tests: "TestTheReportOfANode",
		},
		{
			Name: "kube-report-watches", Bug: "the watches of a resource are not counted", File: "deliver.go",
			Old: `	s.f.watches.Add(1)
`, New: ``, Tests: "TestTheReportOfANode",
		},
		{
			Name: "kube-report-from", Bug: "a resource is reported as followed at an apiserver that has failed", File: "../source/follow.go",
			Old: `		s.server.CompareAndSwap(&server, nil) // another call may follow
`, New: ``, Tests: "TestTheReportOfANode",
		},
		{
			Name: "kube-metrics-names", Bug: "the name of any resource that a client asks for is in the metrics", File: "metrics.go",
			Old: `if !f.loaded() && !slices.Contains(s.cfg.Preload, f.r) {`, New: `if !f.loaded() && slices.Contains(s.cfg.Preload, f.r) {`, Tests: "TestTheReportOfANode",
		},
	}}
}

func kubePastGroup() Group {
	return Group{Package: "internal/kube/past", Mutants: []Mutant{
		{
			Name: "kube-past-of-another-node", Bug: "forgets what a difference of another node replaces", File: "observe.go",
			Old: `slices.AppendSeq(held, maps.Values(rest))`, New: `slices.AppendSeq(held[:0], maps.Values(rest))`, Tests: "TestFormerVersionsAreKnownOfWhatAnotherNodeSends",
		},
		{
			Name: "kube-past-whole-state", Bug: "forgets what a whole state of another node replaces", File: "observe.go",
			Old: `u.Leap || req.From == 0 && req.Held != nil`, New: `u.Leap`, Tests: "TestFormerVersionsAreKnownOfWhatAnotherNodeSends",
		},
		{
			Name: "kube-past-whole-state-gone", Bug: "forgets what a whole state of another node does not have", File: "observe.go",
			Old: `slices.AppendSeq(held, maps.Values(rest))`, New: `slices.AppendSeq(held, maps.Values(rest))[:len(held)]`, Tests: "TestFormerVersionsAreKnownOfWhatAnotherNodeSends",
		},
		{
			Name: "kube-past-first-state", Bug: "takes the first state of all for a gap", File: "observe.go",
			Old: `req.From == 0 && req.Held != nil`, New: `req.From == 0`, Tests: "TestFormerVersionsAreKnownOfWhatAnotherNodeSends",
		},
		{
			Name: "kube-past-resumed", Bug: "takes a stream that resumes for a gap", File: "observe.go",
			Old: `req.From == 0 && req.Held != nil`, New: `true`, Tests: "TestFormerVersionsAreKnownOfWhatAnotherNodeSends",
		},
		{
			Name: "kube-past-unchanged", Bug: "takes an object that has not changed for a former version", File: "observe.go",
			Old: ` && old.ModRevision() != item.ModRevision()`, New: ``, Tests: "TestFormerVersionsAreKnownOfWhatAnotherNodeSends",
		},
		{
			Name: "kube-past-window-deletes", Bug: "forgets the deletes in another node's window", File: "observe.go",
			Old: `p.Applied(&u.Batch)`, New: ``, Tests: "TestFormerVersionsAreKnownOfWhatAnotherNodeSends",
		},
		{
			Name: "kube-api-past-bound", Bug: "former versions are kept without a bound", File: "past.go",
			Old: `for p.bytes > p.maxBytes {`, New: `for false {`, Tests: "TestThePastHasABound",
		},
		{
			Name: "kube-api-gap-forever", Bug: "a gap is known in full although a version of it was dropped", File: "past.go",
			Old: `if first <= p.first {`, New: `if first > p.first {`, Tests: "TestThePastHasABound",
		},
		{
			Name: "kube-api-gaps-bound", Bug: "gaps are remembered without a bound", File: "past.go",
			Old: `if len(p.gaps) == maxGaps {`, New: `if false {`, Tests: "TestThePastHasABound",
		},
		{
			Name: "kube-api-past-after-gap", Bug: "an object that changes after a gap did not exist at its beginning", File: "past.go",
			Old: `len(p.gaps) > 0 && e.Prev != nil && e.Prev.ModRevision() <= p.newestGap`, New: `false`, Tests: "TestThePastOfAnObjectThatChangesAfterAGap",
		},
		{
			Name: "kube-api-past-after-gap-all", Bug: "all replaced versions are kept after a gap", File: "past.go",
			Old: `e.Prev.ModRevision() <= p.newestGap`, New: `e.Prev.ModRevision() > 0`, Tests: "TestThePastOfAnObjectThatChangesAfterAGap",
		},
		{
			Name: "kube-api-past-until", Bug: "a former version counts after it has ended", File: "past.go",
			Old: `f.from <= version && version < f.until`, New: `f.from <= version`, Tests: "TestThePastOfAnObject",
		},
	}}
}

func kubeTransitionGroup() Group {
	return Group{Package: "internal/kube/transition", Mutants: []Mutant{
		{
			Name: "kube-fan-frames", Bug: "each group encodes frames of its own", File: "event.go",
			Old: `	v.frames[k] = frame
`, New: ``, Tests: "TestWatchesShareFrames", Package: "internal/kube/api",
		},
		{
			Name: "kube-fan-deleted", Bug: "an object that stops to match is deleted with its new content", File: "event.go",
			Old: `if typ == object.Deleted && !v.deleted {`, New: `if false {`, Tests: "TestEachWatchGetsItsEventsOnce", Package: "internal/kube/api",
		},
		{
			Name: "kube-transition-enters", Bug: "an object that begins to match is modified", File: "event.go",
			Old: `		return object.Added`, New: `		return object.Modified`, Tests: "TestEachWatchGetsItsEventsOnce", Package: "internal/kube/api",
		},
		{
			Name: "kube-transition-leaves", Bug: "an object that ends to match is not deleted", File: "event.go",
			Old: `	case was:
		return object.Deleted`, New: `	case was && v.deleted:
		return object.Deleted`, Tests: "TestEachWatchGetsItsEventsOnce", Package: "internal/kube/api",
		},
		{
			Name: "kube-transition-stays", Bug: "an object that goes on to match is added", File: "event.go",
			Old: `		return object.Modified`, New: `		return object.Added`, Tests: "TestEachWatchGetsItsEventsOnce", Package: "internal/kube/api",
		},
		{
			Name: "kube-transition-version", Bug: "an object that ends to match is deleted at its own version", File: "event.go",
			Old: `v.Before.WithVersion(int64(v.revision))`, New: `v.Before.Raw`, Tests: "TestEachWatchGetsItsEventsOnce", Package: "internal/kube/api",
		},
		{
			Name: "kube-transition-unseen", Bug: "the delete of an object that did not match is sent", File: "event.go",
			Old: `was := v.Existed && s.Matches(&v.Before)`, New: `was := v.Existed && (v.deleted || s.Matches(&v.Before))`, Tests: "TestEachWatchGetsItsEventsOnce", Package: "internal/kube/api",
		},
		{
			Name: "kube-transition-shared-type", Bug: "a frame is shared by watches to which the event has other types", File: "event.go",
			Old: `k := frameKey{typ, partial}`, New: `k := frameKey{"", partial}`, Tests: "TestEachWatchGetsItsEventsOnce", Package: "internal/kube/api",
		},
	}}
}

func kubeUpstreamGroup() Group {
	return Group{Package: "internal/kube/upstream", Mutants: []Mutant{
		{
			Name: "kube-api-refusal-of-the-node", Bug: "an apiserver's 401 to the node is passed on to its client", File: "upstream.go",
			Old: `return own.StatusCode == http.StatusUnauthorized`, New: `return false`, Tests: "TestARefusalByAnApiserverThatStarts",
		},
		{
			Name: "kube-api-refusal-behind", Bug: "a 401 of the server behind an aggregated API counts as one to the node", File: "upstream.go",
			Old: `return own.StatusCode == http.StatusUnauthorized`, New: `return true`, Tests: "TestARefusalByAnApiserverThatStarts",
		},
		{
			Name: "kube-api-impersonation-of-the-client", Bug: "the refused impersonation of a client counts as one of the node", File: "upstream.go",
			Old: `	if !u.cfg.Impersonate {
		return false
	}
	text`, New: `	text`, Tests: "TestARefusalByAnApiserverThatStarts",
		},
		{
			Name: "kube-api-avoided-for-a-minute", Bug: "an apiserver that answers what is passed on is told as avoided", File: "upstream.go",
			Old: `u.cfg.Source.Answered(server, resp.StatusCode)`, New: ``, Tests: "TestAnAnswerEndsAvoidance",
		},
		{
			Name: "kube-api-refused-impersonation", Bug: "that the node may not impersonate is passed on to its client", File: "upstream.go",
			Old: `return err == nil && refusedImpersonation.MatchString(status.Message)`, New: `return err == nil && status == nil`, Tests: "TestARefusalByAnApiserverThatStarts",
		},
		{
			Name: "kube-api-refusal-of-starting", Bug: "a refusal by an apiserver that starts is passed on", File: "upstream.go",
			Old: `err = u.refusal(r, server, resp)`, New: ``, Tests: "TestARefusalByAnApiserverThatStarts",
		},
		{
			Name: "kube-api-forged-user", Bug: "a client names its own user to the apiserver", File: "upstream.go",
			Old: `		if strings.HasPrefix(name, remote) {`, New: `		if name == "" {`, Tests: "TestTheApiserverSeesTheSender",
		},
		{
			Name: "kube-api-sent-twice", Bug: "a write that may have been carried out is sent to another apiserver", File: "upstream.go",
			Old: `; !again && (!errors.As(err, &dialed) || dialed.Op != "dial") {`, New: `; !again && !errors.As(err, &dialed) && false {`, Tests: "TestAFailureSaysWhetherTheRequestWasSent",
		},
		{
			Name: "kube-api-write-again", Bug: "429 has a client repeat a write that may have been carried out", File: "upstream.go",
			Old: `!reads(r) && !errors.Is(err, errNotSent) {`, New: `false {`, Tests: "TestAFailureSaysWhetherTheRequestWasSent",
		},
		{
			Name: "kube-api-watch-reset", Bug: "a watch is reset when the apiserver that serves it dies", File: "upstream.go",
			Old: `	return n, io.EOF
}`, New: `	return n, err
}`, Tests: "TestAWatchAtAnApiserverThatDies",
		},
		{
			Name: "kube-api-passed-failure", Bug: "a 503 of an apiserver is passed on to an informer", File: "upstream.go",
			Old: `case http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable:`, New: `case http.StatusInternalServerError, http.StatusBadGateway:`, Tests: "TestAFailureOfAListIsTriedAgain",
		},
		{
			Name: "kube-api-failed-write", Bug: "the failure of a write has the client send it again", File: "upstream.go",
			Old: `r.Method == http.MethodGet && ok`, New: `ok`, Tests: "TestAFailureOfAListIsTriedAgain",
		},
		{
			Name: "kube-passed-watch-too-short", Bug: "a watch at an apiserver that dies ends within its first second", File: "upstream.go",
			Old: `wait.Sleep(p.ctx, ShortestWatch-time.Since(p.began))`, New: `wait.Sleep(p.ctx, 0)`, Tests: "TestNoPassedWatchEndsWithinItsFirstSecond",
		},
	}}
}
