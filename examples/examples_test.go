package examples_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"testing"
)

// most is how many lines a program may have besides its imports and its output.
const most = 15

// TestProgramsAreShort counts the lines of each main.go after its imports.
func TestProgramsAreShort(t *testing.T) {
	programs, err := filepath.Glob("*/main.go")
	if err != nil || len(programs) != 3 {
		t.Fatalf("programs %v, %v: want three", programs, err)
	}
	for _, path := range programs {
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		lines := 0
		for _, d := range file.Decls {
			if g, ok := d.(*ast.GenDecl); !ok || g.Tok != token.IMPORT {
				lines += files.Position(d.End()).Line - files.Position(d.Pos()).Line + 1
			}
		}
		if lines > most {
			t.Errorf("%s has %d lines, more than %d", path, lines, most)
		}
	}
}
