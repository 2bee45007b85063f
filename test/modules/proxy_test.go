package modules_test

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

const (
	project = "github.com/shardwatch/shardwatch"
	root    = "../.."
)

// folders are the modules of a release, by their folder in the repository.
func folders() []string { return []string{"", "api", "client", "internal/files"} }

// pathOf returns the path of the module in a folder.
func pathOf(folder string) string { return strings.TrimSuffix(project+"/"+folder, "/") }

// released returns the version that go.mod requires of the project's other modules. All
// modules and go.work must agree on it.
func released(t *testing.T) string {
	t.Helper()
	versions := map[string][]string{}
	for _, folder := range folders() {
		file := filepath.Join(root, folder, "go.mod")
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := modfile.Parse(file, text, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range parsed.Require {
			if strings.HasPrefix(r.Mod.Path, project+"/") {
				versions[r.Mod.Version] = append(versions[r.Mod.Version], file+" of "+r.Mod.Path)
			}
		}
		if len(parsed.Replace) > 0 {
			t.Errorf("%s has replace directives: go install refuses the module", file)
		}
	}
	text, err := os.ReadFile(filepath.Join(root, "go.work"))
	if err != nil {
		t.Fatal(err)
	}
	work, err := modfile.ParseWork("go.work", text, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range work.Replace {
		versions[r.Old.Version] = append(versions[r.Old.Version], "go.work of "+r.Old.Path)
	}
	if len(versions) != 1 {
		t.Fatalf("the modules do not agree on one version of each other: %v", versions)
	}
	for v := range versions {
		return v
	}
	return ""
}

// proxy fills a folder with the modules of this tree, as a module proxy has them.
func proxy(t *testing.T, version string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for _, folder := range folders() {
		m := module.Version{Path: pathOf(folder), Version: version}
		at := filepath.Join(dir, filepath.FromSlash(m.Path), "@v")
		gomod, err := os.ReadFile(filepath.Join(root, folder, "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(at, 0o700); err != nil {
			t.Fatal(err)
		}
		for ending, text := range map[string]string{
			"list": version + "\n", version + ".info": fmt.Sprintf(`{"Version":%q}`, version), version + ".mod": string(gomod),
		} {
			if err := os.WriteFile(filepath.Join(at, ending), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		archive, err := os.Create(filepath.Join(at, version+".zip"))
		if err != nil {
			t.Fatal(err)
		}
		if err := zip.Create(archive, m, filesOf(t, filepath.Join(root, folder))); err != nil {
			t.Fatal(err)
		}
		if err := archive.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

type file struct {
	path, name string
	info       fs.FileInfo
}

func (f file) Path() string                 { return f.name }
func (f file) Lstat() (fs.FileInfo, error)  { return f.info, nil }
func (f file) Open() (io.ReadCloser, error) { return os.Open(f.path) }

// filesOf returns the files of the module in dir, without those that builds leave there.
func filesOf(t *testing.T, dir string) (files []zip.File) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		if d.IsDir() {
			_, nested := os.Stat(filepath.Join(path, "go.mod"))
			if nested == nil || strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules" || d.Name() == "bin" || d.Name() == "dist" {
				return fs.SkipDir
			}
			return nil
		}
		info, err := d.Info()
		if err != nil || !info.Mode().IsRegular() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		files = append(files, file{path, filepath.ToSlash(name), info})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
