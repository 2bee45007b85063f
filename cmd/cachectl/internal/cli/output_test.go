package cli

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/cmd/cachectl/internal/document"
)

func TestProgressIsReportedAtIntervals(t *testing.T) {
	var out strings.Builder
	p := NewProgress(&out)
	start := p.told
	for _, at := range []time.Duration{0, progressEvery - 1, progressEvery, progressEvery + 1, 2 * progressEvery} {
		p.Tell(start.Add(at), "%v", at)
	}
	if got, want := out.String(), "cachectl: 2s\ncachectl: 4s\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestHumanReadableFigures(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{BytesOf(0), "0 B"},
		{BytesOf(1023), "1023 B"},
		{BytesOf(1536), "1.5 KiB"},
		{BytesOf(5 << 30), "5.0 GiB"},
		{BytesOf(3 << 50), "3072.0 TiB"},
		{TimeOf(5 * time.Millisecond), "5ms"},
		{TimeOf(1500 * time.Millisecond), "1.5s"},
		{TimeOf(61 * time.Second), "1m1s"},
		{TimeOf(90 * time.Minute), "1h30m"},
		{TimeOf(49 * time.Hour), "2d1h"},
		{document.Text([]byte("/a b")), "/a b"},
		{document.Text([]byte("\xff")), `"\xff"`},
		{document.Text([]byte("a\nb")), `"a\nb"`},
		{document.Text(nil), `""`},
		{document.Text([]byte(" a")), `" a"`},
		{fmt.Sprint(Seconds(1.5)), "1.5s"},
	} {
		if c.got != c.want {
			t.Errorf("got %s, want %s", c.got, c.want)
		}
	}
}
