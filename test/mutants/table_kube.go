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
			Old: `scratch, end = append(scratch, partialHead...), "}"`, New: `scratch, end = append(scratch, "{\"metadata\":"...), "}"`, Tests: "TestAListOfMetadataCopiesNone",
		},
		{
			Name: "kube-object-empty-metadata", Bug: "the items of an empty list of pods are null", File: "list.go",
			Old: `len(items) == 0 && m.partial()`, New: `len(items) == 0`, Tests: "TestEmptyListsAreAnApiservers",
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
			Name: "kube-source-restored", Bug: "a watch goes on at an etcd that was restored", File: "follow.go",
			Old: `case now < f.at:`, New: `case false:`, Tests: "TestAWatchOfARestoredEtcdDoesNotBegin",
		},
		{
			Name: "kube-source-refused-not-there", Bug: "a resource that is defined later counts as refused", File: "follow.go",
			Old: ` && (resumes(f.req) || code != http.StatusNotFound)`, New: ``, Tests: "TestWhatARefusalIs",
		},
		{
			Name: "kube-source-whole-time", Bug: "an apiserver that hangs takes all of the time of a review", File: "client.go",
			Old: `time.Until(end)/time.Duration(min(parts, 2))`, New: `time.Until(end)`, Tests: "TestAnApiserverThatHangsLeavesTimeForTheNext",
		},
		{
			Name: "kube-source-refused-node-decides", Bug: "an apiserver that does not know the node decides a review", File: "client.go",
			Old: `	case http.StatusUnauthorized, http.StatusForbidden: // this node's credentials, or its rights`, New: `	case http.StatusPaymentRequired:`, Tests: "TestAnApiserverThatRefusesTheNodeDoesNotDecide",
		},
		{
			Name: "kube-source-asks-the-starting", Bug: "an apiserver that is not ready is asked again and again", File: "client.go",
			Old: `if err != nil && !errors.Is(ctx.Err(), context.Canceled) {`, New: `if false {`, Tests: "TestAnApiserverThatIsNotReadyIsAvoided",
		},
		{
			Name: "kube-source-event-twice", Bug: "an event that two watches bring is told twice", File: "follow.go",
			Old: `case item.ModRevision() <= f.at:`, New: `case false:`, Tests: "TestAStreamedListIsTheStateAtItsBookmark",
		},
		{
			Name: "kube-source-probe-fails", Bug: "a probe that fails ends the watch", File: "probe.go",
			Old: `if CodeOf(err) != 0 && !MayFollow(err) || errors`, New: `if CodeOf(err) != 0 || errors`, Tests: "TestAWatchGoesOnWhileProbesFail",
		},
		{
			Name: "kube-source-probe-refused", Bug: "a resource that is withdrawn is followed for ever", File: "probe.go",
			Old: `if CodeOf(err) != 0 && !MayFollow(err) || errors`, New: `if errors`, Tests: "TestARefusedProbeEndsTheWatch",
		},
		{
			Name: "kube-source-stays", Bug: "the watch of an apiserver that has lost etcd is kept, though another one answers", File: "probe.go",
			Old: `if last && f.othersAnswer(ctx) {`, New: `if last && f == nil {`, Tests: "TestAnApiserverWithoutEtcdIsLeft",
		},
		{
			Name: "kube-source-moves", Bug: "a watch ends for another apiserver that does not answer either", File: "probe.go",
			Old: `if last && f.othersAnswer(ctx) {`, New: `if last {`, Tests: "TestAnApiserverWithoutEtcdIsLeft",
		},
		{
			Name: "kube-source-probe-held", Bug: "the next probe begins when an apiserver closes the last one", File: "probe.go",
			Old: `			p.ended(true)
			return err`, New: `			return err`, Tests: "TestAReaderDoesNotWaitForTheEndOfAProbe",
		},
		{
			Name: "kube-source-one-of-a-version", Bug: "of the Events that expire in one version the first is deleted alone", File: "follow.go",
			Old: `case event.Type == kv.Delete && f.s.r.IsEvents():`, New: `case false:`, Tests: "TestEventsThatExpireTogetherAreAllDeleted",
		},
		{
			Name: "kube-source-malformed", Bug: "requests for a resource whose versions are not numbers fail for ever", File: "client.go",
			Old: `return (code < 400 || code >= 500) && !errors.Is(err, object.ErrMalformed)`, New: `return code < 400 || code >= 500`,
			Tests: "TestMalformedEventsEndTheSource",
		},
		{
			Name: "kube-events-group", Bug: "a resource of another group is taken for events", File: "resource.go",
			Old: ` && (r.Group == "" || r.Group == "events.k8s.io")`, New: ``, Tests: "TestAVersionOfEventsIsNotWaitedFor", Package: "internal/kube/api",
		},
		{
			Name: "kube-source-refusal-avoided", Bug: "an apiserver that refuses a request is reported as failed", File: "client.go",
			Old: `code >= 400 && code < 500 || errors.Is(err, object.ErrMalformed)`, New: `code == 404`, Tests: "TestAvoidedServers",
		},
		{
			Name: "kube-source-avoided-for-ever", Bug: "an apiserver that has failed once is reported as avoided for ever", File: "client.go",
			Old: `f != nil && time.Since(f.at) < avoidedFor`, New: `f != nil && avoidedFor > 0`, Tests: "TestAvoidedServers",
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
			Name: "kube-config-old-connections", Bug: "requests show a certificate that was renewed, on the connections that are open", File: "kubeconfig.go",
			Old: `if bytes.Equal(leaf, t.leaf) {`, New: `if true {`, Tests: "TestFilesAreReadAgain",
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
			Name: "kube-guard-one-queue", Bug: "a client waits for the reviews of another one's tokens", File: "guard.go",
			Old: `client := address(r)`, New: `client := address(r)[:0]`, Tests: "TestQuestionsTakeTurns",
		},
		{
			Name: "kube-guard-late", Bug: "a review that did not get its turn in time counts as one that no apiserver answers", File: "guard.go",
			Old: `	return nil, errBusy
`, New: `	return nil, errLate
`, Tests: "TestNoAllowCountsBecauseTooManyReviewsWait",
		},
		{
			Name: "kube-guard-many-clients", Bug: "clients with one review each lose their watches when many come at a time", File: "guard.go",
			Old: `case others < fewWaiting:`, New: `case others < 0:`, Tests: "TestManyClientsKeepTheirAllows",
		},
		{
			Name: "kube-guard-hang", Bug: "no allow counts for those who wait while all apiservers hang", File: "guard.go",
			Old: `case g.answered.Load() < began:`, New: `case began < 0:`, Tests: "TestNoAllowCountsBecauseTooManyReviewsWait",
		},
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
			Old: `if err := g.cfg.Apiservers.Ready(ctx, server); err != nil {`, New: `if err := g.cfg.Apiservers.Ready(ctx, server); err != nil && ctx == nil {`,
			Tests: "TestAnApiserverThatStartsWithdrawsNothing",
		},
		{
			Name: "kube-guard-whole-held", Bug: "the review of an open watch does not count for its next request", File: "guard.go",
			Old: `(held || (!known || allowed) && g.holdsWhole(id, a)) {`, New: `held {`, Tests: "TestAWatchOfAPartComesBackWhileNoApiserverAnswers",
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
