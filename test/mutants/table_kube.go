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
