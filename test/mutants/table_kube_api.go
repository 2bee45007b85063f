package mutants

func kubeAPIGroup() Group {
	return Group{Package: "internal/kube/api", Mutants: []Mutant{
		{
			Name: "kube-metadata-lists", Bug: "forwards lists of metadata", File: "request.go",
			Old: `partial += "List"`, New: `partial += ""`, Tests: "TestMetadataOfListsHasAFormOfItsOwn",
		},
		{
			Name: "kube-socket-list", Bug: "answers a list over a WebSocket as a watch", File: "request.go",
			Old: `q.socket && !q.watch`, New: `false`, Tests: "TestRequestsForAnApiserver",
		},
		{
			Name: "kube-socket-protobuf", Bug: "sends protobuf with length prefixes over a WebSocket", File: "socket.go",
			Old: `if f.enc != object.JSON {`, New: `if f.enc > object.Protobuf {`, Tests: "TestRequestsForAnApiserver",
		},
		{
			Name: "kube-socket-protocol", Bug: "uses a WebSocket protocol that was not negotiated", File: "socket.go",
			Old: ` && r.Header.Get("Sec-WebSocket-Protocol") == ""`, New: ``, Tests: "TestRequestsForAnApiserver",
		},
		{
			Name: "kube-events-wait", Bug: "a request waits for a version of events", File: "read.go",
			Old: `a.f.r.IsEvents() && `, New: `false && `, Tests: "TestAVersionOfEventsIsNotWaitedFor",
		},
		{
			Name: "kube-stale-refusal", Bug: "a request drops a loaded resource because of a later refusal", File: "server.go",
			Old: `!f.loaded() && !source.MayFollow(err)`, New: `!source.MayFollow(err)`, Tests: "TestAResourceThatIsNotServedAnyMoreIsPassedOn",
		},
		{
			Name: "kube-refusal-forgotten", Bug: "each request starts a new watch of a refused resource", File: "feed.go",
			Old: ` || s.refusedLocked(r)`, New: ``, Tests: "TestARefusedResourceIsNotTriedByEachRequest",
		},
		{
			Name: "kube-refusals-unbounded", Bug: "clients make a node store any number of refusals", File: "feed.go",
			Old: ` || len(s.refused) >= s.cfg.MaxFeeds`, New: ``, Tests: "TestRefusalsAreForgotten",
		},
		{
			Name: "kube-dropped-feed", Bug: "a request waits for a resource that another request has dropped", File: "server.go",
			Old: `case <-f.ended:`, New: `case <-make(chan struct{}):`, Tests: "TestRequestsOfADroppedFeedDoNotWait",
		},
		{
			Name: "kube-fan-index-before", Bug: "watches of the node that a pod leaves miss the event", File: "fan.go",
			Old: `append(slices.Clip(found), by.groups[before]...)`, New: `slices.Clip(found)`, Tests: "TestEachWatchGetsItsEventsOnce",
		},
		{
			Name: "kube-fan-index-all", Bug: "an event visits the watches of all nodes", File: "fan.go",
			Old: `	path, value := g.selector.Demanded()
`, New: `	path, value := "", ""
`, Tests: "TestAnEventConcernsTheWatchesOfItsNode",
		},
		{
			Name: "kube-fan-namespace", Bug: "a watch found by a field gets events of other namespaces", File: "fan.go",
			Old: `g.key.namespace == "" || g.key.namespace == namespace`, New: `true`, Tests: "TestEachWatchGetsItsEventsOnce",
		},
		{
			Name: "kube-fan-plain-namespace", Bug: "a watch of a namespace gets no events", File: "fan.go",
			Old: `groups = append(groups, x.plain[namespace]...)`, New: `groups = append(groups, x.plain[""][:0]...)`, Tests: "TestEachWatchGetsItsEventsOnce",
		},
		{
			Name: "kube-fan-twice", Bug: "a watch gets events again that it has read before joining", File: "fan.go",
			Old: `if revision <= m.joined {`, New: `if revision < m.joined {`, Tests: "TestAnEventComesWhileAWatchJoins",
		},
		{
			Name: "kube-fan-lost", Bug: "a slow watch loses an event", File: "fan.go",
			Old: `m.left, m.last = true, revision-1`, New: `m.left, m.last = true, revision`, Tests: "TestEachWatchGetsItsEventsOnce",
		},
		{
			Name: "kube-fan-bound", Bug: "queues frames for a watch without a bound", File: "fan.go",
			Old: `m.bytes+len(frame) > most`, New: `m.bytes < 0`, Tests: "TestAWatchThatTakesTooLittleLeaves",
		},
		{
			Name: "kube-fan-joins-early", Bug: "a watch joins without the last earlier events", File: "fan.go",
			Old: `	last, err := rest()`, New: `	last, err := x.at, error(nil)`, Tests: "TestAnEventComesWhileAWatchJoins",
		},
		{
			Name: "kube-fan-end", Bug: "a watch waits for an ended fan", File: "fan.go",
			Old: `	if x.watcher != nil {
		x.releaseLocked()
	}
}`, New: `}`, Tests: "TestWatchesEndWithTheirFeed",
		},
		{
			Name: "kube-fan-watcher", Bug: "a fan without watches continues to read", File: "fan.go",
			Old: `len(x.all) == 0 && x.watcher != nil`, New: `false`, Tests: "TestEachWatchGetsItsEventsOnce",
		},
		{
			Name: "kube-watch-not-given-back", Bug: "counts a resource as used after its watches have ended", File: "watch.go",
			Old: `	s.f.release()
`, New: ``, Tests: "TestServedWatchesEnd",
		},
		{
			Name: "kube-watch-early-bookmark", Bug: "sends a bookmark before events up to its version", File: "deliver.go",
			Old: `s.bookmark(max(at, s.sent), false)`, New: `s.bookmark(max(at, s.f.fan.progress()), false)`, Tests: "TestABookmarkPassesNoConcurrentEvent",
		},
		{
			Name: "kube-watch-passes-event", Bug: "the last bookmark of a watch is later than an unsent event", File: "watch.go",
			Old: `	if !alive {
		s.close()
	}`, New: ``, Tests: "TestNoBookmarkPassesAnEventThatWasNotSent",
		},
		{
			Name: "kube-large-unbounded", Bug: "large events of unread watches take no bytes of the budget", File: "watch.go",
			Old: `budget.Lists, 2*int64(bytes))`, New: `budget.Lists, 0)`, Tests: "TestALargeEventTakesMemoryFromTheBudget",
		},
		{
			Name: "kube-passed-unbounded", Bug: "forwarded requests take no bytes of the budget", File: "server.go",
			Old: `clientOf(r), use, n)`, New: `clientOf(r), use, 0*n)`, Tests: "TestAPassedRequestTakesMemoryFromTheBudget",
		},
		{
			Name: "kube-difference-at-once", Bug: "encodes a complete difference before it writes", File: "watch.go",
			Old: `len(s.out) > 0 && len(s.out)+bytes > ownBytes && !s.flush()`, New: `false`, Tests: "TestAWatchBelowTheWindowGetsTheDifference",
		},
		{
			Name: "kube-api-withdrawn-resource", Bug: "a resource that is no longer served stays frozen", File: "feed.go",
			Old: `errors.Is(err, source.ErrWithdrawn)`, New: `false && errors.Is(err, source.ErrWithdrawn)`, Tests: "TestAResourceThatIsNotServedAnyMoreIsPassedOn",
		},
		{
			Name: "kube-api-withdrawn-preload", Bug: "a preloaded resource that is no longer served makes the node unready", File: "feed.go",
			Old: `return s.over[r]`, New: `return false`, Tests: "TestAResourceThatIsNotServedAnyMoreIsPassedOn",
		},
		{
			Name: "kube-difference-off", Bug: "--kube-delta off sends differences", File: "difference.go",
			Old: `if s.s.cfg.NoDelta {`, New: `if false {`, Tests: "TestWithoutDifferencesAWatchBelowTheWindowGets410",
		},
		{
			Name: "kube-difference-order", Bug: "sends deletes of a difference last", File: "difference.go",
			Old: `append(d.rest, after...)`, New: `append(after, d.rest...)`, Tests: "TestAWatchBelowTheWindowGetsTheDifference",
		},
		{
			Name: "kube-difference-versions", Bug: "sends changed objects in any order", File: "difference.go",
			Old: `return int(a.ModRevision() - b.ModRevision())`, New: `return int(b.ModRevision() - a.ModRevision())`, Tests: "TestAWatchBelowTheWindowGetsTheDifference",
		},
		{
			Name: "kube-difference-delete-version", Bug: "sends a delete of a difference with the version of its end", File: "difference.go",
			Old: `o.WithVersion(int64(d.since))`, New: `o.WithVersion(int64(d.upTo))`, Tests: "TestAWatchBelowTheWindowGetsTheDifference",
		},
		{
			Name: "kube-difference-selector", Bug: "sends a difference although the formerly matching objects are unknown", File: "difference.go",
			Old: `if !s.q.selector.Everything() {`, New: `if false {`, Tests: "TestAnUnknownDifferenceIsForAnApiserver",
		},
		{
			Name: "kube-difference-unbounded", Bug: "differences take no bytes of their client's part", File: "difference.go",
			Old: `int64(len(changes.Changed)+len(changes.Deleted))*changeBytes`, New: `0`, Tests: "TestADifferenceTakesMemoryOfItsClient",
		},
		{
			Name: "kube-difference-not-given-back", Bug: "keeps the bytes of a client that leaves during a difference", File: "watch.go",
			Old: `		s.behind.held.Release()`, New: ``, Tests: "TestADifferenceTakesMemoryOfItsClient",
		},
		{
			Name: "kube-difference-leak", Bug: "keeps the bytes of an unknown difference", File: "difference.go",
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
			Name: "kube-api-subresource", Bug: "answers a subresource with its object", File: "../source/resource.go",
			Old: `return r, namespace, name, len(parts) <= 2`, New: `return r, namespace, name, true`, Tests: "TestRequestsForAnApiserver",
		},
		{
			Name: "kube-api-unknown-parameter", Bug: "ignores an unknown parameter", File: "request.go",
			Old: `	return false
}

func (q *request) parseVersion`, New: `	return true
}

func (q *request) parseVersion`, Tests: "TestRequestsForAnApiserver",
		},
		{
			Name: "kube-api-table", Bug: "sends objects to a client that prefers a table", File: "request.go",
			Old: `		if !ok {
			return forms
		}`, New: `		if !ok {
			continue
		}`, Tests: "TestTheFirstAcceptedFormsCount",
		},
		{
			Name: "kube-api-foreign-continue", Bug: "accepts any token to continue a list", File: "request.go",
			Old: `return !q.watch && text == "" && match == "" && q.parseContinue(token)`, New: `return true`, Tests: "TestRequestsForAnApiserver",
		},
		{
			Name: "kube-api-restored", Bug: "serves a cluster's old data after its etcd was restored", File: "read.go",
			Old: `case now < before:`, New: `case false:`, Tests: "TestARestoredClusterIsNoticed",
		},
		{
			Name: "kube-api-next-form", Bug: "a forwarded request loads its resource in each encoding", File: "server.go",
			Old: `if !errors.Is(err, errNotFollowed) {`, New: `if errors.Is(err, context.Canceled) {`, Tests: "TestAPassedRequestLoadsNoOtherEncoding",
		},
		{
			Name: "kube-api-failure-of-node", Bug: "sends the client an apiserver's answer to the node's own request", File: "read.go",
			Old: `		return 0, object.Later(err)`, New: `		return 0, err`, Tests: "TestAFailureOfTheNodesOwnRequestIsNotTheClients",
		},
		{
			Name: "kube-api-selector-of-get", Bug: "checks a get with a selector, which it does not apply", File: "request.go",
			Old: ` || q.name != "" && q.labels+q.fields != "" {`, New: ` {`, Tests: "TestRequestsForAnApiserver",
		},
		{
			Name: "kube-api-newest-object", Bug: "a get of the newest object waits for a resource without it", File: "request.go",
			Old: ` && (q.name == "" || !q.unset)`, New: ``, Tests: "TestAGetWithoutAVersionIsPassedOn",
		},
		{
			Name: "kube-api-nodes-of-namespace", Bug: "returns an empty list for the nodes of a namespace", File: "server.go",
			Old: `case q.namespace != "" && f.clusterScoped(ctx):`, New: `case false:`, Tests: "TestNodesOfANamespaceArePassedOn",
		},
		{
			Name: "kube-api-slow-state", Bug: "keeps the state of a client that reads the initial events slowly", File: "watch.go",
			Old: `!s.encodeEvent(object.Added, o) || port.TooSlow(began, bytes, writeTime) {`, New: `!s.encodeEvent(object.Added, o) || false && port.TooSlow(began, bytes, writeTime) {`, Tests: "TestAStateIsNotHeldForASlowClient",
		},
		{
			Name: "kube-api-slow-difference", Bug: "keeps the objects of a client that reads a difference slowly", File: "difference.go",
			Old: `!s.encodeEvent(c.typ, &o) || port.TooSlow(began, bytes, writeTime) {`, New: `!s.encodeEvent(c.typ, &o) || false && port.TooSlow(began, bytes, writeTime) {`, Tests: "TestAStateIsNotHeldForASlowClient",
		},
		{
			Name: "kube-api-named-object", Bug: "ignores a role for one object in a list of it", File: "request.go",
			Old: `	if name, ok := q.selector.Exact("metadata.name"); ok && q.name == "" {`, New: `	if name, ok := q.selector.Exact("metadata.name"); !ok && q.name == "" {`, Tests: "TestAttributesAreAnApiservers",
		},
		{
			Name: "kube-api-unavailable", Bug: "answers a resource that is not loaded with 503", File: "../object/status.go",
			Old: `Code: http.StatusTooManyRequests, Reason: "TooManyRequests"`, New: `Code: http.StatusServiceUnavailable, Reason: "ServiceUnavailable"`, Tests: "TestAResourceThatCannotBeLoadedIsTriedAgain",
		},
		{
			Name: "kube-api-no-retry-after", Bug: "sends 429 without Retry-After", File: "server.go",
			Old: `w.Header().Set("Retry-After", fmt.Sprint(status.RetryAfter))`, New: `w.Header().Del("Retry-After")`, Tests: "TestAResourceThatCannotBeLoadedIsTriedAgain",
		},
		{
			Name: "kube-api-secrets", Bug: "keeps Secrets in memory", File: "server.go",
			Old: `return s.cfg.Secrets || r.Group`, New: `return s.cfg.Secrets || r.Version == "v1" || r.Group`, Tests: "TestSecretsArePassedOn",
		},
		{
			Name: "kube-api-secrets-of-nodes", Bug: "another node makes this one keep Secrets", File: "copy.go",
			Old: `if follow && s.mayHold(r) {`, New: `if follow {`, Tests: "TestSecretsArePassedOn",
		},
		{
			Name: "kube-api-secrets-kept", Bug: "keeps Secrets that another node uses", File: "copy.go",
			Old: `	if s.mayHold(r) {`, New: `	if r.Name != "" {`, Tests: "TestSecretsArePassedOn",
		},
		{
			Name: "kube-api-feeds", Bug: "each request follows its resource separately", File: "feed.go",
			Old: `	s.all[r] = f
`, New: ``, Tests: "TestOneFeedForEachResourceAndEncoding",
		},
		{
			Name: "kube-api-not-there-yet", Bug: "the error for a future version has no cause", File: "server.go",
			Old: `, Cause: "ResourceVersionTooLarge"`, New: ``, Tests: "TestAVersionThatIsNotReachedYet",
		},
		{
			Name: "kube-api-not-there-code", Bug: "reports a future version as too old", File: "server.go",
			Old: `Code: http.StatusGatewayTimeout`, New: `Code: http.StatusGone`, Tests: "TestAVersionThatIsNotReachedYet",
		},
		{
			Name: "kube-api-expired-token", Bug: "the 410 for a chunk has no token for the rest", File: "read.go",
			Old: `continueAt(-1, []byte(a.q.next))`, New: `""`, Tests: "TestAnExpiredListContinuesAtTheNewestVersion",
		},
		{
			Name: "kube-api-expired-first", Bug: "the rest of an expired list starts at its first object", File: "read.go",
			Old: `continueAt(-1, []byte(a.q.next))`, New: `continueAt(-1, nil)`, Tests: "TestAnExpiredListContinuesAtTheNewestVersion",
		},
		{
			Name: "kube-api-expired-version", Bug: "requests the rest of an expired list at version 0", File: "read.go",
			Old: `q.chunked, q.unset = p.Version > 0, p.Version < 0`, New: `q.chunked, q.unset = p.Version > 0, false`, Tests: "TestAnExpiredListContinuesAtTheNewestVersion",
		},
		{
			Name: "kube-watch-last-bookmark", Bug: "ends a watch without a bookmark", File: "watch.go",
			Old: `	s.progress()
	if !s.flush() {`, New: `	if !s.pending() || !s.flush() {`, Tests: "TestTheLastFrameOfAWatchIsABookmark",
		},
		{
			Name: "kube-watch-too-short", Bug: "ends a watch within its first second", File: "watch.go",
			Old: `wait.Sleep(ctx, upstream.ShortestWatch-time.Since(s.began))`, New: `wait.Sleep(ctx, 0*upstream.ShortestWatch)`, Tests: "TestNoWatchEndsWithinItsFirstSecond",
		},
		{
			Name: "kube-report-failing", Bug: "reports a resource that is not followed as ready", File: "report.go",
			Old: `out.State, out.Error = report.Failing,`, New: `out.State, out.Error = report.Ready,`, Tests: "TestTheReportOfANode",
		},
		{
			Name: "kube-report-withdrawn", Bug: "reports a withdrawn preloaded resource as loading", File: "report.go",
			Old: `State: report.Withdrawn})`, New: `State: report.Loading})`, Tests: "TestAResourceThatIsNotServedAnyMoreIsPassedOn",
		},
		{
			Name: "kube-page-unbounded", Bug: "creates any number of reports at a time", File: "../page/page.go", Package: "internal/kube/page",
			Old: `			defer func() { <-p.readers }()
`, New: `			<-p.readers
`, Tests: "TestReportsAreBounded",
		},
		{
			Name: "kube-page-always", Bug: "serves the page although it is off", File: "../page/page.go", Package: "internal/kube/page",
			Old: `	if pages {`, New: `	if pages || true {`, Tests: "TestThePageForPeople",
		},
		{
			Name: "kube-page-calm", Bug: "the page does not show that a resource gets no changes", File: "../page/view.go", Package: "internal/kube/page",
			Old: `case x.State == report.Failing:`, New: `case x.State == report.Failing && x.Bytes < 0:`, Tests: "TestTheVerdict",
		},
		{
			Name: "kube-page-green", Bug: "shows the page of a node that is not ready in amber", File: "../page/view.go", Package: "internal/kube/page",
			Old: `if v.Level != "bad" {`, New: `if true {`, Tests: "TestTheVerdict",
		},
		{
			Name: "kube-report-ended", Bug: "reports a resource as failing between two watches", File: "report.go",
			Old: `case source.Ended(failure):`, New: `case source.Ended(failure) && false:`, Tests: "TestTheReportOfANode",
		},
		{
			Name: "kube-report-watches", Bug: "does not count the watches of a resource", File: "deliver.go",
			Old: `	s.f.watches.Add(1)
`, New: ``, Tests: "TestTheReportOfANode",
		},
		{
			Name: "kube-report-from", Bug: "reports a resource as followed at a failed apiserver", File: "../source/follow.go",
			Old: `		s.server.CompareAndSwap(&server, nil) // another call may follow
`, New: ``, Tests: "TestTheReportOfANode",
		},
		{
			Name: "kube-metrics-names", Bug: "puts the name of any requested resource into the metrics", File: "metrics.go",
			Old: `if !f.loaded() && !slices.Contains(s.cfg.Preload, f.r) {`, New: `if !f.loaded() && slices.Contains(s.cfg.Preload, f.r) {`, Tests: "TestTheReportOfANode",
		},
	}}
}

