package mutants

func cachectlGroup() Group {
	return Group{Package: "cmd/cachectl", Mutants: []Mutant{
		{
			Name: "resume-file-ahead", Bug: "saves a position after a revision that was not processed", File: "../../client/follow/follow.go",
			Old: `s.at = u.Position()`, New: `s.at = u.Position(); s.at.Revision++`, Tests: "TestAKilledWatchLosesNothing",
		},
		{
			Name: "resume-file-never-idle", Bug: "saves no position for a watch that has printed nothing", File: "../../client/follow/follow.go",
			Old: `case !s.dirty:
		wait`, New: `case !s.dirty:
		return nil
		wait`, Tests: "TestScripts",
		},
		{
			Name: "resume-file-of-another-cluster", Bug: "resumes in another cluster", File: "internal/keys/resume.go",
			Old: `if r.start.Cluster == "" || r.start.Cluster == cluster {`, New: `if cluster != "" {`, Tests: "TestScripts",
		},
		{
			Name: "handler-failure-passed", Bug: "counts an update whose command failed as processed", File: "internal/keys/handler.go",
			Old: `return fmt.Errorf("%s failed for revision %d: %w", command[0], u.Revision, err)`, New: `return nil`, Tests: "TestScripts",
		},
		{
			Name: "context-before-variable", Bug: "a context takes precedence over an environment variable", File: "internal/cli/contexts.go",
			Old: `if value == "" {
			value, source =`, New: `if settings[name] != "" {
			value, source =`, Tests: "TestScripts",
		},
		{
			Name: "import-overwrites", Bug: "an import overwrites keys that have changed since it read them", File: "internal/keys/import.go",
			Old: `i.c.Txn(ctx, i.conditions, i.ops...)`, New: `i.c.Txn(ctx, nil, i.ops...)`, Tests: "TestAnImportEndsAtAKeyThatChangesMeanwhile",
		},
		{
			Name: "import-of-a-part", Bug: "writes the beginning of a truncated export", File: "internal/keys/import.go",
			Old: `if err := checkExport(f); err != nil {`, New: `if err := checkExport(f); err == io.EOF {`, Tests: "TestScripts",
		},
		{
			Name: "complete-through-a-tree", Bug: "a large tree of keys hides its neighbours from completion", File: "internal/cli/complete.go",
			Old: `all.Start = client.Prefix(prefix + before + "/").End`, New: `_ = before`, Tests: "TestBranches", Package: "cmd/cachectl/internal/cli",
		},
		{
			Name: "wait-for-older", Bug: "accepts the change before the requested one", File: "internal/keys/wait.go",
			Old: `kv.ModRevision >= f.revision`, New: `kv.ModRevision+1 >= f.revision`, Tests: "TestScripts",
		},
		{
			Name: "kube-silence-without-a-row", Bug: "a node without a report is left out if no report names it", File: "internal/kube/ask.go",
			Old: `if n.silence != nil && !members[n.address] {`, New: `if n.silence != nil && len(nodes) == 0 {`, Tests: "TestKubeWithoutANode",
		},
		{
			Name: "kube-silence-succeeds", Bug: "the exit code is 0 although a node sent no report", File: "internal/kube/commands.go",
			Old: `if len(silent) > 0 {
		return`, New: `if len(silent) < 0 {
		return`, Tests: "TestKubeWithoutANode",
		},
		{
			Name: "kube-another-node-answers", Bug: "leaves out a node if another one answers at its address", File: "internal/kube/ask.go",
			Old: `other.silence = &silence{answer.report.Node + " answers at its address", adviceReach}`, New: `continue`, Tests: "TestKubeKnowsAnotherNodeAtAnAddress",
		},
		{
			Name: "kube-asks-twice", Bug: "queries a node at its own address after it has answered at a forwarded port", File: "internal/kube/ask.go",
			Old: `if members[m.HTTP] = true; seen[m.Name] {`, New: `if members[m.HTTP] = true; seen[m.Name] && at[m.HTTP].report != nil {`, Tests: "TestKubeByForwardedPorts",
		},
		{
			Name: "kube-asks-in-turn", Bug: "queries the nodes one after the other", File: "internal/kube/ask.go",
			Old: `asking.Go(func() { nodes[i].report, nodes[i].silence = a.ask(ctx, nodes[i].address) })`, New: `nodes[i].report, nodes[i].silence = a.ask(ctx, nodes[i].address)`, Tests: "TestNodesAreAskedConcurrently", Package: "cmd/cachectl/internal/kube",
		},
		{
			Name: "kube-answer-without-end", Bug: "reads an answer of any length", File: "internal/kube/ask.go",
			Old: `io.LimitReader(resp.Body, maxReport+1)`, New: `io.Reader(resp.Body)`, Tests: "TestKubeAnswerAboveTheBound",
		},
		{
			Name: "kube-name-of-addresses", Bug: "verifies the host of each address although --tls-server-name is given", File: "internal/kube/commands.go",
			Old: `secured.ServerName = c.serverName`, New: `_ = c.serverName`, Tests: "TestKubeByCertificatesOfTheOverlay",
		},
		{
			Name: "kube-follows-redirects", Bug: "queries another server because an answer redirects to it", File: "internal/kube/ask.go",
			Old: `return http.ErrUseLastResponse`, New: `return nil`, Tests: "TestKubeErrorsNameTheRemedy",
		},
		{
			Name: "kube-loading-lags", Bug: "reports a node that loads a resource as behind by all versions", File: "internal/kube/resources.go",
			Old: `return c.State != string(report.Loading) && `, New: `return `, Tests: "TestKubeResources",
		},
		{
			Name: "kube-withdrawn-lags", Bug: "reports a node without a withdrawn resource as behind by all versions", File: "internal/kube/resources.go",
			Old: ` && c.State != string(report.Withdrawn)
}`, New: `
}`, Tests: "TestKubeResources",
		},
		{
			Name: "kube-lag-behind-itself", Bug: "a single node is compared with itself only", File: "internal/kube/resources.go",
			Old: `if c.serves() {
			newest`, New: `if c.serves() && (only == "" || c.Node == only) {
			newest`, Tests: "TestKubeResources",
		},
		{
			Name: "kube-any-number-of-nodes", Bug: "queries every node in a report, without a bound", File: "internal/kube/ask.go",
			Old: `case len(answers)+len(next) >= maxNodes:`, New: `case len(answers) < 0:`, Tests: "TestBoundOfNodes", Package: "cmd/cachectl/internal/kube",
		},
	}}
}
