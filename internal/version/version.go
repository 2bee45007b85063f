// Package version says which Shardwatch this is. Read [String].
package version

import (
	"runtime/debug"
	"strings"
)

// String returns the version of the running program: that of the module
// (v1.2.3), or, in a build from a work tree, "devel" with the commit where the
// Go command recorded one. It never fails and never returns "".
func String() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "devel"
	}
	return of(info)
}

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
