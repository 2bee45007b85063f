package mutants

func kubeObjectGroup() Group {
	return Group{Package: "internal/kube/object", Mutants: []Mutant{
		{
			Name: "kube-object-whole-envelope", Bug: "a list has objects with their envelopes", File: "object.go",
			Old: `_, _, o.body, err = openEnvelope(raw)`, New: `_, _, _, err = openEnvelope(raw)`, Tests: "TestAnObjectOfAListIsNotRead",
		},
		{
			Name: "kube-object-escapes", Bug: "an escape in a JSON string is kept as it is written", File: "json.go",
			Old: `if bytes.IndexByte(inner, '\\') < 0 && utf8.Valid(inner) {`, New: `if utf8.Valid(inner) {`, Tests: "TestACustomResourceIsParsedWithoutItsSchema",
		},
		{
			Name: "kube-object-first-version", Bug: "a version is added where there is one", File: "json.go",
			Old: `if from >= 0 {`, New: `if false {`, Tests: "TestACustomResourceIsParsedWithoutItsSchema",
		},
		{
			Name: "kube-object-version-zero", Bug: "version 0 is a version", File: "object.go",
			Old: `err != nil || v <= 0`, New: `err != nil`, Tests: "TestMalformedObjectsAreRefused",
		},
		{
			Name: "kube-object-frame-bound", Bug: "a protobuf frame may have any length", File: "watch.go",
			Old: `int64(size) > int64(f.max)`, New: `false`, Tests: "TestFramesHaveABound",
		},
		{
			Name: "kube-object-line-bound", Bug: "a JSON frame may have any length", File: "watch.go",
			Old: `len(line)+len(part) > f.max`, New: `false`, Tests: "TestFramesHaveABound",
		},
		{
			Name: "kube-object-cut-frame", Bug: "a stream that is cut within a frame has ended well", File: "watch.go",
			Old: `return io.ErrUnexpectedEOF`, New: `return err`, Tests: "TestFramesHaveABound",
		},
		{
			Name: "kube-object-field-of-any-group", Bug: "a custom resource named Pod has the fields of pods", File: "field.go",
			Old: `apiVersion == "v1" && `, New: ``, Tests: "TestFieldsOfBothEncodings",
		},
		{
			Name: "kube-object-typed-items", Bug: "items of a list in JSON have their kind", File: "list.go",
			Old: `if rest, ok := untyped(item); ok {`, New: `if rest, ok := untyped(item); ok && false {`, Tests: "TestItemsOfAListAreAnApiservers",
		},
		{
			Name: "kube-object-untyped-metadata", Bug: "items of a list of metadata have no kind", File: "list.go",
			Old: `if string(kind) == partialKind {`, New: `if len(kind) == 0 {`, Tests: "TestItemsOfAListAreAnApiservers",
		},
		{
			Name: "kube-object-empty-metadata", Bug: "the items of an empty list of pods are null", File: "list.go",
			Old: ` && m.Kind == partialKind+"List"`, New: ``, Tests: "TestEmptyListsAreAnApiservers",
		},
	}}
}

func kubeSelectorGroup() Group {
	return Group{Package: "internal/kube/selector", Mutants: []Mutant{
		{
			Name: "kube-selector-bound", Bug: "a selector may have any length", File: "selector.go",
			Old: `len(labels)+len(fields) > MaxBytes`, New: `false`, Tests: "TestSelectorsAreForAnApiserver",
		},
		{
			Name: "kube-selector-notin-missing", Bug: "an object without the label does not match notin", File: "selector.go",
			Old: `return !has || !r.names`, New: `return has && !r.names`, Tests: "TestSelectors",
		},
		{
			Name: "kube-selector-first-label", Bug: "one label that holds is enough", File: "selector.go",
			Old: `if !s.labels[i].holds(found[i], has[i]) {
			return false`, New: `if s.labels[i].holds(found[i], has[i]) {
			return true`, Tests: "TestSelectors",
		},
	}}
}