func kubePastGroup() Group {
	return Group{Package: "internal/kube/past", Mutants: []Mutant{
		{
			Name: "kube-past-of-another-node", Bug: "forgets the versions that a difference of another node replaces", File: "observe.go",
			Old: `slices.AppendSeq(held, maps.Values(rest))`, New: `slices.AppendSeq(held[:0], maps.Values(rest))`, Tests: "TestFormerVersionsOfObjectsFromAnotherNodeAreKept",
		},
		{
			Name: "kube-past-whole-state", Bug: "forgets the versions that another node's whole state replaces", File: "observe.go",
			Old: `u.Leap || req.From == 0 && req.Held != nil`, New: `u.Leap`, Tests: "TestFormerVersionsOfObjectsFromAnotherNodeAreKept",
		},
		{
			Name: "kube-past-whole-state-gone", Bug: "forgets the objects missing from another node's whole state", File: "observe.go",
			Old: `slices.AppendSeq(held, maps.Values(rest))`, New: `slices.AppendSeq(held, maps.Values(rest))[:len(held)]`, Tests: "TestFormerVersionsOfObjectsFromAnotherNodeAreKept",
		},
		{
			Name: "kube-past-first-state", Bug: "treats the very first state as a gap", File: "observe.go",
			Old: `req.From == 0 && req.Held != nil`, New: `req.From == 0`, Tests: "TestFormerVersionsOfObjectsFromAnotherNodeAreKept",
		},
		{
			Name: "kube-past-resumed", Bug: "treats a resumed stream as a gap", File: "observe.go",
			Old: `req.From == 0 && req.Held != nil`, New: `true`, Tests: "TestFormerVersionsOfObjectsFromAnotherNodeAreKept",
		},
		{
			Name: "kube-past-unchanged", Bug: "treats an unchanged object as a former version", File: "observe.go",
			Old: ` && old.ModRevision() != item.ModRevision()`, New: ``, Tests: "TestFormerVersionsOfObjectsFromAnotherNodeAreKept",
		},
		{
			Name: "kube-past-window-deletes", Bug: "forgets the deletes in another node's window", File: "observe.go",
			Old: `p.Applied(&u.Batch)`, New: ``, Tests: "TestFormerVersionsOfObjectsFromAnotherNodeAreKept",
		},
		{
			Name: "kube-api-past-bound", Bug: "keeps former versions without a bound", File: "past.go",
			Old: `for p.bytes > p.maxBytes {`, New: `for false {`, Tests: "TestThePastHasABound",
		},
		{
			Name: "kube-api-gap-forever", Bug: "treats a gap as fully known although a version of it was dropped", File: "past.go",
			Old: `if first <= p.first {`, New: `if first > p.first {`, Tests: "TestThePastHasABound",
		},
		{
			Name: "kube-api-gaps-bound", Bug: "remembers gaps without a bound", File: "past.go",
			Old: `if len(p.gaps) == maxGaps {`, New: `if false {`, Tests: "TestThePastHasABound",
		},
		{
			Name: "kube-api-past-after-gap", Bug: "treats an object that changes after a gap as absent at the start of the gap", File: "past.go",
			Old: `len(p.gaps) > 0 && e.Prev != nil && e.Prev.ModRevision() <= p.newestGap`, New: `false`, Tests: "TestThePastOfAnObjectThatChangesAfterAGap",
		},
		{
			Name: "kube-api-past-after-gap-all", Bug: "keeps all replaced versions after a gap", File: "past.go",
			Old: `e.Prev.ModRevision() <= p.newestGap`, New: `e.Prev.ModRevision() > 0`, Tests: "TestThePastOfAnObjectThatChangesAfterAGap",
		},
		{
			Name: "kube-api-past-until", Bug: "uses a former version after its end", File: "past.go",
			Old: `f.from <= version && version < f.until`, New: `f.from <= version`, Tests: "TestThePastOfAnObject",
		},
	}}
}

