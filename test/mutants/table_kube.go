package mutants

func kubeObjectGroup() Group {
	return Group{Package: "internal/kube/object", Mutants: []Mutant{
		{
			Name: "kube-object-whole-envelope", Bug: "a list contains objects with their envelopes", File: "object.go",
			Old: `_, _, o.body, err = openEnvelope(raw)`, New: `_, _, _, err = openEnvelope(raw)`, Tests: "TestAnObjectOfAListIsNotRead",
		},
		{
			Name: "kube-object-escapes", Bug: "keeps escapes in JSON strings as written", File: "json.go",
			Old: `if bytes.IndexByte(inner, '\\') < 0 && utf8.Valid(inner) {`, New: `if utf8.Valid(inner) {`, Tests: "TestACustomResourceIsParsedWithoutItsSchema",
		},
		{
			Name: "kube-object-first-version", Bug: "adds a version to an object that has one", File: "json.go",
			Old: `if from >= 0 {`, New: `if false {`, Tests: "TestACustomResourceIsParsedWithoutItsSchema",
		},
		{
			Name: "kube-object-version-zero", Bug: "accepts 0 as a version", File: "object.go",
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
			Name: "kube-object-cut-frame", Bug: "treats a stream that is cut inside a frame as complete", File: "watch.go",
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
			Name: "kube-selector-first-label", Bug: "one matching label is enough", File: "selector.go",
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
			Old: `_, _ = d.WriteString("\x00" + r.Prefix() + "\x00" + r.Encoding.MediaType())`, New: ``, Tests: "TestTheDeathOfANodeMovesOnlyItsResources",
		},
		{
			Name: "kube-tier-dead-owner", Bug: "makes a dead node the owner of resources", File: "rank.go",
			Old: `if alive && !m.Draining`, New: `if (alive || true) && !m.Draining`, Tests: "TestNodesThatMayOwnResources",
		},
		{
			Name: "kube-tier-draining-owner", Bug: "makes a draining node the owner of resources", File: "rank.go",
			Old: `alive && !m.Draining`, New: `alive`, Tests: "TestNodesThatMayOwnResources",
		},
		{
			Name: "kube-tier-other-cluster", Bug: "makes a node of another cluster the owner of resources", File: "rank.go",
			Old: ` && m.ClusterID == cluster {`, New: ` {`, Tests: "TestNodesThatMayOwnResources",
		},
		{
			Name: "kube-tier-owner-follows", Bug: "follows an apiserver last, even as the owner", File: "source.go",
			Old: `if i == own {
			out = append(out, direct)
		} else if`, New: `if i == own {
			defer func() { out = append(out, direct) }()
		} else if`, Tests: "TestCandidatesInTheOrderOfTheNodes",
		},
		{
			Name: "kube-tier-any-source", Bug: "follows a node that follows another node", File: "source.go",
			Old: `peer(node, true)`, New: `peer(node, false)`, Tests: "TestCandidatesInTheOrderOfTheNodes",
		},
		{
			Name: "kube-tier-drained-without-apiserver", Bug: "a draining node has no apiserver to follow", File: "source.go",
			Old: `if own < 0 {`, New: `if false {`, Tests: "TestCandidatesInTheOrderOfTheNodes",
		},
		{
			Name: "kube-tier-cluster-of-the-dead", Bug: "adopts the cluster of dead nodes", File: "tier.go",
			Old: ` && (m.State == shard.Alive || m.State == shard.Suspect) && m.ClusterID != ""`, New: ` && m.ClusterID != ""`, Tests: "TestNodesThatMayOwnResources",
		},
	}}
}

