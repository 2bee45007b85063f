package shardwatch_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Limits of the size of packages, types and functions, outside tests.
const (
	maxPackageLines  = 3000
	maxMethods       = 40
	maxFunctionLines = 80
)

// tooLarge are the packages, types and functions over their limit, with their size. A
// number here may only fall; an entry within its limit is removed.
var tooLarge = map[string]int{}

// TestLimits checks the size of packages, types and functions.
func TestLimits(t *testing.T) {
	found := map[string]int{}
	over := func(name string, n, most int) {
		if n > most {
			found[name] = n
		}
	}
	packages, methods := map[string]int{}, map[string]int{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		dir := filepath.Dir(path)
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != "." && (strings.HasPrefix(d.Name(), ".") || slices.Contains([]string{"api", "bench", "bin", "test", "internal/testing"}, path)):
			return fs.SkipDir
		case filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		files := token.NewFileSet()
		parsed, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err //nolint:wrapcheck // it names the file
		}
		if ast.IsGenerated(parsed) {
			return nil
		}
		packages[dir] += files.File(parsed.FileStart).LineCount()
		for _, decl := range parsed.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			name := dir + "." + f.Name.Name
			if f.Recv != nil {
				on := dir + "." + receiver(f.Recv.List[0].Type)
				methods[on]++
				name = on + "." + f.Name.Name
			}
			over(name, files.Position(f.End()).Line-files.Position(f.Pos()).Line+1, maxFunctionLines)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, n := range packages {
		over(name, n, maxPackageLines)
	}
	for name, n := range methods {
		over(name, n, maxMethods)
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if n := found[name]; n > tooLarge[name] {
			t.Errorf("%s has %d lines or methods: a package has %d lines at most, a type %d methods, a function %d lines", name, n, maxPackageLines, maxMethods, maxFunctionLines)
		}
	}
	for name := range tooLarge {
		if found[name] == 0 {
			t.Errorf("%s is within its limit: remove it from tooLarge", name)
		}
	}
}

// receiver returns the name of a method's type.
func receiver(of ast.Expr) string {
	switch of := of.(type) {
	case *ast.StarExpr:
		return receiver(of.X)
	case *ast.IndexExpr:
		return receiver(of.X)
	case *ast.IndexListExpr:
		return receiver(of.X)
	case *ast.Ident:
		return of.Name
	}
	return ""
}
