package mutants

func cachectlGroup() Group {
	return Group{Package: "cmd/cachectl", Mutants: []Mutant{
		{
			Name: "resume-file-ahead", Bug: "saves the position behind a revision that was not dealt with", File: "../../client/follow/follow.go",
			Old: `s.at = u.Position()`, New: `s.at = u.Position(); s.at.Revision++`, Tests: "TestAKilledWatchLosesNothing",
		},
		{
			Name: "resume-file-never-idle", Bug: "a watch that has printed nothing has no position", File: "../../client/follow/follow.go",
			Old: `case u.Kind == client.KindProgress:
		wait`, New: `case u.Kind == client.KindProgress:
		return nil
		wait`, Tests: "TestScripts",
		},
		{
			Name: "resume-file-of-another-cluster", Bug: "resumes in another cluster", File: "internal/keys/resume.go",
			Old: `if r.start.Cluster == "" || r.start.Cluster == cluster {`, New: `if cluster != "" {`, Tests: "TestScripts",
		},
		{
			Name: "handler-failure-passed", Bug: "an update whose command failed counts as dealt with", File: "internal/keys/handler.go",
			Old: `return fmt.Errorf("%s failed for revision %d: %w", command[0], u.Revision, err)`, New: `return nil`, Tests: "TestScripts",
		},
		{
			Name: "context-before-variable", Bug: "a context wins over an environment variable", File: "internal/cli/contexts.go",
			Old: `if value == "" {
			value, source =`, New: `if settings[name] != "" {
			value, source =`, Tests: "TestScripts",
		},
		{
			Name: "import-overwrites", Bug: "an import overwrites what has changed since it was read", File: "internal/keys/import.go",
			Old: `i.c.Txn(ctx, i.conditions, i.ops...)`, New: `i.c.Txn(ctx, nil, i.ops...)`, Tests: "TestAnImportEndsAtAKeyThatChangesMeanwhile",
		},
		{
			Name: "import-of-a-part", Bug: "writes the beginning of an export that was cut", File: "internal/keys/import.go",
			Old: `if err := checkExport(f); err != nil {`, New: `if err := checkExport(f); err == io.EOF {`, Tests: "TestScripts",
		},
		{
			Name: "complete-through-a-tree", Bug: "a large tree of keys hides its neighbours from completion", File: "internal/cli/complete.go",
			Old: `all.Start = client.Prefix(prefix + before + "/").End`, New: `_ = before`, Tests: "TestBranches", Package: "cmd/cachectl/internal/cli",
		},
		{
			Name: "wait-for-older", Bug: "takes the change before the one that is waited for", File: "internal/keys/wait.go",
			Old: `kv.ModRevision >= f.revision`, New: `kv.ModRevision+1 >= f.revision`, Tests: "TestScripts",
		},
	}}
}
