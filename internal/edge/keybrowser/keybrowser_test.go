package keybrowser

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"testing"
)

// The page's files are served with a policy that forbids inline scripts and other origins.
func TestFilesHaveThePolicy(t *testing.T) {
	for path, kind := range map[string]string{
		"/ui/": "text/html; charset=utf-8", "/ui/keys.js": "text/javascript; charset=utf-8", "/ui/keys.css": "text/css; charset=utf-8", "/ui/icon.svg": "image/svg+xml",
	} {
		w := httptest.NewRecorder()
		Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Code != http.StatusOK || w.Header().Get("Content-Type") != kind || w.Header().Get("Content-Security-Policy") != policy {
			t.Errorf("%s: %d %v", path, w.Code, w.Header())
		}
	}
	w := httptest.NewRecorder()
	Handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/ui/", nil))
	if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD" {
		t.Errorf("POST: %d %v", w.Code, w.Header())
	}
}

// The script uses no function that creates HTML or code from a string.
func TestTheScriptParsesNoHTML(t *testing.T) {
	script, err := assets.ReadFile("assets/keys.js")
	if err != nil {
		t.Fatal(err)
	}
	if at := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|localStorage`).Find(script); at != nil {
		t.Errorf("keys.js uses %s", at)
	}
}