func kubeTierGroup() Group {
	return Group{Package: "internal/kube/tier", Mutants: []Mutant{
		{
			Name: "kube-tier-one-owner", Bug: "one node owns all resources", File: "rank.go",
			Old: `_, _ = d.WriteString("\x00" + r.Prefix() + "\x00" + r.Encoding.MediaType())`, New: ``, Tests: "TestTheDeathOfANodeMovesItsResourcesAlone",
		},
		{
			Name: "kube-tier-dead-owner", Bug: "a node that is gone owns resources", File: "rank.go",
			Old: `if alive && !m.Draining`, New: `if (alive || true) && !m.Draining`, Tests: "TestNodesThatMayOwnResources",
		},
		{
			Name: "kube-tier-draining-owner", Bug: "a node that drains owns resources", File: "rank.go",
			Old: `alive && !m.Draining`, New: `alive`, Tests: "TestNodesThatMayOwnResources",
		},
		{
			Name: "kube-tier-other-cluster", Bug: "a node of another cluster owns resources", File: "rank.go",
			Old: ` && m.ClusterID == cluster {`, New: ` {`, Tests: "TestNodesThatMayOwnResources",
		},
		{
			Name: "kube-tier-owner-follows", Bug: "an apiserver is followed last, also by the owner", File: "source.go",
			Old: `if i == own {
			out = append(out, direct)
		} else if`, New: `if i == own {
			defer func() { out = append(out, direct) }()
		} else if`, Tests: "TestCandidatesInTheOrderOfTheNodes",
		},
		{
			Name: "kube-tier-any-source", Bug: "a node follows one that follows another", File: "source.go",
			Old: `peer(node, true)`, New: `peer(node, false)`, Tests: "TestCandidatesInTheOrderOfTheNodes",
		},
		{
			Name: "kube-tier-drained-without-apiserver", Bug: "a node that drains has no apiserver to follow", File: "source.go",
			Old: `if own < 0 {`, New: `if false {`, Tests: "TestCandidatesInTheOrderOfTheNodes",
		},
		{
			Name: "kube-tier-cluster-of-the-dead", Bug: "takes the cluster of nodes that are gone for its own", File: "tier.go",
			Old: ` && (m.State == shard.Alive || m.State == shard.Suspect) && m.ClusterID != ""`, New: ` && m.ClusterID != ""`, Tests: "TestNodesThatMayOwnResources",
		},
	}}
}

func kubeSourceGroup() Group {
	return Group{Package: "internal/kube/source", Mutants: []Mutant{
		{
			Name: "kube-source-event-twice", Bug: "an event that two watches bring is told twice", File: "follow.go",
			Old: `if item.ModRevision() <= f.at {`, New: `if false {`, Tests: "TestAStreamedListIsTheStateAtItsBookmark",
		},
		{
			Name: "kube-source-progress-back", Bug: "an older bookmark takes progress back", File: "follow.go",
			Old: `if err != nil || kv.Revision(version) <= f.at {`, New: `if err != nil {`, Tests: "TestAStreamedListIsTheStateAtItsBookmark",
		},
		{
			Name: "kube-source-any-bookmark", Bug: "any bookmark ends the initial events", File: "load.go",
			Old: `if err != nil || !endsInitialEvents(&o) {`, New: `if err != nil {`, Tests: "TestAStreamedListIsTheStateAtItsBookmark",
		},
		{
			Name: "kube-source-kept-deleted", Bug: "an object that is deleted during a list stays", File: "load.go",
			Old: `if e.Type == object.Deleted {
			delete(state, string(item.Key()))`, New: `if e.Type == object.Deleted {
			state[string(item.Key())] = item`, Tests: "TestAStreamedListIsTheStateAtItsBookmark",
		},
		{
			Name: "kube-source-one-apiserver", Bug: "an apiserver that has forgotten the version is the last one asked", File: "follow.go",
			Old: `		expired = expired || CodeOf(err) == http.StatusGone`, New: `		if expired = expired || CodeOf(err) == http.StatusGone; expired {
			break
		}`, Tests: "TestAnotherApiserverIsAskedFirst",
		},
		{
			Name: "kube-source-list-on-failure", Bug: "any failure of an apiserver makes the source list", File: "follow.go",
			Old: `if expired && req.From > 0 {`, New: `if req.From > 0 {`, Tests: "TestAnotherApiserverIsAskedFirst",
		},
		{
			Name: "kube-source-older-state", Bug: "a state that is older than the held one is taken", File: "load.go",
			Old: `if f.at < f.req.HeldAt {`, New: `if false {`, Tests: "TestALeapTellsWhatWasHeld",
		},
		{
			Name: "kube-source-page-bound", Bug: "a page of a list may have any length", File: "client.go",
			Old: `if len(body) > c.cfg.MaxListBytes {`, New: `if false {`, Tests: "TestPagesHaveABound",
		},
		{
			Name: "kube-source-slash", Bug: "a name with a slash may be the key of another object", File: "resource.go",
			Old: `strings.Contains(name, "/")`, New: `false`, Tests: "TestMalformedEventsEndTheSource",
		},
	}}
}

