package shardwatch_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestAPI compares the exported API of each public package with the api.txt in its
// directory, so that every change is deliberate.
func TestAPI(t *testing.T) {
	for _, dir := range []string{"client", "client/admin", "client/follow", "client/mirror"} {
		got, err := exported(dir)
		if err != nil {
			t.Fatal(err)
		}
		golden := filepath.Join(dir, "api.txt")
		if os.Getenv("UPDATE") != "" {
			if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		for _, difference := range differences(string(want), got) {
			t.Errorf("%s: %s", golden, difference)
		}
	}
	if t.Failed() {
		t.Log("the public API has changed. If this is intended, run UPDATE=1 go test -run TestAPI . " +
			"and describe the migration in CHANGELOG.md; see Stability in client/doc.go")
	}
}

// exported returns the exported declarations of a package, without comments, in order.
func exported(dir string) (string, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return "", err
	}
	var declarations []string
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, name, nil, parser.SkipObjectResolution)
		if err != nil {
			return "", err
		}
		ast.FileExports(file)
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if !onExported(d) {
					continue
				}
				d.Body = nil
			case *ast.GenDecl:
				if d.Tok == token.IMPORT {
					continue
				}
			}
			var b bytes.Buffer
			if err := printer.Fprint(&b, files, d); err != nil {
				return "", err
			}
			declarations = append(declarations, plain(b.String()))
		}
	}
	slices.Sort(declarations)
	return strings.Join(declarations, ""), nil
}

// onExported reports whether d is a function, or a method of an exported type.
func onExported(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return true
	}
	receiver := d.Recv.List[0].Type
	if pointer, ok := receiver.(*ast.StarExpr); ok {
		receiver = pointer.X
	}
	name, ok := receiver.(*ast.Ident)
	return !ok || name.IsExported()
}

// plain drops alignment and empty lines.
func plain(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		if words := strings.Fields(line); len(words) > 0 {
			indent := line[:len(line)-len(strings.TrimLeft(line, "\t"))]
			out.WriteString(indent + strings.Join(words, " ") + "\n")
		}
	}
	return out.String()
}

// differences returns the lines that only one of the texts has.
func differences(want, got string) (out []string) {
	lines := func(s string) []string { return strings.Split(s, "\n") }
	for _, l := range lines(want) {
		if !slices.Contains(lines(got), l) {
			out = append(out, fmt.Sprintf("removed: %s", l))
		}
	}
	for _, l := range lines(got) {
		if !slices.Contains(lines(want), l) {
			out = append(out, fmt.Sprintf("new: %s", l))
		}
	}
	if len(out) == 0 && want != got {
		out = append(out, "the same lines in another order")
	}
	return out
}