func kubeTransitionGroup() Group {
	return Group{Package: "internal/kube/transition", Mutants: []Mutant{
		{
			Name: "kube-fan-frames", Bug: "each group encodes its own frames", File: "event.go",
			Old: `	v.frames[k] = frame
`, New: ``, Tests: "TestWatchesShareFrames", Package: "internal/kube/api",
		},
		{
			Name: "kube-fan-deleted", Bug: "deletes an object that no longer matches with its new content", File: "event.go",
			Old: `if typ == object.Deleted && !v.deleted {`, New: `if false {`, Tests: "TestEachWatchGetsItsEventsOnce", Package: "internal/kube/api",
		},
		{
			Name: "kube-transition-enters", Bug: "sends MODIFIED for an object that begins to match", File: "event.go",
			Old: `		return object.Added`, New: `		return object.Modified`, Tests: "TestEachWatchGetsItsEventsOnce", Package: "internal/kube/api",
		},
		{
			Name: "kube-transition-leaves", Bug: "does not delete an object that no longer matches", File: "event.go",
			Old: `	case was:
		return object.Deleted`, New: `	case was && v.deleted:
		return object.Deleted`, Tests: "TestEachWatchGetsItsEventsOnce", Package: "internal/kube/api",
		},
		{
			Name: "kube-transition-stays", Bug: "sends ADDED for an object that still matches", File: "event.go",
			Old: `		return object.Modified`, New: `		return object.Added`, Tests: "TestEachWatchGetsItsEventsOnce", Package: "internal/kube/api",
		},
		{
			Name: "kube-transition-version", Bug: "deletes an object that no longer matches at its own version", File: "event.go",
			Old: `v.Before.WithVersion(int64(v.revision))`, New: `v.Before.Raw`, Tests: "TestEachWatchGetsItsEventsOnce", Package: "internal/kube/api",
		},
		{
			Name: "kube-transition-unseen", Bug: "sends the delete of an object that did not match", File: "event.go",
			Old: `was := v.Existed && s.Matches(&v.Before)`, New: `was := v.Existed && (v.deleted || s.Matches(&v.Before))`, Tests: "TestEachWatchGetsItsEventsOnce", Package: "internal/kube/api",
		},
		{
			Name: "kube-transition-shared-type", Bug: "watches share a frame although the event has different types for them", File: "event.go",
			Old: `k := frameKey{typ, partial}`, New: `k := frameKey{"", partial}`, Tests: "TestEachWatchGetsItsEventsOnce", Package: "internal/kube/api",
		},
	}}
}

