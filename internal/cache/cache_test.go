package cache

import (
	"strings"
	"testing"
)

func TestConfigNamesEveryMistake(t *testing.T) {
	good := small(newScript())
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	bad := Config{RootsBytes: -1, RootsTime: -1}
	err := bad.Validate()
	for _, name := range []string{"WindowBytes", "WindowTime", "RootsBytes", "RootsTime", "Source"} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s is not named: %v", name, err)
		}
	}
}
