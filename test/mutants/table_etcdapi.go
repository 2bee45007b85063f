package mutants

func etcdapiGroup() Group {
	return Group{Package: "internal/edge/etcdapi", Mutants: []Mutant{
		{
			Name: "split-looked-at", Bug: "parses all of a transaction that one operation makes invalid", File: "pass_txn.go",
			Old: `for !s.split {`, New: `for {`, Tests: "TestAScanStopsAtASplitOperation",
		},
		{
			Name: "etcds-requests-free", Bug: "a large request that waits for etcd takes no bytes of the budget", File: "pass.go",
			Old: `if size <= freeRequest {`, New: `if true {`, Tests: "TestRequestsThatWaitForEtcdAreBounded",
		},
		{
			Name: "etcds-ranges-free", Bug: "a large Range that waits takes no bytes of the budget", File: "range.go",
			Old: `2*proto.Size(r)`, New: `0*proto.Size(r)`, Tests: "TestRequestsThatWaitForEtcdAreBounded",
		},
		{
			Name: "etcds-answers-free", Bug: "a forwarded answer of etcd takes no bytes of the budget", File: "pass_answers.go",
			Old: "	if size := int64(answer.Buffers.Len()); size > freeAnswer {", New: "	if size := int64(answer.Buffers.Len()); false {", Tests: "TestAnswersOfEtcdsAreBounded",
		},
		{
			Name: "etcds-answers-settled", Bug: "keeps the answer of a write for which the budget has no room", File: "pass_answers.go",
			Old: `if err := held.resize(size); err != nil {`, New: `a.cfg.Budget.Settle(held.holder, budget.Lists, 0, size)
		if held.n = size; false {
			var err error`, Tests: "TestAnswersOfSingleKeysAreBounded",
		},
		{
			Name: "etcds-results-uncounted", Bug: "sends all transactions at once that return many single keys", File: "pass_txn.go",
			Old: `return s.wide || s.results > 1`, New: `return s.wide`, Tests: "TestWhichTransactionsHaveLargeAnswers",
		},
		{
			Name: "etcds-answers-unbounded", Bug: "accepts answers of any size from etcd before it reserves bytes", File: "pass_answers.go",
			Old: "grpc.MaxCallRecvMsgSize(int(limit))", New: "grpc.MaxCallRecvMsgSize(math.MaxInt32)", Tests: "TestAnswersOfEtcdsAreBounded",
		},
		{
			Name: "etcds-answers-kept", Bug: "holds the bytes of an answer that its client has read", File: "pass_answers.go",
			Old: "func (l *answerLease) Put(*[]byte) { l.held.release() }", New: "func (l *answerLease) Put(*[]byte) {}", Tests: "TestTheBytesOfASentAnswerAreReleasedAtOnce",
		},
		{
			Name: "etcds-writes-asked-twice", Bug: "sends a writing transaction to etcd again when its answer is large", File: "pass_txn.go",
			Old: "		s.writes = true\n", New: "", Tests: "TestAnswersLargerThanTheBudget",
		},
		{
			Name: "lease-of-others", Bug: "attaches keys to other callers' leases", File: "policy.go",
			Old: `for lease := range o.leases {`, New: `for lease := range map[int64]struct{}{} {`,
			Tests: "TestALeaseOfAnothersKeysIsNotEnded", Package: "internal/node",
		},
		{
			Name: "call-without-token", Bug: "forwards calls without a token while etcd's authentication is on", File: "pass_auth.go",
			Old: `	_, err := a.cfg.Guard.Caller(ctx)
	return err`, New: `	return nil`, Tests: "TestCallsWithoutATokenAreNotForwarded",
		},
		{
			Name: "split-operation-taken", Bug: "forwards an operation in several parts to etcd", File: "pass_txn.go",
			Old: `case s.split:`, New: `case false:`, Tests: "TestNestedTransactions",
		},
		{
			Name: "etcd-administration-not-audited", Bug: "does not audit administrative calls through etcd's API", File: "pass.go",
			Old: "\tover(err)\n", New: "\t_ = over\n", Tests: "TestAdministrationThroughEtcdsAPIIsLogged", Package: "internal/node",
		},
		{
			Name: "passwords-audited", Bug: "writes passwords to the audit log", File: "pass_admin.go",
			Old: "m.Clear(f)", New: "_ = f", Tests: "TestAdministrationThroughEtcdsAPIIsLogged", Package: "internal/node",
		},
		{
			Name: "malformed-txn-passed", Bug: "forwards a malformed transaction to etcd", File: "pass_txn.go",
			Old: `case s.malformed:`, New: `case false:`, Tests: "TestMalformedTransactionsAreRefused",
		},
		{
			Name: "other-branch-forgotten", Bug: "ignores the deletes of the other branch of a transaction", File: "pass_txn.go",
			Old: `return lower(success, failure)`, New: `return success`, Tests: "TestDeadlyTransactionsAreRefused",
		},
		{
			Name: "lists-without-turns", Bug: "runs all large lists at the same time", File: "range_chunks.go",
			Old: "	case l.left == nil:\n", New: "	case l.left == nil && l.own < 0:\n", Tests: "TestListsTakeTurns",
		},
		{
			Name: "lists-keep-turns", Bug: "does not return the turn of a list", File: "range.go",
			Old: "	l.leave()\n", New: "", Tests: "TestListsTakeTurns",
		},
		{
			Name: "lists-for-nobody", Bug: "counts lists for no client", File: "range_chunks.go",
			Old: `if h.of[holder.Name] == 0 {`, New: `if false {`, Tests: "TestOneClientsListsLeaveRoom",
		},
		{
			Name: "shared-lists-count-again", Bug: "counts data shared by a client's answers once for each of them", File: "range_chunks.go",
			Old: `if h.of[holder.Name] == 0 {`, New: `if true {`, Tests: "TestOneClientsListsLeaveRoom",
		},
	}}
}
