package version

import (
	"runtime/debug"
	"testing"
)

func TestOf(t *testing.T) {
	setting := func(kv ...string) (s []debug.BuildSetting) {
		for i := 0; i < len(kv); i += 2 {
			s = append(s, debug.BuildSetting{Key: kv[i], Value: kv[i+1]})
		}
		return s
	}
	for name, c := range map[string]struct {
		info debug.BuildInfo
		want string
	}{
		"a release":   {debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}}, "v1.2.3"},
		"go run":      {debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}, "devel"},
		"a test":      {debug.BuildInfo{}, "devel"},
		"a work tree": {debug.BuildInfo{Settings: setting("vcs.revision", "0123456789abcdef", "vcs.modified", "true")}, "devel-0123456789ab-dirty"},
		"a short one": {debug.BuildInfo{Settings: setting("vcs.revision", "0123", "vcs.modified", "false")}, "devel-0123"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := of(&c.info); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestGet(t *testing.T) {
	got := get(&debug.BuildInfo{GoVersion: "go1.26.8", Main: debug.Module{Version: "v1.2.3"}, Settings: []debug.BuildSetting{
		{Key: "GOOS", Value: "linux"},
		{Key: "GOARCH", Value: "arm64"},
		{Key: "-tags", Value: "nodev"},
		{Key: "vcs.revision", Value: "0123"},
		{Key: "vcs.time", Value: "2026-11-22T00:44:16Z"},
		{Key: "vcs.modified", Value: "true"},
	}})
	want := Info{Version: "v1.2.3", Commit: "0123", Date: "2026-11-22T00:44:16Z", Modified: true, Go: "go1.26.8", Platform: "linux/arm64", Tags: "nodev"}
	if got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if Get().Go == "" || Get().Version != String() {
		t.Errorf("this program: %+v", Get())
	}
}
