package mutants

func kubeObjectGroup() Group {
	return Group{Package: "internal/kube/object", Mutants: []Mutant{
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
			Old: `return !has || !slices.Contains`, New: `return has && !slices.Contains`, Tests: "TestSelectors",
		},
		{
			Name: "kube-selector-first-label", Bug: "one label that holds is enough", File: "selector.go",
			Old: `if !s.labels[i].holds(found[i], has[i]) {
			return false`, New: `if s.labels[i].holds(found[i], has[i]) {
			return true`, Tests: "TestSelectors",
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
			Name: "kube-guard-bound", Bug: "decisions are held without a bound", File: "memory.go",
			Old: `m.bytes > m.maxBytes; {`, New: `m.bytes < 0; {`, Tests: "TestMemoryHasABound",
		},
	}}
}

func kubeAPIGroup() Group {
	return Group{Package: "internal/kube/api", Mutants: []Mutant{
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
			Name: "kube-api-named-object", Bug: "a role for one object does not count for a list of it", File: "request.go",
			Old: `	if name, ok := q.selector.Exact("metadata.name"); ok && q.name == "" {`, New: `	if name, ok := q.selector.Exact("metadata.name"); !ok && q.name == "" {`, Tests: "TestAttributesAreAnApiservers",
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
			Name: "kube-api-past-until", Bug: "a former version counts after it has ended", File: "past.go",
			Old: `f.from <= version && version < f.until`, New: `f.from <= version`, Tests: "TestThePastOfAnObject",
		},
	}}
}