func kubeConfigGroup() Group {
	return Group{Package: "internal/kube/kubeconfig", Mutants: []Mutant{
		{
			Name: "kube-config-token-once", Bug: "a token in the file wins over the token file, which is renewed", File: "kubeconfig.go",
			Old: `if u.TokenFile == "" {`, New: `if u.Token != "" {`, Tests: "TestCertificatesAndTokensOfFilesAndData",
		},
		{
			Name: "kube-config-unverified", Bug: "an apiserver is trusted although the file says not to verify it", File: "kubeconfig.go",
			Old: `case c.Insecure:`, New: `case false:`, Tests: "TestMistakesAreErrors",
		},
		{
			Name: "kube-config-plug-in", Bug: "a credential plug-in is ignored", File: "kubeconfig.go",
			Old: `case !u.Exec.IsZero(), `, New: `case `, Tests: "TestMistakesAreErrors",
		},
	}}
}

func kubeGuardGroup() Group {
	return Group{Package: "internal/kube/guard", Mutants: []Mutant{
		{
			Name: "kube-guard-remembers-forever", Bug: "an open watch is not reviewed again", File: "again.go",
			Old: `return ok && allowed && now.Sub(at) < g.cfg.Fresh`, New: `return ok && allowed && now.Sub(at) >= 0`, Tests: "TestRemembers",
		},
		{
			Name: "kube-guard-remembers-refusal", Bug: "a watch that is refused goes on", File: "again.go",
			Old: `return ok && allowed && now`, New: `return ok && (allowed || true) && now`, Tests: "TestRemembers",
		},
		{
			Name: "kube-guard-forever", Bug: "an allow counts for as long as no apiserver answers", File: "guard.go",
			Old: `held := known && allowed && time.Since(at) <= g.cfg.Stale`, New: `held := known && allowed`, Tests: "TestTheLastAllowCountsWhileNoApiserverAnswers",
		},
		{
			Name: "kube-guard-token-forever", Bug: "a token counts for as long as no apiserver answers", File: "guard.go",
			Old: `held := known && time.Since(at) <= g.cfg.Stale`, New: `held := known`, Tests: "TestTokens",
		},
		{
			Name: "kube-guard-denial", Bug: "the last denial counts as an allow while no apiserver answers", File: "guard.go",
			Old: `held := known && allowed && time`, New: `held := known && time`, Tests: "TestTheLastAllowCountsWhileNoApiserverAnswers",
		},
		{
			Name: "kube-guard-starting", Bug: "an apiserver that has just started takes rights away", File: "guard.go",
			Old: `	if !held {
		return nil
	}`, New: `	if held || !held {
		return nil
	}`, Tests: "TestAnApiserverThatStartsWithdrawsNothing",
		},
		{
			Name: "kube-guard-rejected", Bug: "a token that was rejected counts again when no apiserver answers", File: "guard.go",
			Old: `			g.identities.drop(k)
`, New: ``, Tests: "TestTokens|TestAnApiserverThatStartsWithdrawsNothing",
		},
		{
			Name: "kube-guard-groups", Bug: "users of other groups share a decision", File: "identity.go",
			Old: `	hashed(h, id.Groups...)
`, New: ``, Tests: "TestAQuestionHasAllThatADecisionDependsOn",
		},
		{
			Name: "kube-guard-expired", Bug: "a certificate counts after its time on a connection that stands", File: "identity.go",
			Old: `if now.After(cert.NotAfter) {`, New: `if cert == nil {`, Tests: "TestCertificates",
		},
		{
			Name: "kube-guard-whole", Bug: "each open watch of an identity is reviewed", File: "guard.go",
			Old: `if whole != *a {`, New: `if false {`, Tests: "TestOneReviewForAllWatchesOfAResource",
		},
		{
			Name: "kube-guard-whole-again", Bug: "a refusal of the whole resource is asked about again at once", File: "guard.go",
			Old: `time.Since(at) >= wholeAgain`, New: `time.Since(at) >= 0`, Tests: "TestOneReviewForAllWatchesOfAResource",
		},
		{
			Name: "kube-guard-whole-refused", Bug: "a watch of a part ends because the whole resource is refused", File: "guard.go",
			Old: `allowed && status == nil {
				return true, nil`, New: `status == nil {
				return allowed, nil`, Tests: "TestOneReviewForAllWatchesOfAResource",
		},
		{
			Name: "kube-guard-bound", Bug: "decisions are held without a bound", File: "memory.go",
			Old: `m.bytes > m.maxBytes; {`, New: `m.bytes < 0; {`, Tests: "TestMemoryHasABound",
		},
	}}
}

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
			Old: `a.f.r.Name == "events" && `, New: `a.f.r.Name == "" && `, Tests: "TestAVersionOfEventsIsNotWaitedFor",
		},
		{
			Name: "kube-events-group", Bug: "a resource of another group is taken for events", File: "read.go",
			Old: ` && (a.f.r.Group == "" || a.f.r.Group == "events.k8s.io")`, New: ``, Tests: "TestAVersionOfEventsIsNotWaitedFor",
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
			Name: "kube-past-of-another-node", Bug: "forgets what a difference of another node replaces", File: "past.go",
			Old: `slices.AppendSeq(held, maps.Values(rest))`, New: `slices.AppendSeq(held[:0], maps.Values(rest))`, Tests: "TestFormerVersionsAreKnownOfWhatAnotherNodeSends",
		},
		{
			Name: "kube-past-whole-state", Bug: "forgets what a whole state of another node replaces", File: "past.go",
			Old: `u.Leap || req.From == 0 && req.Held != nil`, New: `u.Leap`, Tests: "TestFormerVersionsAreKnownOfWhatAnotherNodeSends",
		},
		{
			Name: "kube-past-whole-state-gone", Bug: "forgets what a whole state of another node does not have", File: "past.go",
			Old: `slices.AppendSeq(held, maps.Values(rest))`, New: `slices.AppendSeq(held, maps.Values(rest))[:len(held)]`, Tests: "TestFormerVersionsAreKnownOfWhatAnotherNodeSends",
		},
		{
			Name: "kube-past-first-state", Bug: "takes the first state of all for a gap", File: "past.go",
			Old: `req.From == 0 && req.Held != nil`, New: `req.From == 0`, Tests: "TestFormerVersionsAreKnownOfWhatAnotherNodeSends",
		},
		{
			Name: "kube-past-resumed", Bug: "takes a stream that resumes for a gap", File: "past.go",
			Old: `req.From == 0 && req.Held != nil`, New: `true`, Tests: "TestFormerVersionsAreKnownOfWhatAnotherNodeSends",
		},
		{
			Name: "kube-past-unchanged", Bug: "takes an object that has not changed for a former version", File: "past.go",
			Old: ` && old.ModRevision() != item.ModRevision()`, New: ``, Tests: "TestFormerVersionsAreKnownOfWhatAnotherNodeSends",
		},
		{
			Name: "kube-past-window-deletes", Bug: "forgets the deletes in another node's window", File: "past.go",
			Old: `f.past.Applied(&u.Batch)`, New: ``, Tests: "TestFormerVersionsAreKnownOfWhatAnotherNodeSends",
		},
		{
			Name: "kube-api-subresource", Bug: "a subresource is answered as its object", File: "request.go",
			Old: `return len(parts) <= 2`, New: `return true`, Tests: "TestRequestsForAnApiserver",
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
			Name: "kube-api-named-object", Bug: "a role for one object does not count for a list of it", File: "request.go",
			Old: `	if name, ok := q.selector.Exact("metadata.name"); ok && q.name == "" {`, New: `	if name, ok := q.selector.Exact("metadata.name"); !ok && q.name == "" {`, Tests: "TestAttributesAreAnApiservers",
		},
		{
			Name: "kube-api-unavailable", Bug: "a resource that is not loaded is answered with 503", File: "server.go",
			Old: `Code: http.StatusTooManyRequests, Reason: "TooManyRequests"`, New: `Code: http.StatusServiceUnavailable, Reason: "ServiceUnavailable"`, Tests: "TestAResourceThatCannotBeLoadedIsTriedAgain",
		},
		{
			Name: "kube-api-no-retry-after", Bug: "429 comes without Retry-After", File: "server.go",
			Old: `w.Header().Set("Retry-After", fmt.Sprint(status.RetryAfter))`, New: `w.Header().Del("Retry-After")`, Tests: "TestAResourceThatCannotBeLoadedIsTriedAgain",
		},
		{
			Name: "kube-api-passed-failure", Bug: "a 503 of an apiserver is passed on to an informer", File: "upstream.go",
			Old: `case http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable:`, New: `case http.StatusInternalServerError, http.StatusBadGateway:`, Tests: "TestAFailureOfAListIsTriedAgain",
		},
		{
			Name: "kube-api-failed-write", Bug: "the failure of a write has the client send it again", File: "upstream.go",
			Old: `resp.Request.Method != http.MethodGet || `, New: ``, Tests: "TestAFailureOfAListIsTriedAgain",
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
			Old: `wait.Sleep(ctx, shortestWatch-time.Since(s.began))`, New: `wait.Sleep(ctx, 0)`, Tests: "TestNoWatchEndsWithinItsFirstSecond",
		},
		{
			Name: "kube-passed-watch-too-short", Bug: "a watch at an apiserver that dies ends within its first second", File: "upstream.go",
			Old: `wait.Sleep(p.ctx, shortestWatch-time.Since(p.began))`, New: `wait.Sleep(p.ctx, 0)`, Tests: "TestNoWatchEndsWithinItsFirstSecond",
		},
	}}
}

func kubePastGroup() Group {
	return Group{Package: "internal/kube/past", Mutants: []Mutant{
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

func kubePortGroup() Group {
	return Group{Package: "internal/kube/port", Mutants: []Mutant{
		{
			Name: "kube-watchdog-write", Bug: "a write may take any time", File: "watchdog.go",
			Old: `d.timer.Reset(d.after)`, New: `d.timer.Stop()`, Tests: "TestAWriteThatTakesTooLongEnds",
		},
		{
			Name: "kube-watchdog-handler", Bug: "the writer of a handler that has returned is used", File: "watchdog.go",
			Old: `	d.ended = true`, New: `	d.ended = false`, Tests: "TestAWatchdogThatEndsLeavesTheWriterAlone",
		},
		{
			Name: "kube-socket-message", Bug: "two events are one message", File: "socket.go",
			Old: `for event := range bytes.Lines(b) {`, New: `for event := range bytes.Lines(b) {
		event = b`, Tests: "TestEachEventIsAMessageOfItsOwn",
		},
	}}
}
