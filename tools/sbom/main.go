// Command sbom writes the bill of materials of a Go program, in CycloneDX's JSON,
// from the Go command's record in it: the program, and every contained module with
// its version.
//
//	go run -C tools/sbom . /path/to/program > program.cdx.json
//
// The output depends only on the program: its time is the commit's.
package main

import (
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"os"
	"path"
	"runtime/debug"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("want the path of one program, got %d arguments", len(args))
	}
	info, err := buildinfo.ReadFile(args[0])
	if err != nil {
		return err
	}
	e := cdx.NewBOMEncoder(os.Stdout, cdx.BOMFileFormatJSON)
	e.SetPretty(true)
	return e.Encode(materials(info))
}

// materials returns the bill of materials of a program.
func materials(info *debug.BuildInfo) *cdx.BOM {
	setting := make(map[string]string)
	for _, s := range info.Settings {
		setting[s.Key] = s.Value
	}
	program := module(&info.Main)
	program.Type, program.Name = cdx.ComponentTypeApplication, path.Base(info.Path)
	program.PackageURL += fmt.Sprintf("?type=module&goos=%s&goarch=%s#%s", setting["GOOS"], setting["GOARCH"], strings.TrimPrefix(info.Path, info.Main.Path+"/"))
	std := module(&debug.Module{Path: "std", Version: strings.TrimPrefix(info.GoVersion, "go")})
	parts, needed := []cdx.Component{std}, []string{std.BOMRef}
	for _, d := range info.Deps {
		if d.Replace != nil {
			d = d.Replace
		}
		if d.Version == "(devel)" { // a module of this repository, at the same commit
			d.Version = info.Main.Version
		}
		part := module(d)
		parts, needed = append(parts, part), append(needed, part.BOMRef)
	}
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Timestamp: setting["vcs.time"], Component: &program}
	bom.Components = &parts
	bom.Dependencies = &[]cdx.Dependency{{Ref: program.BOMRef, Dependencies: &needed}}
	return bom
}

func module(m *debug.Module) cdx.Component {
	url := fmt.Sprintf("pkg:golang/%s@%s", m.Path, strings.ReplaceAll(m.Version, "+", "%2B"))
	c := cdx.Component{
		BOMRef: url, Type: cdx.ComponentTypeLibrary, Name: m.Path, Version: m.Version, PackageURL: url, Scope: cdx.ScopeRequired,
	}
	// go.sum's "h1:" is SHA-256 in base64.
	if sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(m.Sum, "h1:")); err == nil && len(sum) > 0 {
		c.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(sum)}}
	}
	return c
}