func kubeSourceGroup() Group {
	return Group{Package: "internal/kube/source", Mutants: []Mutant{
		{
			Name: "kube-source-restored", Bug: "continues a watch on a restored etcd", File: "follow.go",
			Old: `case now < f.at:`, New: `case false:`, Tests: "TestAWatchOfARestoredEtcdDoesNotBegin",
		},
		{
			Name: "kube-source-refused-not-there", Bug: "reports a resource that is defined later as refused", File: "follow.go",
			Old: ` && (resumes(f.req) || code != http.StatusNotFound)`, New: ``, Tests: "TestRefusalsNeedAReadyApiserver",
		},
		{
			Name: "kube-source-whole-time", Bug: "a hanging apiserver takes all of a review's time", File: "client.go",
			Old: `time.Until(end)/time.Duration(min(parts, 2))`, New: `time.Until(end)`, Tests: "TestAnApiserverThatHangsLeavesTimeForTheNext",
		},
		{
			Name: "kube-source-refused-node-decides", Bug: "an apiserver that refuses the node's identity decides a review", File: "client.go",
			Old: `	case http.StatusUnauthorized, http.StatusForbidden: // this node's credentials, or its rights`, New: `	case http.StatusPaymentRequired:`, Tests: "TestAnApiserverThatRefusesTheNodeDoesNotDecide",
		},
		{
			Name: "kube-source-asks-the-starting", Bug: "repeatedly queries an apiserver that is not ready", File: "client.go",
			Old: `if err != nil && !errors.Is(ctx.Err(), context.Canceled) {`, New: `if false {`, Tests: "TestAnApiserverThatIsNotReadyIsAvoided",
		},
		{
			Name: "kube-source-event-twice", Bug: "delivers an event of two watches twice", File: "follow.go",
			Old: `case item.ModRevision() <= f.at:`, New: `case false:`, Tests: "TestAStreamedListIsTheStateAtItsBookmark",
		},
		{
			Name: "kube-source-probe-fails", Bug: "a failed probe ends the watch", File: "probe.go",
			Old: `if CodeOf(err) != 0 && !MayFollow(err) || errors`, New: `if CodeOf(err) != 0 || errors`, Tests: "TestAWatchContinuesWhileProbesFail",
		},
		{
			Name: "kube-source-probe-refused", Bug: "follows a withdrawn resource forever", File: "probe.go",
			Old: `if CodeOf(err) != 0 && !MayFollow(err) || errors`, New: `if errors`, Tests: "TestARefusedProbeEndsTheWatch",
		},
		{
			Name: "kube-source-stays", Bug: "keeps the watch of an apiserver that has lost etcd, although another one answers", File: "probe.go",
			Old: `if last && f.othersAnswer(ctx) {`, New: `if last && f == nil {`, Tests: "TestAnApiserverWithoutEtcdIsLeft",
		},
		{
			Name: "kube-source-moves", Bug: "ends a watch for another apiserver that does not answer either", File: "probe.go",
			Old: `if last && f.othersAnswer(ctx) {`, New: `if last {`, Tests: "TestAnApiserverWithoutEtcdIsLeft",
		},
		{
			Name: "kube-source-probe-held", Bug: "starts the next probe when an apiserver closes the last one", File: "probe.go",
			Old: `			p.ended(true)
			return err`, New: `			return err`, Tests: "TestAReaderDoesNotWaitForTheEndOfAProbe",
		},
		{
			Name: "kube-source-one-of-a-version", Bug: "deletes only the first of the Events that expire in one version", File: "follow.go",
			Old: `case event.Type == kv.Delete && f.s.r.IsEvents():`, New: `case false:`, Tests: "TestEventsThatExpireTogetherAreAllDeleted",
		},
		{
			Name: "kube-source-malformed", Bug: "requests for a resource with versions that are not numbers fail forever", File: "client.go",
			Old: `return (code < 400 || code >= 500) && !errors.Is(err, object.ErrMalformed)`, New: `return code < 400 || code >= 500`,
			Tests: "TestMalformedEventsEndTheSource",
		},
		{
			Name: "kube-events-group", Bug: "treats a resource of another group as events", File: "resource.go",
			Old: ` && (r.Group == "" || r.Group == "events.k8s.io")`, New: ``, Tests: "TestAVersionOfEventsIsNotWaitedFor", Package: "internal/kube/api",
		},
		{
			Name: "kube-source-refusal-avoided", Bug: "reports an apiserver that refuses a request as failed", File: "client.go",
			Old: `code >= 400 && code < 500 || errors.Is(err, object.ErrMalformed)`, New: `code == 404`, Tests: "TestAvoidedServers",
		},
		{
			Name: "kube-source-avoided-for-ever", Bug: "reports an apiserver that has failed once as avoided forever", File: "client.go",
			Old: `f != nil && time.Since(f.at) < avoidedFor`, New: `f != nil && avoidedFor > 0`, Tests: "TestAvoidedServers",
		},
		{
			Name: "kube-source-progress-back", Bug: "an older bookmark reverts progress", File: "follow.go",
			Old: `if err != nil || kv.Revision(version) <= f.at {`, New: `if err != nil {`, Tests: "TestAStreamedListIsTheStateAtItsBookmark",
		},
		{
			Name: "kube-source-any-bookmark", Bug: "any bookmark ends the initial events", File: "load.go",
			Old: `if err != nil || !endsInitialEvents(&o) {`, New: `if err != nil {`, Tests: "TestAStreamedListIsTheStateAtItsBookmark",
		},
		{
			Name: "kube-source-kept-deleted", Bug: "keeps an object that is deleted during a list", File: "load.go",
			Old: `if e.Type == object.Deleted {
			delete(state, string(item.Key()))`, New: `if e.Type == object.Deleted {
			state[string(item.Key())] = item`, Tests: "TestAStreamedListIsTheStateAtItsBookmark",
		},
		{
			Name: "kube-source-one-apiserver", Bug: "an apiserver that has compacted the version is the last one queried", File: "follow.go",
			Old: `		expired = expired || CodeOf(err) == http.StatusGone`, New: `		if expired = expired || CodeOf(err) == http.StatusGone; expired {
			break
		}`, Tests: "TestAnotherApiserverIsAskedFirst",
		},
		{
			Name: "kube-source-list-on-failure", Bug: "lists after any failure of an apiserver", File: "follow.go",
			Old: `if expired && req.From > 0 {`, New: `if req.From > 0 {`, Tests: "TestAnotherApiserverIsAskedFirst",
		},
		{
			Name: "kube-source-older-state", Bug: "accepts a state older than the current one", File: "load.go",
			Old: `if f.at < f.req.HeldAt {`, New: `if false {`, Tests: "TestALeapReportsTheHeldObjects",
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
			Name: "kube-config-token-once", Bug: "a token in the file takes precedence over the token file, which is renewed", File: "kubeconfig.go",
			Old: `if u.TokenFile == "" {`, New: `if u.Token != "" {`, Tests: "TestCertificatesAndTokensOfFilesAndData",
		},
		{
			Name: "kube-config-old-connections", Bug: "uses an outdated certificate on open connections", File: "kubeconfig.go",
			Old: `if bytes.Equal(leaf, t.leaf) {`, New: `if true {`, Tests: "TestFilesAreReadAgain",
		},
		{
			Name: "kube-config-unverified", Bug: "trusts an apiserver although the file disables its verification", File: "kubeconfig.go",
			Old: `case c.Insecure:`, New: `case false:`, Tests: "TestMistakesAreErrors",
		},
		{
			Name: "kube-config-plug-in", Bug: "ignores a credential plug-in", File: "kubeconfig.go",
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
			Name: "kube-guard-late", Bug: "treats a review without a timely turn as one that no apiserver answers", File: "guard.go",
			Old: `	return nil, errBusy
`, New: `	return nil, errLate
`, Tests: "TestNoAllowCountsBecauseTooManyReviewsWait",
		},
		{
			Name: "kube-guard-many-clients", Bug: "clients with one review each lose their watches when many arrive at a time", File: "guard.go",
			Old: `case others < fewWaiting:`, New: `case others < 0:`, Tests: "TestManyClientsKeepTheirAllows",
		},
		{
			Name: "kube-guard-hang", Bug: "applies no earlier allow to waiting requests while all apiservers hang", File: "guard.go",
			Old: `case g.answered.Load() < began:`, New: `case began < 0:`, Tests: "TestNoAllowCountsBecauseTooManyReviewsWait",
		},
		{
			Name: "kube-guard-remembers-forever", Bug: "does not review an open watch again", File: "again.go",
			Old: `return ok && allowed && now.Sub(at) < g.cfg.Fresh`, New: `return ok && allowed && now.Sub(at) >= 0`, Tests: "TestRemembers",
		},
		{
			Name: "kube-guard-remembers-refusal", Bug: "continues a refused watch", File: "again.go",
			Old: `return ok && allowed && now`, New: `return ok && (allowed || true) && now`, Tests: "TestRemembers",
		},
		{
			Name: "kube-guard-forever", Bug: "keeps an allow valid for as long as no apiserver answers", File: "guard.go",
			Old: `held := known && allowed && time.Since(at) <= g.cfg.Stale`, New: `held := known && allowed`, Tests: "TestTheLastAllowCountsWhileNoApiserverAnswers",
		},
		{
			Name: "kube-guard-token-forever", Bug: "keeps a token valid for as long as no apiserver answers", File: "guard.go",
			Old: `held := known && time.Since(at) <= g.cfg.Stale`, New: `held := known`, Tests: "TestTokens",
		},
		{
			Name: "kube-guard-denial", Bug: "treats the last denial as an allow while no apiserver answers", File: "guard.go",
			Old: `held := known && allowed && time`, New: `held := known && time`, Tests: "TestTheLastAllowCountsWhileNoApiserverAnswers",
		},
		{
			Name: "kube-guard-starting", Bug: "a starting apiserver withdraws rights", File: "guard.go",
			Old: `if err := g.cfg.Apiservers.Ready(ctx, server); err != nil {`, New: `if err := g.cfg.Apiservers.Ready(ctx, server); err != nil && ctx == nil {`,
			Tests: "TestAnApiserverThatStartsWithdrawsNothing",
		},
		{
			Name: "kube-guard-whole-held", Bug: "does not use the review of an open watch for its next request", File: "guard.go",
			Old: `(held || (!known || allowed) && g.holdsWhole(id, a)) {`, New: `held {`, Tests: "TestAWatchOfAPartResumesWhileNoApiserverAnswers",
		},
		{
			Name: "kube-guard-rejected", Bug: "accepts a rejected token again when no apiserver answers", File: "guard.go",
			Old: `			g.identities.drop(k)
`, New: ``, Tests: "TestTokens|TestAnApiserverThatStartsWithdrawsNothing",
		},
		{
			Name: "kube-guard-groups", Bug: "users with different groups share a decision", File: "identity.go",
			Old: `	hashed(h, id.Groups...)
`, New: ``, Tests: "TestAReviewContainsAllInputsOfTheDecision",
		},
		{
			Name: "kube-guard-expired", Bug: "accepts an expired certificate on an open connection", File: "identity.go",
			Old: `if now.After(cert.NotAfter) {`, New: `if cert == nil {`, Tests: "TestCertificates",
		},
		{
			Name: "kube-guard-whole", Bug: "reviews each open watch of an identity", File: "guard.go",
			Old: `if whole != *a {`, New: `if false {`, Tests: "TestOneReviewForAllWatchesOfAResource",
		},
		{
			Name: "kube-guard-whole-again", Bug: "repeats a refused review of the whole resource at once", File: "guard.go",
			Old: `time.Since(at) >= wholeAgain`, New: `time.Since(at) >= 0`, Tests: "TestOneReviewForAllWatchesOfAResource",
		},
		{
			Name: "kube-guard-whole-refused", Bug: "ends a watch of a part because the whole resource is refused", File: "guard.go",
			Old: `allowed && status == nil {
				return true, nil`, New: `status == nil {
				return allowed, nil`, Tests: "TestOneReviewForAllWatchesOfAResource",
		},
		{
			Name: "kube-guard-bound", Bug: "stores decisions without a bound", File: "memory.go",
			Old: `m.bytes > m.maxBytes; {`, New: `m.bytes < 0; {`, Tests: "TestMemoryHasABound",
		},
	}}
}

func kubePortGroup() Group {
	return Group{Package: "internal/kube/port", Mutants: []Mutant{
		{
			Name: "kube-watchdog-write", Bug: "permits a write of any duration", File: "watchdog.go",
			Old: `d.timer.Reset(d.after)`, New: `d.timer.Stop()`, Tests: "TestAWriteThatTakesTooLongEnds",
		},
		{
			Name: "kube-watchdog-handler", Bug: "uses the writer of a handler that has returned", File: "watchdog.go",
			Old: `	d.ended = true`, New: `	d.ended = false`, Tests: "TestAWatchdogThatEndsLeavesTheWriterAlone",
		},
		{
			Name: "kube-socket-message", Bug: "sends two events in one message", File: "socket.go",
			Old: `for event := range bytes.Lines(b) {`, New: `for event := range bytes.Lines(b) {
		event = b`, Tests: "TestEachEventIsAMessageOfItsOwn",
		},
	}}
}
