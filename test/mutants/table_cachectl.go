package mutants

func cachectlGroup() Group {
	return Group{Package: "cmd/cachectl", Mutants: []Mutant{
		{
			Name: "resume-file-ahead", Bug: "saves the position behind a revision that was not dealt with", File: "resume.go",
			Old: `r.at = u.Position()`, New: `r.at = u.Position(); r.at.Revision++`, Tests: "TestAKilledWatchLosesNothing",
		},
		{
			Name: "resume-file-never-idle", Bug: "a watch that has printed nothing has no position", File: "resume.go",
			Old: `case r.disk == client.Position{}:`, New: `case r.disk == client.Position{}: return nil`, Tests: "TestScripts",
		},
		{
			Name: "resume-file-of-another-cluster", Bug: "resumes in another cluster", File: "resume.go",
			Old: `if r.disk.Cluster == "" || r.disk.Cluster == cluster {`, New: `if cluster != "" {`, Tests: "TestScripts",
		},
		{
			Name: "handler-failure-passed", Bug: "an update whose command failed counts as dealt with", File: "handler.go",
			Old: `return fmt.Errorf("%s failed for revision %d: %w", command[0], u.Revision, err)`, New: `return nil`, Tests: "TestScripts",
		},
		{
			Name: "context-before-variable", Bug: "a context wins over an environment variable", File: "contexts.go",
			Old: `if value == "" {
			value, source =`, New: `if settings[name] != "" {
			value, source =`, Tests: "TestScripts",
		},
		{
			Name: "import-overwrites", Bug: "an import overwrites what has changed since it was read", File: "command_import.go",
			Old: `i.c.Txn(ctx, i.conditions, i.ops...)`, New: `i.c.Txn(ctx, nil, i.ops...)`, Tests: "TestAnImportEndsAtAKeyThatChangesMeanwhile",
		},
		{
			Name: "import-of-a-part", Bug: "writes the beginning of an export that was cut", File: "command_import.go",
			Old: `if err := checkExport(f); err != nil {`, New: `if err := checkExport(f); err == io.EOF {`, Tests: "TestScripts",
		},
		{
			Name: "complete-through-a-tree", Bug: "a large tree of keys hides its neighbours from completion", File: "complete.go",
			Old: `all.Start = client.Prefix(prefix + before + "/").End`, New: `_ = before`, Tests: "TestBranches",
		},
		{
			Name: "wait-for-older", Bug: "takes the change before the one that is waited for", File: "command_wait.go",
			Old: `kv.ModRevision >= f.revision`, New: `kv.ModRevision+1 >= f.revision`, Tests: "TestScripts",
		},
	}}
}
