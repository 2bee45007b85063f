package client_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardwatch/shardwatch/client"
)

// A token that is renewed in its file is used soon, but the file is not read for every call.
func TestTokenFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		name := filepath.Join(t.TempDir(), "token")
		token := client.TokenFile(name)
		if _, err := token(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("got %v", err)
		}
		write := func(text string) {
			if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		is := func(want string) {
			t.Helper()
			if got, err := token(); err != nil || got != want {
				t.Errorf("got %q, %v, want %q", got, err, want)
			}
		}
		write("one\n")
		is("one")
		write("two\n")
		is("one")
		time.Sleep(time.Minute)
		is("two")
		write("")
		time.Sleep(time.Minute)
		if _, err := token(); err == nil || !strings.Contains(err.Error(), "is empty") {
			t.Errorf("got %v", err)
		}
	})
}
