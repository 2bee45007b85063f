package etcdconn

import (
	"strings"
	"testing"
)

func TestSupportedVersions(t *testing.T) {
	for v, want := range map[string]bool{
		"3.5.33": true, "3.5.32": false, "3.5.40": true, "3.6.14": true, "3.6.13": false, "3.7.0": false, "3.7.1": true,
		"3.7.3": true, "3.8.0": true, "4.0.0": true, "3.4.30": false, "2.3.8": false, "3.7.1-rc.0": false, "3.7.2-rc.0": true,
		"v3.7.3": true, "3.7.3+dfsg": true, "3.5.33+git": true, "": false, "3.7": false, "new": false, "3.7.x": false,
	} {
		if got := supported(v); got != want {
			t.Errorf("supported(%q) = %v", v, got)
		}
	}
	if got := strings.Join(Supported(), " "); got != "3.5.33 3.6.14 3.7.1" {
		t.Errorf("Supported = %v", got)
	}
}
