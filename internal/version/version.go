// Package version reports the version and build of the program. Read [Get].
package version

import (
	"runtime/debug"
	"strings"
)

// Info is the Go command's record of a build. Builds from the same commit with
// the same Go have the same Info.
type Info struct {
	// Version is the result of String.
	Version string `json:"version"`
	// Commit and Date identify the commit of the build, the date as in RFC 3339; "" if unknown, as for a module
	// built without its repository. Modified: the work tree differed from the commit.
	Commit   string `json:"commit,omitempty"`
	Date     string `json:"date,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	// Go is the version of the Go command, Platform GOOS/GOARCH, Tags the build
	// tags, comma separated.
	Go       string `json:"go"`
	Platform string `json:"platform"`
	Tags     string `json:"tags,omitempty"`
}

// Get returns the Info of the running program. It never fails; unknown fields
// are "".
func Get() Info {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return Info{Version: of(&debug.BuildInfo{})}
	}
	return get(info)
}

func get(info *debug.BuildInfo) Info {
	setting := make(map[string]string)
	for _, s := range info.Settings {
		setting[s.Key] = s.Value
	}
	return Info{
		Version: of(info), Commit: setting["vcs.revision"], Date: setting["vcs.time"], Modified: setting["vcs.modified"] == "true",
		Go: info.GoVersion, Platform: setting["GOOS"] + "/" + setting["GOARCH"], Tags: setting["-tags"],
	}
}

// String returns the version of the running program: that of the module (v1.2.3), or, in a build from a work
// tree, "devel" with the commit if the Go command recorded it. It never fails and never returns "".
func String() string { return Get().Version }

func of(info *debug.BuildInfo) string {
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	var revision, dirty string
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value[:min(12, len(s.Value))]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "dirty"
		}
	}
	parts := []string{"devel"}
	for _, p := range []string{revision, dirty} {
		if p != "" {
			parts = append(parts, p)
		}
	}
	return strings.Join(parts, "-")
}