func kubeUpstreamGroup() Group {
	return Group{Package: "internal/kube/upstream", Mutants: []Mutant{
		{
			Name: "kube-api-refusal-of-the-node", Bug: "forwards an apiserver's 401 for the node to the client", File: "upstream.go",
			Old: `return own.StatusCode == http.StatusUnauthorized`, New: `return false`, Tests: "TestARefusalByAnApiserverThatStarts",
		},
		{
			Name: "kube-api-refusal-behind", Bug: "treats a 401 of the server behind an aggregated API as one for the node", File: "upstream.go",
			Old: `return own.StatusCode == http.StatusUnauthorized`, New: `return true`, Tests: "TestARefusalByAnApiserverThatStarts",
		},
		{
			Name: "kube-api-impersonation-of-the-client", Bug: "treats a client's refused impersonation as the node's", File: "upstream.go",
			Old: `	if !u.cfg.Impersonate {
		return false
	}
	text`, New: `	text`, Tests: "TestARefusalByAnApiserverThatStarts",
		},
		{
			Name: "kube-api-avoided-for-a-minute", Bug: "reports an apiserver that answers forwarded requests as avoided", File: "upstream.go",
			Old: `u.cfg.Source.Answered(server, resp.StatusCode)`, New: ``, Tests: "TestAnAnswerEndsAvoidance",
		},
		{
			Name: "kube-api-refused-impersonation", Bug: "forwards the error that the node may not impersonate", File: "upstream.go",
			Old: `return err == nil && refusedImpersonation.MatchString(status.Message)`, New: `return err == nil && status == nil`, Tests: "TestARefusalByAnApiserverThatStarts",
		},
		{
			Name: "kube-api-refusal-of-starting", Bug: "forwards a refusal by a starting apiserver", File: "upstream.go",
			Old: `err = u.refusal(r, server, resp)`, New: ``, Tests: "TestARefusalByAnApiserverThatStarts",
		},
		{
			Name: "kube-api-forged-user", Bug: "lets a client name its own user to the apiserver", File: "upstream.go",
			Old: `		if strings.HasPrefix(name, remote) {`, New: `		if name == "" {`, Tests: "TestTheApiserverSeesTheSender",
		},
		{
			Name: "kube-api-sent-twice", Bug: "sends a write that may have succeeded to another apiserver", File: "upstream.go",
			Old: `; !again && (!errors.As(err, &dialed) || dialed.Op != "dial") {`, New: `; !again && !errors.As(err, &dialed) && false {`, Tests: "TestAFailureReportsWhetherTheRequestWasSent",
		},
		{
			Name: "kube-api-write-again", Bug: "429 makes a client repeat a write that may have succeeded", File: "upstream.go",
			Old: `!reads(r) && !errors.Is(err, errNotSent) {`, New: `false {`, Tests: "TestAFailureReportsWhetherTheRequestWasSent",
		},
		{
			Name: "kube-api-watch-reset", Bug: "resets a watch when its apiserver dies", File: "upstream.go",
			Old: `	return n, io.EOF
}`, New: `	return n, err
}`, Tests: "TestAWatchAtAnApiserverThatDies",
		},
		{
			Name: "kube-api-passed-failure", Bug: "forwards an apiserver's 503 to an informer", File: "upstream.go",
			Old: `case http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable:`, New: `case http.StatusInternalServerError, http.StatusBadGateway:`, Tests: "TestAFailureOfAListIsTriedAgain",
		},
		{
			Name: "kube-api-failed-write", Bug: "the error for a failed write makes the client send it again", File: "upstream.go",
			Old: `r.Method == http.MethodGet && ok`, New: `ok`, Tests: "TestAFailureOfAListIsTriedAgain",
		},
		{
			Name: "kube-passed-watch-too-short", Bug: "ends a watch on a dying apiserver within its first second", File: "upstream.go",
			Old: `wait.Sleep(p.ctx, ShortestWatch-time.Since(p.began))`, New: `wait.Sleep(p.ctx, 0)`, Tests: "TestNoPassedWatchEndsWithinItsFirstSecond",
		},
	}}
}
