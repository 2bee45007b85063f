package mutants

func keybrowserGroup() Group {
	return Group{Package: "internal/edge/keybrowser", Mutants: []Mutant{
		{
			Name: "key-page-without-policy", Bug: "serves the key browser without its policy", File: "keybrowser.go",
			Old: `		h.Set("Content-Security-Policy", policy)
`, New: ``, Tests: "TestFilesHaveThePolicy",
		},
		{
			Name: "key-page-takes-writes", Bug: "serves the page for any method", File: "keybrowser.go",
			Old: `if r.Method != http.MethodGet && r.Method != http.MethodHead {`, New: `if false {`, Tests: "TestFilesHaveThePolicy",
		},
	}}
}
